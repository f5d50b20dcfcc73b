//! Conversion between an object of the API and a resource's attributes.

use rmpv::Value;
use serde_json::{Value as Json, json};

use crate::kinds::Kind;
use crate::schema;
use crate::value::{Attributes, from_json, get, in_words_of, text, to_json};

/// Annotation with the `secret_version`, so an import can read the version.
const SECRET_VERSION: &str = "terraform/secret-version";

/// Returns the request body for the API: the client-owned part of an object. The `secret` comes
/// from the configuration, the only place with the secret.
pub(super) fn draft(kind: &Kind, attributes: &Attributes, config: Option<&Attributes>) -> Json {
    let part =
        |name: &str| to_json(kind.part(name), get(attributes, name)).unwrap_or_else(|| json!({}));
    let mut spec = part("spec");
    if !kind.labelled() {
        return json!({ "spec": spec });
    }
    let mut annotations = part("annotations");
    if kind.takes_secret() {
        if let Some(secret) = config
            .map(|config| text(config, "secret"))
            .filter(|secret| !secret.is_empty())
        {
            spec["secret"] = secret.into();
        }
        let version = text(attributes, "secret_version");
        if !version.is_empty() {
            annotations[SECRET_VERSION] = version.into();
        }
    }
    json!({ "labels": part("labels"), "annotations": annotations, "spec": spec })
}

/// Returns whether the object equals the draft, as far as the server shows the content.
pub(super) fn is_as_drafted(object: &Json, draft: &Json) -> bool {
    let mut draft = draft.clone();
    if let Some(spec) = draft["spec"].as_object_mut() {
        spec.remove("secret");
    }
    let parts = draft.as_object().into_iter().flatten();
    parts
        .into_iter()
        .all(|(part, wanted)| without_nulls(&object[part.as_str()]) == *wanted)
}

fn without_nulls(json: &Json) -> Json {
    match json {
        Json::Object(members) => {
            let kept = members.iter().filter(|(_, value)| !value.is_null());
            Json::Object(
                kept.map(|(name, value)| (name.clone(), without_nulls(value)))
                    .collect(),
            )
        }
        Json::Array(items) => Json::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// Returns the resource's attributes for an object. A value written in Terraform keeps its notation
/// if the server's value is equal.
pub(super) fn state(kind: &Kind, written: &Attributes, object: &Json, ready: bool) -> Attributes {
    let mut object = object.clone();
    let version = object["annotations"]
        .as_object_mut()
        .and_then(|annotations| annotations.remove(SECRET_VERSION));
    let block = schema::resource(kind).block.unwrap_or_default();
    let attribute = |name: &str| match (name, kind.shape().member(name)) {
        ("labels" | "annotations" | "spec", Some(member)) => {
            let (written, answered) = (get(written, name), &object[name]);
            match written.is_nil() && answered.as_object().is_some_and(serde_json::Map::is_empty) {
                true => Value::Nil,
                false => in_words_of(written, &member.of, answered),
            }
        }
        (_, Some(member)) => from_json(&member.of, &object[name]),
        ("secret_version", None) => version
            .as_ref()
            .and_then(Json::as_str)
            .map_or(Value::Nil, Value::from),
        ("ready", None) => Value::from(ready),
        ("erase_now", None) => get(written, name).clone(),
        // Write-only.
        (_, None) => Value::Nil,
    };
    block
        .attributes
        .iter()
        .map(|known| (known.name.clone(), attribute(&known.name)))
        .collect()
}
