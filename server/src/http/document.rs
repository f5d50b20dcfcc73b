//! JSON from callers: bounded, free of what the database cannot hold, and refused with a pointer to what is wrong.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::error::{Error, Fault};

/// Reads JSON. `serde_json` itself refuses nesting beyond 128 levels.
///
/// # Errors
/// [`Error::Invalid`].
pub fn parse(bytes: &[u8]) -> Result<Value, Error> {
    let value = serde_json::from_slice(bytes)
        .map_err(|error| Error::invalid("", "malformed_json", error.to_string()))?;
    match find_nul(&value, &mut String::new()) {
        None => Ok(value),
        Some(pointer) => Err(Error::invalid(
            pointer,
            "nul",
            "A text must not hold the character U+0000.",
        )),
    }
}

/// A document as the type it must be; unknown fields are refused where they stand.
///
/// # Errors
/// [`Error::Invalid`] with the pointer.
pub fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let detail = error.inner().to_string();
        let mut pointer = pointer(error.path());
        let code = match detail.as_str() {
            text if text.starts_with("unknown field") => "unknown_field",
            text if text.starts_with("missing field") => {
                // The path ends at the object that misses it; the field's name is between backticks.
                pointer.extend(text.split('`').nth(1).map(|field| format!("/{field}")));
                "required"
            }
            _ => "invalid_value",
        };
        Error::Invalid(vec![Fault {
            pointer,
            code,
            detail,
        }])
    })
}

/// RFC 6901.
fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                pointer.push('/');
                pointer.push_str(&escape(key));
            }
            Segment::Unknown => {}
        }
    }
    pointer
}

/// A member's name as a pointer's segment.
pub fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Postgres refuses U+0000 in text and jsonb alike. Depth is bounded by the parser.
fn find_nul(value: &Value, pointer: &mut String) -> Option<String> {
    match value {
        Value::String(text) => text.contains('\0').then(|| pointer.clone()),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| nested(&at.to_string(), item, pointer)),
        Value::Object(members) => {
            members
                .iter()
                .find_map(|(key, member)| match key.contains('\0') {
                    true => Some(pointer.clone()),
                    false => nested(&escape(key), member, pointer),
                })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn nested(segment: &str, value: &Value, pointer: &mut String) -> Option<String> {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(segment);
    let found = find_nul(value, pointer);
    pointer.truncate(length);
    found
}

/// Applies a JSON merge patch (RFC 7396).
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            value => merge(target.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "only its type matters")]
        units: u32,
    }

    fn fault<T: std::fmt::Debug>(result: Result<T, Error>) -> (String, &'static str) {
        match result {
            Err(Error::Invalid(faults)) => (faults[0].pointer.clone(), faults[0].code),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        type Doc = std::collections::BTreeMap<String, Vec<Inner>>;
        let at = |value| fault(typed::<Doc>(&value));
        assert_eq!(
            at(json!({"a": [{"units": 1, "colour": 2}]})),
            ("/a/0/colour".into(), "unknown_field")
        );
        assert_eq!(at(json!({"a": [{}]})), ("/a/0/units".into(), "required"));
        assert_eq!(
            at(json!({"a/b": [{"units": "x"}]})),
            ("/a~1b/0/units".into(), "invalid_value")
        );
    }

    #[test]
    fn nul_and_depth_are_refused() {
        assert_eq!(
            fault(parse(br#"{"a": ["x", "\u0000"]}"#)),
            ("/a/1".into(), "nul")
        );
        assert_eq!(
            fault(parse(br#"{"a": {"\u0000": 1}}"#)),
            ("/a".into(), "nul")
        );
        assert_eq!(
            fault(parse("[".repeat(10_000).as_bytes())),
            (String::new(), "malformed_json")
        );
        assert!(parse(b"{").is_err());
    }

    /// The examples of RFC 7396, appendix A.
    #[test]
    fn merges_as_the_rfc_says() {
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (
                json!([1, 2]),
                json!({"a": "b", "c": null}),
                json!({"a": "b"}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut merged = target.clone();
            merge(&mut merged, &patch);
            assert_eq!(merged, result, "{target} + {patch}");
        }
    }
}
