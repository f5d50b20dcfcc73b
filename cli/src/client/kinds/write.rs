//! `create`, `set`, `delete` of every declared kind.

use std::path::PathBuf;

use clap::Args;
use muster_api::client::{ClientError, Precondition};
use serde_json::{Map, Value, json};

use super::Noun;
use crate::client::files::{self, Held};
use crate::client::output::text;
use crate::client::{Session, asking};

/// The values of an object.
#[derive(Args, Debug)]
struct Content {
    /// File with the spec as YAML or JSON, or as TOML if the name is NAME.toml; `-` is standard
    /// input. A complete document {spec, labels, annotations} is
    /// accepted. `shipped:NAME` is a suite or hardware profile shipped with Muster
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Value of the spec as YAML, such as `units=42` or `power.kind=manual`. `null` removes a
    /// value. Repeatable
    #[arg(long, value_name = "PATH=VALUE")]
    spec: Vec<String>,
    /// Label `NAME=VALUE`; `NAME=` removes the label. Repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    label: Vec<String>,
    /// Annotation `NAME=VALUE`; `NAME=` removes the annotation. Repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    annotation: Vec<String>,
    /// Show the answer without writing
    #[arg(long)]
    dry_run: bool,
}

/// The object to create.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    name: String,
    #[command(flatten)]
    content: Content,
}

/// The values to write. Without --file, other values stay unchanged.
#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    name: String,
    #[command(flatten)]
    content: Content,
}

/// The object to remove.
#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Skip the confirmation. Scripts without a terminal are never asked
    #[arg(short, long)]
    yes: bool,
    /// Check the removal without removing
    #[arg(long, visible_alias = "plan")]
    dry_run: bool,
}

pub(super) async fn create(
    session: &Session,
    noun: &Noun,
    args: &CreateArgs,
) -> anyhow::Result<()> {
    let mut body = patch(&args.content)?;
    strip_nulls(&mut body);
    let path = [noun.collection, args.name.as_str()];
    let query = dry(args.content.dry_run);
    let written = session
        .client
        .put_value_with(&path, &query, &body, Precondition::Absent)
        .await?;
    told(
        session,
        noun,
        &written,
        if args.content.dry_run {
            "would be created"
        } else {
            "created"
        },
    )
}

pub(super) async fn set(session: &Session, noun: &Noun, args: &SetArgs) -> anyhow::Result<()> {
    let path = [noun.collection, args.name.as_str()];
    let query = dry(args.content.dry_run);
    let before = match session.client.get_value(&path, &[]).await {
        Ok(object) => object["generation"].as_i64(),
        Err(error) if error.status() == Some(404) => None,
        Err(error) => return Err(error.into()),
    };
    let mut body = patch(&args.content)?;
    let written = match (before, &args.content.file) {
        (Some(generation), None) => {
            session
                .client
                .patch_value(&path, &query, &body, Precondition::Generation(generation))
                .await?
        }
        (before, _) => {
            strip_nulls(&mut body);
            let precondition = before.map_or(Precondition::Absent, Precondition::Generation);
            session
                .client
                .put_value_with(&path, &query, &body, precondition)
                .await?
        }
    };
    let verb = match (before, written["generation"].as_i64()) {
        _ if args.content.dry_run => "would be written",
        (None, _) => "created",
        (before, after) if before == after => "unchanged",
        _ => "changed",
    };
    told(session, noun, &written, verb)
}

fn told(session: &Session, noun: &Noun, written: &Value, verb: &str) -> anyhow::Result<()> {
    session.output.print_lines(written, || {
        vec![format!("{} {} {verb}", noun.kind, text(&written["name"]))]
    })
}

fn dry(dry_run: bool) -> Vec<(&'static str, &'static str)> {
    dry_run.then_some(("dry_run", "true")).into_iter().collect()
}

/// Returns the given values as a merge patch.
fn patch(content: &Content) -> anyhow::Result<Value> {
    let mut body = match &content.file {
        None => json!({}),
        Some(file) => {
            let document: Value = match files::read(file)? {
                Held::Yaml(text) => serde_yaml_ng::from_str(&text)?,
                Held::Toml { members, .. } => Value::Object(members),
            };
            match document {
                Value::Object(members) if members.contains_key("spec") => {
                    let kept = |name: &str| matches!(name, "spec" | "labels" | "annotations");
                    Value::Object(members.into_iter().filter(|(name, _)| kept(name)).collect())
                }
                spec => json!({ "spec": spec }),
            }
        }
    };
    for assignment in &content.spec {
        let (path, value) = pair(assignment)?;
        let value =
            serde_yaml_ng::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        place(&mut body["spec"], path, value);
    }
    for (member, pairs) in [
        ("labels", &content.label),
        ("annotations", &content.annotation),
    ] {
        for assignment in pairs {
            let (name, value) = pair(assignment)?;
            let value = if value.is_empty() {
                Value::Null
            } else {
                Value::String(value.to_owned())
            };
            if body[member].is_null() {
                body[member] = Value::Object(Map::new());
            }
            body[member][name] = value;
        }
    }
    Ok(body)
}

fn pair(text: &str) -> Result<(&str, &str), ClientError> {
    text.split_once('=')
        .ok_or_else(|| ClientError::Usage(format!("{text:?} is not NAME=VALUE")))
}

/// Sets the value at a dotted path.
fn place(into: &mut Value, path: &str, value: Value) {
    let (first, rest) = path
        .split_once('.')
        .map_or((path, None), |(first, rest)| (first, Some(rest)));
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    match rest {
        None => into[first] = value,
        Some(rest) => place(&mut into[first], rest, value),
    }
}

/// A complete object has no values to remove.
fn strip_nulls(body: &mut Value) {
    for member in ["labels", "annotations"] {
        if let Some(members) = body[member].as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
    }
    if let Some(members) = body.as_object_mut() {
        members.retain(|_, value| !value.is_null());
        members.entry("spec").or_insert_with(|| json!({}));
    }
}

pub(super) async fn delete(session: &Session, noun: &Noun, args: DeleteArgs) -> anyhow::Result<()> {
    let question = format!("Remove {} {}?", noun.kind, args.names.join(", "));
    if !args.dry_run && !asking::agreed(&question, args.yes)? {
        return Ok(());
    }
    for name in &args.names {
        let path = [noun.collection, name.as_str()];
        let object = session.client.get_value(&path, &[]).await?;
        let generation = object["generation"].as_i64().unwrap_or_default();
        let answer = session
            .client
            .delete_value_with(&path, &dry(args.dry_run), generation)
            .await?;
        let verb = if args.dry_run {
            "could be removed"
        } else {
            "removed"
        };
        session.output.print_lines(&answer.unwrap_or(object), || {
            vec![format!("{} {name} {verb}", noun.kind)]
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(spec: &[&str], label: &[&str]) -> Content {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Content {
            file: None,
            spec: owned(spec),
            label: owned(label),
            annotation: Vec::new(),
            dry_run: false,
        }
    }

    #[test]
    fn what_is_named_becomes_a_merge_patch() {
        let body = patch(&content(
            &["units=42", "power.kind=manual", "rack=null", "site=lab"],
            &["gpu=h200", "old="],
        ));
        let wanted = json!({
            "spec": { "units": 42, "power": { "kind": "manual" }, "rack": null, "site": "lab" },
            "labels": { "gpu": "h200", "old": null },
        });
        assert_eq!(body.unwrap(), wanted);
        assert!(patch(&content(&["units"], &[])).is_err());
    }

    #[test]
    fn a_new_object_has_nothing_to_take_away() {
        let mut body = patch(&content(&[], &["gpu=h200", "old="])).unwrap();
        strip_nulls(&mut body);
        assert_eq!(body, json!({ "labels": { "gpu": "h200" }, "spec": {} }));
    }
}
