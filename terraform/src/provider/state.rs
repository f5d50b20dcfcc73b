//! An object as a resource's attributes, and back.

use rmpv::Value;
use serde_json::{Value as Json, json};

use crate::kinds::Kind;
use crate::schema;
use crate::value::{Attributes, from_json, get, in_words_of, text, to_json};

/// The annotation that keeps `secret_version`, so that an import knows it.
const SECRET_VERSION: &str = "terraform/secret-version";

/// What the API is sent: the client-owned part of an object. `secret` comes from the configuration, where alone it is.
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

/// Whether the object is what the draft asks for, as far as the server shows it.
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

/// The resource's attributes of an object; what Terraform wrote stays in its words where the server says the same.
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
