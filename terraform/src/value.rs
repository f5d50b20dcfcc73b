//! Conversion between Terraform's values (msgpack, with unknown values) and the API's values
//! (JSON). Terraform treats absent and null as equal. An empty list differs from both.

use std::collections::BTreeMap;

use rmpv::Value;
use serde_json::{Map, Value as Json};
use tonic::Status;

use crate::contract::Type;
use crate::messages::DynamicValue;

/// A resource or data source with every attribute of its schema.
pub(crate) type Attributes = BTreeMap<String, Value>;

/// Returns the value for an attribute known only after the apply.
pub(crate) fn unknown() -> Value {
    Value::Ext(0, vec![0])
}

/// Returns whether any part of the value is known only after the apply.
pub(crate) fn has_unknown(value: &Value) -> bool {
    match value {
        Value::Ext(..) => true,
        Value::Array(items) => items.iter().any(has_unknown),
        Value::Map(entries) => entries.iter().any(|(_, value)| has_unknown(value)),
        _ => false,
    }
}

/// Returns the attribute as text, or an empty text for an absent attribute.
pub(crate) fn text<'a>(attributes: &'a Attributes, name: &str) -> &'a str {
    attributes
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the attribute, or null for an absent attribute.
pub(crate) fn get<'a>(attributes: &'a Attributes, name: &str) -> &'a Value {
    attributes.get(name).unwrap_or(&Value::Nil)
}

/// Decodes the value of a message. `None` is Terraform's null.
pub(crate) fn decode(value: Option<&DynamicValue>) -> Result<Option<Attributes>, Status> {
    let unreadable =
        |error: String| Status::invalid_argument(format!("a value cannot be read: {error}"));
    let Some(value) = value else { return Ok(None) };
    let value = match (value.msgpack.as_slice(), value.json.as_slice()) {
        ([], []) => return Ok(None),
        ([], json) => {
            stored(&serde_json::from_slice(json).map_err(|error| unreadable(error.to_string()))?)
        }
        (mut packed, _) => {
            rmpv::decode::read_value(&mut packed).map_err(|error| unreadable(error.to_string()))?
        }
    };
    match value {
        Value::Nil => Ok(None),
        Value::Map(entries) => Ok(Some(
            entries
                .into_iter()
                .map(|(name, value)| (name.as_str().unwrap_or_default().to_owned(), value))
                .collect(),
        )),
        _ => Err(unreadable("it is not an object".into())),
    }
}

/// Encodes attributes as the value of a message.
pub(crate) fn encode(attributes: Option<Attributes>) -> Option<DynamicValue> {
    let value = attributes.map_or(Value::Nil, |attributes| {
        Value::Map(
            attributes
                .into_iter()
                .map(|(name, value)| (name.into(), value))
                .collect(),
        )
    });
    let mut msgpack = Vec::new();
    rmpv::encode::write_value(&mut msgpack, &value).expect("writing to memory cannot fail");
    Some(DynamicValue {
        msgpack,
        json: Vec::new(),
    })
}

/// Converts the JSON of a state file. A state file contains no types.
fn stored(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => from_number(number),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::Array(items.iter().map(stored).collect()),
        Json::Object(members) => Value::Map(
            members
                .iter()
                .map(|(name, value)| (name.as_str().into(), stored(value)))
                .collect(),
        ),
    }
}

/// Converts a number. Fractions are sent as text, because Terraform reads 9.4 as an exact decimal
/// and no binary float equals 9.4.
fn from_number(number: &serde_json::Number) -> Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(number), _) => Value::from(number),
        (None, Some(number)) => Value::from(number),
        (None, None) => Value::from(number.to_string()),
    }
}

/// Returns a stored value with exactly the members of the current type. A newer provider may have
/// more members than the stored value, or fewer.
pub(crate) fn conform(of: &Type, value: Value) -> Value {
    match (of, value) {
        (Type::Object(members), Value::Map(mut entries)) => {
            let mut take = |name: &str| {
                let at = entries
                    .iter()
                    .position(|(key, _)| key.as_str() == Some(name));
                at.map_or(Value::Nil, |at| entries.swap_remove(at).1)
            };
            Value::Map(
                members
                    .iter()
                    .map(|m| (m.name.as_str().into(), conform(&m.of, take(&m.name))))
                    .collect(),
            )
        }
        (Type::List(of), Value::Array(items)) => {
            Value::Array(items.into_iter().map(|item| conform(of, item)).collect())
        }
        (Type::Map(of), Value::Map(entries)) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| (key, conform(of, value)))
                .collect(),
        ),
        (_, value) => value,
    }
}

/// Converts a value to JSON for the API. Returns `None` for a null or unknown value.
pub(crate) fn to_json(of: &Type, value: &Value) -> Option<Json> {
    Some(match (of, value) {
        (_, Value::Nil | Value::Ext(..)) => return None,
        (Type::Object(members), Value::Map(entries)) => {
            let find = |name: &str| {
                entries
                    .iter()
                    .find(|(key, _)| key.as_str() == Some(name))
                    .map(|(_, value)| value)
            };
            let sent = members
                .iter()
                .filter_map(|m| Some((m.name.clone(), to_json(&m.of, find(&m.name)?)?)));
            Json::Object(sent.collect())
        }
        (Type::Map(of), Value::Map(entries)) => {
            let entry = |(key, value): &(Value, Value)| {
                Some((key.as_str()?.to_owned(), to_json(of, value)?))
            };
            Json::Object(entries.iter().filter_map(entry).collect::<Map<_, _>>())
        }
        (Type::List(of), Value::Array(items)) => Json::Array(
            items
                .iter()
                .map(|item| to_json(of, item).unwrap_or(Json::Null))
                .collect(),
        ),
        (Type::Number | Type::NumberOrText, Value::Integer(number)) => {
            match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => number.into(),
                (None, number) => number.into(),
            }
        }
        (Type::Number | Type::NumberOrText, Value::F64(number)) => Json::from(*number),
        (Type::Number | Type::NumberOrText, Value::String(text)) => number_or_text(text.as_str()?),
        (Type::Json, Value::String(text)) => {
            serde_json::from_str(text.as_str()?).unwrap_or_else(|_| text.as_str().into())
        }
        (_, Value::Boolean(value)) => Json::from(*value),
        (_, Value::String(text)) => text.as_str()?.into(),
        _ => return None,
    })
}

/// Returns a number if the text is a number, else the text.
fn number_or_text(text: &str) -> Json {
    serde_json::from_str::<serde_json::Number>(text).map_or_else(|_| text.into(), Json::Number)
}

/// Converts a response of the API to a value for Terraform.
pub(crate) fn from_json(of: &Type, json: &Json) -> Value {
    match (of, json) {
        (_, Json::Null) => Value::Nil,
        (Type::Object(members), Json::Object(object)) => {
            let entry = |name: &str, of| {
                (
                    Value::from(name),
                    object
                        .get(name)
                        .map_or(Value::Nil, |json| from_json(of, json)),
                )
            };
            Value::Map(members.iter().map(|m| entry(&m.name, &m.of)).collect())
        }
        (Type::Map(of), Json::Object(object)) => Value::Map(
            object
                .iter()
                .map(|(key, json)| (key.as_str().into(), from_json(of, json)))
                .collect(),
        ),
        (Type::List(of), Json::Array(items)) => {
            Value::Array(items.iter().map(|json| from_json(of, json)).collect())
        }
        (Type::Bool, Json::Bool(value)) => Value::from(*value),
        (Type::Number, Json::Number(number)) => from_number(number),
        (Type::Text | Type::NumberOrText, Json::String(text)) => Value::from(text.as_str()),
        // The stored spec has a shape other than described. The value is null here, so the next
        // apply writes the spec again.
        (Type::Object(_) | Type::Map(_) | Type::List(_), _) => Value::Nil,
        (_, json) => Value::from(json.to_string()),
    }
}

/// Converts a response to a value. Keeps the operator's notation if the written value is equal.
pub(crate) fn in_words_of(written: &Value, of: &Type, json: &Json) -> Value {
    match to_json(of, written) {
        Some(same) if same == *json => written.clone(),
        _ => from_json(of, json),
    }
}

/// Returns whether two values are equal for the API.
pub(crate) fn same(of: &Type, one: &Value, other: &Value) -> bool {
    !has_unknown(one)
        && !has_unknown(other)
        && one.is_nil() == other.is_nil()
        && to_json(of, one) == to_json(of, other)
}

/// Returns the object's state at a JSON pointer.
pub(crate) fn state_of<'a>(object: &'a Json, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Json::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::contract::{Member, schema};

    #[test]
    fn a_fraction_goes_round_as_it_was_written() {
        let limit = Type::NumberOrText;
        for (written, sent) in [
            ("9.4", json!(9.4)),
            ("0", json!(0)),
            ("profile:x", json!("profile:x")),
            ("1.2.3", json!("1.2.3")),
        ] {
            let json = to_json(&limit, &Value::from(written)).unwrap();
            assert_eq!(json, sent);
            assert_eq!(from_json(&limit, &json), Value::from(written));
        }
        assert_eq!(from_json(&Type::Number, &json!(9.4)), Value::from("9.4"));
        assert_eq!(
            to_json(&Type::Number, &Value::from("9.4")),
            Some(json!(9.4))
        );
        assert_eq!(
            from_json(&Type::Number, &json!(u64::MAX)),
            Value::from(u64::MAX)
        );
        assert_eq!(
            to_json(&Type::Number, &Value::from(u64::MAX)),
            Some(json!(u64::MAX))
        );
    }

    #[test]
    fn a_value_of_another_shape_is_absent() {
        let spec = schema("ClaimSpec");
        for wrong in [json!(null), json!([]), json!(["gpu"]), json!("gpu")] {
            assert_eq!(from_json(&spec, &wrong), Value::Nil, "{wrong}");
        }
        let value = from_json(&spec, &json!({ "pool": "gpu", "selector": ["a"] }));
        assert_eq!(to_json(&spec, &value), Some(json!({ "pool": "gpu" })));
    }

    #[test]
    fn absent_is_not_sent_and_empty_is() {
        let spec = schema("ClaimSpec");
        let value = from_json(&spec, &json!({ "pool": "gpu", "selector": {} }));
        assert_eq!(
            to_json(&spec, &value),
            Some(json!({ "pool": "gpu", "selector": {} }))
        );
    }

    #[test]
    fn a_state_of_another_version_gets_the_members_of_this_one() {
        let of = Type::Object(vec![
            Member::new("a", "", Type::Text),
            Member::new("b", "", Type::Bool),
        ]);
        let old = stored(&json!({ "a": "x", "gone": 1 }));
        assert_eq!(
            conform(&of, old),
            Value::Map(vec![("a".into(), "x".into()), ("b".into(), Value::Nil)])
        );
    }
}
