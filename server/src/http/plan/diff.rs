//! Differences between two documents, by JSON pointer.

use muster_api::plans::Difference;
use serde_json::Value;

use crate::document::escape;

/// The largest number of differences shown, because people read them.
const MOST: usize = 200;

/// Lists every differing value, at most 200. Two lists are compared as a whole.
pub(super) fn list_differences(before: Option<&Value>, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(String::new(), before, Some(after), &mut found);
    found.truncate(MOST);
    found
}

fn compare(
    pointer: String,
    before: Option<&Value>,
    after: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    match (before, after) {
        _ if before == after || found.len() >= MOST => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            for (key, value) in new {
                compare(
                    format!("{pointer}/{}", escape(key)),
                    old.get(key),
                    Some(value),
                    found,
                );
            }
            for (key, value) in old.iter().filter(|(key, _)| !new.contains_key(*key)) {
                compare(
                    format!("{pointer}/{}", escape(key)),
                    Some(value),
                    None,
                    found,
                );
            }
        }
        // List each member of a new object separately, one line for each.
        (None, Some(Value::Object(new))) if !new.is_empty() => {
            for (key, value) in new {
                compare(
                    format!("{pointer}/{}", escape(key)),
                    None,
                    Some(value),
                    found,
                );
            }
        }
        _ => found.push(Difference {
            pointer,
            before: before.cloned(),
            after: after.cloned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_value_that_differs_is_pointed_at() {
        let told = |before: Value, after: Value| {
            list_differences(Some(&before), &after)
                .into_iter()
                .map(|one| (one.pointer, one.before, one.after))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(json!({"a": {"b": [1]}}), json!({"a": {"b": [1]}})), []);
        let (one, two) = (Some(json!(1)), Some(json!(2)));
        assert_eq!(
            told(json!({"a": {"b/c": 1}}), json!({"a": {"b/c": 2}})),
            [("/a/b~1c".into(), one.clone(), two.clone())]
        );
        assert_eq!(
            told(json!({"a": 1}), json!({"b": 2})),
            [("/b".into(), None, two), ("/a".into(), one, None)]
        );
        assert_eq!(
            told(json!({"a": null}), json!({})),
            [("/a".into(), Some(Value::Null), None)]
        );
        assert_eq!(
            list_differences(None, &json!({"labels": {}, "spec": {"units": 1}})).len(),
            2
        );
    }
}
