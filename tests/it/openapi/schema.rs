//! Holds a value against a schema of the description, as narrowly as it can be read: what the schema does not name is a fault.

use serde_json::Value;

const UNKNOWN: &str = ": the schema has no such member";

/// What is wrong with the value, each with its place.
pub(super) fn faults(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    hold(document, schema, value, "", &mut faults);
    faults
}

fn hold(document: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    if let Some(path) = schema["$ref"].as_str() {
        hold(
            document,
            document.pointer(&path[1..]).unwrap_or(&Value::Null),
            value,
            at,
            faults,
        );
    }
    if !is_of_type(&schema["type"], value) {
        faults.push(format!("{at}: {value} is not {}", schema["type"]));
    }
    if schema["enum"]
        .as_array()
        .is_some_and(|words| !words.contains(value))
    {
        faults.push(format!("{at}: {value} is none of {}", schema["enum"]));
    }
    if let (Some(format), Some(text)) = (schema["format"].as_str(), value.as_str()) {
        let fits = match format {
            "uuid" => text.parse::<uuid::Uuid>().is_ok(),
            "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
            "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
            _ => true,
        };
        if !fits {
            faults.push(format!("{at}: {text:?} is no {format}"));
        }
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let mut of_part = Vec::new();
        hold(document, part, value, at, &mut of_part);
        // What one part has not, another may have.
        faults.extend(
            of_part
                .into_iter()
                .filter(|fault| !fault.ends_with(UNKNOWN)),
        );
    }
    if let Some(variants) = schema["oneOf"].as_array() {
        let tried: Vec<Vec<String>> = variants
            .iter()
            .map(|variant| self::faults(document, variant, value))
            .collect();
        if tried.iter().all(|faults| !faults.is_empty()) {
            faults.push(format!("{at}: no variant fits: {tried:?}"));
        }
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        hold(
            document,
            &schema["items"],
            item,
            &format!("{at}/{number}"),
            faults,
        );
    }
    if value.is_object() {
        members(document, schema, value, at, faults);
    }
}

fn members(document: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if value.get(name).is_none() {
            faults.push(format!("{at}: {name} is missing"));
        }
    }
    let known = schema["properties"].as_object();
    // Where several schemas say together what there is, none of them alone says what there is not.
    let alone = !["allOf", "oneOf", "$ref", "unevaluatedProperties"]
        .iter()
        .any(|word| schema.get(*word).is_some());
    for (name, member) in value.as_object().into_iter().flatten() {
        let at = format!("{at}/{name}");
        match (
            known.and_then(|known| known.get(name)),
            &schema["additionalProperties"],
        ) {
            (Some(schema), _) => hold(document, schema, member, &at, faults),
            (None, Value::Object(_)) => hold(
                document,
                &schema["additionalProperties"],
                member,
                &at,
                faults,
            ),
            (None, _) if known.is_some() && alone => faults.push(format!("{at}{UNKNOWN}")),
            _ => {}
        }
    }
}

fn is_of_type(wanted: &Value, value: &Value) -> bool {
    match wanted {
        Value::Array(several) => several.iter().any(|one| is_of_type(one, value)),
        Value::String(word) => match word.as_str() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            _ => false,
        },
        _ => true,
    }
}

#[test]
fn what_a_schema_does_not_say_is_a_fault() {
    let document = serde_json::json!({ "components": { "schemas": {
        "Rack": { "type": "object", "required": ["units"], "properties": { "units": { "type": "integer" }, "of": { "$ref": "#/components/schemas/Id" } } },
        "Id": { "type": ["string", "null"], "format": "uuid" },
    } } });
    let schema = serde_json::json!({ "$ref": "#/components/schemas/Rack" });
    let count = |text: &str| faults(&document, &schema, &serde_json::from_str(text).unwrap()).len();
    assert_eq!(count(r#"{ "units": 1, "of": null }"#), 0);
    assert_eq!(
        count(r#"{ "units": 1, "of": "0197b0f2-9a3c-7000-8000-000000000000" }"#),
        0
    );
    for wrong in [
        r#"{}"#,
        r#"{ "units": "1" }"#,
        r#"{ "units": 1, "of": "x" }"#,
        r#"{ "units": 1, "colour": 2 }"#,
        "[]",
    ] {
        assert!(count(wrong) > 0, "{wrong}");
    }
}
