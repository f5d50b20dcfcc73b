//! JSON from callers: bounded in size and free of values the database cannot store. A wrong value
//! is rejected with a pointer to the place.

mod faults; // Faults of well-formed documents
mod mistake; // The error of a reader, as a code beside the sentence
mod shape; // Comparison of the stored JSON with the checked value
mod strict; // Structs are read only from objects

use ipnet::IpNet;
use muster_api::problem;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use self::mistake::MistakeKind;
use self::strict::Strict;
use crate::db::objects::ObjectRow;
use crate::error::{Error, Fault};

pub use self::faults::{fault, label_faults};

/// A client's document: the checked value and the stored JSON. Only [`Document::read`] makes a
/// document, so both have the same content.
#[derive(Clone, Debug)]
pub struct Document<T> {
    typed: T,
    raw: Value,
}

impl<T: Serialize + DeserializeOwned> Document<T> {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] with the pointer.
    pub fn read(raw: Value) -> Result<Self, Error> {
        check(&raw).map(|typed| Self { typed, raw })
    }
}

impl<T> Document<T> {
    /// Returns the checked value.
    pub fn typed(&self) -> &T {
        &self.typed
    }

    /// Returns the checked value and the stored JSON.
    pub fn into_parts(self) -> (T, Value) {
        (self.typed, self.raw)
    }
}

/// Reads a value and compares the shape with the JSON. serde also reads some enums from arrays, and
/// [`typed`] cannot detect such an array.
fn check<T: Serialize + DeserializeOwned>(raw: &Value) -> Result<T, Error> {
    let typed: T = typed(raw)?;
    let read = serde_json::to_value(&typed).map_err(Error::internal)?;
    match shape::find_difference(raw, &read, &mut String::new()) {
        None => Ok(typed),
        Some(pointer) => {
            let detail = "The value has another shape than its schema says.";
            Err(Error::invalid(pointer, "invalid_value", detail))
        }
    }
}

/// Returns the faults of a stored spec, with pointers as seen by a client. Empty for a spec
/// accepted by this version.
pub fn spec_faults<T: Serialize + DeserializeOwned>(spec: &Value) -> Vec<problem::Fault> {
    let faults = match check::<T>(spec) {
        Err(Error::Invalid(faults)) => faults,
        _ => Vec::new(),
    };
    let faults = faults.into_iter().map(|fault| problem::Fault {
        pointer: format!("/spec{}", fault.pointer),
        code: fault.code.to_owned(),
        detail: fault.detail,
    });
    faults.collect()
}

/// Reads the spec of a stored object. An earlier version also stored arrays in place of objects.
/// Such an array inside a spec is read as before. A whole spec stored as an array is rejected.
///
/// # Errors
///
/// 409 `unreadable` with the object's name and advice.
pub fn stored<T: DeserializeOwned>(row: &ObjectRow) -> Result<T, Error> {
    stored_spec(&row.spec).map_err(|why| unreadable(row, &why))
}

fn unreadable(row: &ObjectRow, why: &str) -> Error {
    let kind = row.kind.replace('_', " ");
    let detail = format!(
        "The spec of the {kind} {} cannot be read ({why}). Write the spec again with PUT.",
        row.name
    );
    Error::conflict("unreadable", detail)
}

/// Reads a list of networks from the spec of a stored object. An absent list has no network.
///
/// # Errors
///
/// 409 `unreadable` as for [`stored`]. The limits of an unreadable list are unknown, so the caller
/// allows no address.
pub fn networks_of(row: &ObjectRow, member: &str) -> Result<Vec<IpNet>, Error> {
    stored_networks(&row.spec, member).map_err(|why| unreadable(row, &why))
}

/// Reads a list of networks from a stored spec. An absent list has no network.
///
/// # Errors
///
/// The reason, without any value of the spec. As for [`networks_of`], the caller allows no address.
pub fn stored_networks(spec: &Value, member: &str) -> Result<Vec<IpNet>, String> {
    match spec.get(member).filter(|list| !list.is_null()) {
        Some(list) => {
            serde_json::from_value(list.clone()).map_err(|_| format!("wrong at /spec/{member}"))
        }
        None => Ok(Vec::new()),
    }
}

/// Reads a stored spec.
///
/// # Errors
///
/// The reason, without any value of the spec.
pub fn stored_spec<T: DeserializeOwned>(spec: &Value) -> Result<T, String> {
    if !spec.is_object() {
        return Err("the spec is no object".to_owned());
    }
    serde_path_to_error::deserialize(spec)
        .map_err(|error| format!("wrong at /spec{}", pointer(error.path())))
}

/// Parses JSON. `serde_json` itself rejects nesting deeper than 128 levels.
///
/// # Errors
///
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

/// Reads a document as the given type. Unknown fields, and arrays in place of objects, are rejected
/// with a pointer.
///
/// # Errors
///
/// [`Error::Invalid`] with the pointer.
pub fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    serde_path_to_error::deserialize(Strict(value)).map_err(|error| {
        let mut pointer = pointer(error.path());
        let mistake = error.into_inner();
        let code = match mistake.kind {
            MistakeKind::UnknownField => "unknown_field",
            // The path ends at the object with the missing field.
            MistakeKind::MissingField(field) => {
                pointer.push('/');
                pointer.push_str(&escape(field));
                "required"
            }
            MistakeKind::Value => "invalid_value",
        };
        Error::Invalid(vec![Fault {
            pointer,
            code,
            detail: mistake.detail,
        }])
    })
}

/// Returns the path as an RFC 6901 pointer.
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

/// Escapes a member's name as a segment of a pointer.
pub fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Finds a U+0000 in a text or a name. Postgres rejects U+0000 in text and jsonb. The parser bounds
/// the depth.
fn find_nul(value: &Value, pointer: &mut String) -> Option<String> {
    match value {
        Value::String(text) => text.contains('\0').then(|| pointer.clone()),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| nested(&at.to_string(), pointer, |at| find_nul(item, at))),
        Value::Object(members) => {
            members
                .iter()
                .find_map(|(key, member)| match key.contains('\0') {
                    true => Some(pointer.clone()),
                    false => nested(&escape(key), pointer, |at| find_nul(member, at)),
                })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Searches one level deeper. `find` receives the pointer with one more segment.
fn nested(
    segment: &str,
    pointer: &mut String,
    find: impl FnOnce(&mut String) -> Option<String>,
) -> Option<String> {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(segment);
    let found = find(pointer);
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
    fn a_code_does_not_depend_on_the_sentence() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
        enum Tagged {
            One {
                #[expect(dead_code, reason = "only its type matters")]
                inner: Inner,
            },
        }
        let at = |value| fault(typed::<Tagged>(&value));
        let unknown = json!({ "kind": "one", "inner": { "units": 1 }, "colour": 2 });
        assert_eq!(at(unknown).1, "unknown_field");
        assert_eq!(at(json!({ "kind": "one" })), ("/inner".into(), "required"));
        assert_eq!(at(json!({})), ("/kind".into(), "required"));
        assert_eq!(at(json!({ "kind": "two" })).1, "invalid_value");

        #[derive(Debug)]
        struct Odd;
        impl<'de> serde::Deserialize<'de> for Odd {
            fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
                Err(serde::de::Error::custom("missing field `units`"))
            }
        }
        let odd = fault(typed::<Odd>(&json!({})));
        assert_eq!(odd, (String::new(), "invalid_value"));
    }

    /// serde reads the members of such an enum from a copy, which [`Strict`] does not see.
    #[test]
    fn a_document_is_refused_where_serde_reads_another_shape_than_it_writes() {
        #[derive(Debug, serde::Serialize, serde::Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        enum Tagged {
            One { inner: Pair },
        }
        #[derive(Debug, serde::Serialize, serde::Deserialize)]
        struct Pair {
            a: u8,
        }
        let wrong = json!({ "kind": "one", "inner": [3] });
        assert!(typed::<Tagged>(&wrong).is_ok());
        assert_eq!(
            fault(Document::<Tagged>::read(wrong)),
            ("/inner".into(), "invalid_value")
        );
        let right = json!({ "kind": "one", "inner": { "a": 3 } });
        let (Tagged::One { inner }, raw) = Document::read(right.clone()).unwrap().into_parts();
        assert_eq!((inner.a, raw), (3, right));
    }

    #[test]
    fn a_stored_spec_is_read_as_before_unless_it_is_an_array() {
        let read = |spec| stored_spec::<std::collections::BTreeMap<String, Inner>>(&spec);
        assert!(read(json!({ "a": [1] })).is_ok());
        let why = read(json!({ "a": ["a secret"] })).unwrap_err();
        assert_eq!(why, "wrong at /spec/a/0");
        for spec in [json!(["a secret"]), json!(null)] {
            assert_eq!(read(spec).unwrap_err(), "the spec is no object");
        }
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
