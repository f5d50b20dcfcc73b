//! Compares a client's JSON with the value read from the JSON, so the checked content equals the
//! stored content.

use serde_json::Value;

use super::nested;

/// Returns the pointer to the first place where the JSON and the value read from the JSON differ in
/// shape. A member missing in the value is a default. A `null` counts as an absent member.
pub(super) fn find_difference(raw: &Value, read: &Value, pointer: &mut String) -> Option<String> {
    match (raw, read) {
        (Value::Object(raw), Value::Object(read)) => raw.iter().find_map(|(name, member)| {
            let read = read.get(name)?;
            nested(&super::escape(name), pointer, |pointer| {
                find_difference(member, read, pointer)
            })
        }),
        (Value::Array(raw), Value::Array(read)) if raw.len() == read.len() => raw
            .iter()
            .zip(read)
            .enumerate()
            .find_map(|(at, (raw, read))| {
                nested(&at.to_string(), pointer, |pointer| {
                    find_difference(raw, read, pointer)
                })
            }),
        (Value::Null, Value::Null)
        | (Value::Bool(_), Value::Bool(_))
        | (Value::Number(_), Value::Number(_))
        | (Value::String(_), Value::String(_)) => None,
        _ => Some(pointer.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differs(raw: &Value, read: &Value) -> Option<String> {
        find_difference(raw, read, &mut String::new())
    }

    #[test]
    fn another_shape_is_found_at_any_depth() {
        let read = json!({ "a": [{ "b/c": { "d": 1.0 } }], "e": "x" });
        assert_eq!(differs(&read, &read), None);
        for (raw, pointer) in [
            (json!([]), ""),
            (json!({ "a": {} }), "/a"),
            (json!({ "a": [] }), "/a"),
            (json!({ "a": [[{ "d": 1 }]] }), "/a/0"),
            (json!({ "a": [{ "b/c": [1] }] }), "/a/0/b~1c"),
            (json!({ "a": [{ "b/c": { "d": "1" } }] }), "/a/0/b~1c/d"),
            (json!({ "e": { "x": null } }), "/e"),
            (json!({ "e": null }), "/e"),
        ] {
            assert_eq!(differs(&raw, &read).as_deref(), Some(pointer), "{raw}");
        }
    }

    #[test]
    fn defaults_and_other_spellings_of_a_value_are_no_difference() {
        let raw = json!({ "mac": "52-54-00-00-00-01", "limit": 9, "none": null, "left_out": [] });
        let read = json!({ "mac": "52:54:00:00:00:01", "limit": 9.0, "more": { "x": 1 } });
        assert_eq!(differs(&raw, &read), None);
        assert_eq!(
            differs(&json!({ "none": null }), &json!({ "none": null })),
            None
        );
    }
}
