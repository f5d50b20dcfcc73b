//! Types read from the API's OpenAPI description. Every field of the API becomes an attribute with
//! the same name and the same description.

use std::sync::LazyLock;

use serde_json::Value;

/// The API description of the server. A test of the server compares the file with the code.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../docs/openapi.json"))
        .expect("the committed description is JSON")
});
/// Deeper than any schema of the API. Only a recursive description exceeds the limit.
const DEEPEST: usize = 24;

/// Type of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    Bool,
    Number,
    Text,
    /// A number or a text. Terraform has no such type, so the attribute is a string.
    NumberOrText,
    /// Any value, as JSON text.
    Json,
    List(Box<Type>),
    Map(Box<Type>),
    Object(Vec<Member>),
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) required: bool,
    /// Sent to the API and never returned.
    pub(crate) write_only: bool,
    pub(crate) of: Type,
}

impl Member {
    /// Creates a required member.
    pub(crate) fn new(name: &str, about: &str, of: Type) -> Self {
        Self {
            name: name.into(),
            about: about.into(),
            required: true,
            write_only: false,
            of,
        }
    }
}

impl Type {
    /// Returns the members of an object, or an empty slice for other types.
    pub(crate) fn members(&self) -> &[Member] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    /// Returns the member with the name.
    pub(crate) fn member(&self, name: &str) -> Option<&Member> {
        self.members().iter().find(|member| member.name == name)
    }
}

/// Returns a schema of the API by name, such as `NodeSpec`.
pub(crate) fn schema(name: &str) -> Type {
    read(named(name), 0)
}

fn named(name: &str) -> &'static Value {
    &DOCUMENT["components"]["schemas"][name]
}

fn read(schema: &Value, depth: usize) -> Type {
    assert!(depth < DEEPEST, "the API's description refers to itself");
    if let Some(reference) = schema["$ref"].as_str() {
        return read(
            named(reference.rsplit('/').next().unwrap_or_default()),
            depth + 1,
        );
    }
    if let Some(parts) = schema["allOf"].as_array() {
        return Type::Object(
            parts
                .iter()
                .flat_map(|part| members(&read(part, depth + 1)))
                .collect(),
        );
    }
    if let Some(variants) = schema["oneOf"].as_array() {
        let variants = variants.iter().filter(|variant| variant["type"] != "null");
        return one_of(variants.map(|variant| read(variant, depth + 1)).collect());
    }
    match kind(schema) {
        Some("boolean") => Type::Bool,
        Some("integer" | "number") => Type::Number,
        Some("string") => Type::Text,
        Some("array") => Type::List(Box::new(read(&schema["items"], depth + 1))),
        Some("object") if schema["additionalProperties"].is_object() => {
            Type::Map(Box::new(read(&schema["additionalProperties"], depth + 1)))
        }
        Some("object") => Type::Object(properties(schema, depth)),
        _ => Type::Json,
    }
}

/// Returns the type's word. `["string", "null"]` is an optional text.
fn kind(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::Array(words) => words
            .iter()
            .filter_map(Value::as_str)
            .find(|word| *word != "null"),
        word => word.as_str(),
    }
}

fn properties(schema: &Value, depth: usize) -> Vec<Member> {
    let required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|names| names.iter().any(|n| n == name))
    };
    let empty = serde_json::Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let member = |(name, property): (&String, &Value)| Member {
        name: name.clone(),
        about: about(property),
        required: required(name),
        write_only: property["writeOnly"] == true,
        of: read(property, depth + 1),
    };
    properties.iter().map(member).collect()
}

/// Returns the description of a member. For a reference, the description beside the reference is
/// used.
fn about(property: &Value) -> String {
    let beside = property["oneOf"]
        .as_array()
        .and_then(|variants| variants[0]["description"].as_str());
    property["description"]
        .as_str()
        .or(beside)
        .unwrap_or_default()
        .to_owned()
}

fn members(of: &Type) -> Vec<Member> {
    of.members().to_vec()
}

/// Merges the variants. Object variants become a single object with the members of all variants. A
/// member is required if every variant requires the member, and the server checks the other rules.
fn one_of(mut variants: Vec<Type>) -> Type {
    if variants.len() == 1 {
        return variants.remove(0);
    }
    if variants.iter().all(|variant| *variant == Type::Text) {
        return Type::Text;
    }
    if variants
        .iter()
        .all(|variant| matches!(variant, Type::Text | Type::Number))
    {
        return Type::NumberOrText;
    }
    if !variants
        .iter()
        .all(|variant| matches!(variant, Type::Object(_)))
    {
        return Type::Json;
    }
    let mut all: Vec<Member> = Vec::new();
    for member in variants.iter().flat_map(Type::members) {
        let everywhere = variants.iter().all(|variant| {
            variant
                .member(&member.name)
                .is_some_and(|same| same.required)
        });
        if !all.iter().any(|known| known.name == member.name) {
            all.push(Member {
                required: everywhere,
                ..member.clone()
            });
        }
    }
    Type::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variants_of_an_enum_become_the_members_of_one_object() {
        let node = schema("NodeSpec");
        let power = node.member("power").unwrap();
        assert!(power.required);
        let names: Vec<(&str, bool)> = power
            .of
            .members()
            .iter()
            .map(|m| (m.name.as_str(), m.required))
            .collect();
        assert_eq!(
            names,
            [("redfish", false), ("ipmi", false), ("manual", false)]
        );
        assert_eq!(node.member("rack").unwrap().of, Type::Text);
        assert!(!node.member("rack").unwrap().required);
    }

    #[test]
    fn a_limit_is_a_text_and_a_secret_goes_only_in() {
        assert_eq!(
            schema("Criterion").member("limit").unwrap().of,
            Type::NumberOrText
        );
        assert!(
            schema("CredentialSpec")
                .member("secret")
                .unwrap()
                .write_only
        );
        assert!(schema("ClusterSpec").member("kind").unwrap().required);
    }
}
