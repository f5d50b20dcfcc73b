//! `muster apply`: applies documents from files, in the order of their references.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use muster_api::claims::ClaimSpec;
use muster_api::client::{ClientError, Precondition};
use muster_api::kind;
use muster_api::object::Labels;
use muster_api::plans::{Desired, MakePlan, Plan};
use serde::Deserialize;
use serde_json::{Value, json};

use super::files::{self, Held};
use super::plans;
use super::session::Session;

/// The largest number of objects in a plan of the server. Larger sets are written without a plan.
const PLANNED: usize = 1000;

/// The documents to apply.
#[derive(Args, Debug)]
pub(crate) struct ApplyArgs {
    /// Files with documents. `-` is standard input, NAME.toml a suite, hardware profile or stack,
    /// `shipped:NAME` a document shipped with Muster
    #[arg(short, long = "file", required = true)]
    files: Vec<PathBuf>,
    /// Show the effects without writing, as `muster plan`
    #[arg(long, visible_alias = "dry-run")]
    plan: bool,
    /// Skip the confirmation. Scripts without a terminal are never asked
    #[arg(short, long)]
    yes: bool,
}

/// A document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    kind: String,
    name: String,
    #[serde(default)]
    labels: Option<Value>,
    #[serde(default)]
    annotations: Option<Value>,
    spec: Value,
}

pub(super) async fn run(session: &Session, args: ApplyArgs) -> anyhow::Result<()> {
    let mut documents = Vec::new();
    for file in &args.files {
        match files::read(file)? {
            Held::Yaml(text) => {
                documents.extend(parse(&text).with_context(|| file.display().to_string())?)
            }
            Held::Toml { members, stem } => {
                let document = document(files::document(members, stem)?);
                documents.push(document.with_context(|| file.display().to_string())?);
            }
        }
    }
    let mut ordered = Vec::new();
    for document in documents {
        let word = document.kind.replace('-', "_");
        let order = kind::COLLECTIONS.iter().position(|(kind, _)| *kind == word);
        let order =
            order.ok_or_else(|| ClientError::Usage(format!("{:?} is no kind", document.kind)))?;
        ordered.push((order, document));
    }
    ordered.sort_by_key(|(order, _)| *order);
    let asked = !args.yes && std::io::stdin().is_terminal();
    if args.plan || asked || ordered.len() <= PLANNED {
        let plan = planned(session, &ordered).await?;
        if args.plan {
            return match session.output.is_table() {
                true => session
                    .output
                    .list_of(&plan.objects, plans::COLUMNS, session.clock.now()),
                false => session.output.print_lines(&plan, Vec::new),
            };
        }
        plans::possible(&plan)?;
        if asked && !plans::agreed(&plan)? {
            return Ok(());
        }
    }
    write(session, ordered).await
}

async fn write(session: &Session, ordered: Vec<(usize, Document)>) -> anyhow::Result<()> {
    let mut done = Vec::new();
    for (order, document) in ordered {
        let (kind, collection) = kind::COLLECTIONS[order];
        let told = apply(session, collection, &document).await;
        let verb = told.with_context(|| format!("{kind} {}", document.name))?;
        match session.output.is_table() {
            true => print_line!("{kind} {} {verb}", document.name),
            false => done.push(json!({ "kind": kind, "name": document.name, "done": verb })),
        }
    }
    match session.output.is_table() {
        true => Ok(()),
        false => session.output.list(&done, &[], session.clock.now()),
    }
}

/// The documents to plan.
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// Files with documents. `-` is standard input, NAME.toml a suite, hardware profile or stack,
    /// `shipped:NAME` a document shipped with Muster
    #[arg(short, long = "file", required = true)]
    files: Vec<PathBuf>,
}

/// `muster plan`: like [`run`], without writing.
///
/// # Errors
/// As [`run`].
pub(super) async fn plan(session: &Session, args: PlanArgs) -> anyhow::Result<()> {
    run(
        session,
        ApplyArgs {
            files: args.files,
            plan: true,
            yes: false,
        },
    )
    .await
}

async fn planned(session: &Session, ordered: &[(usize, Document)]) -> anyhow::Result<Plan> {
    let mut objects = Vec::with_capacity(ordered.len());
    for (order, document) in ordered {
        let texts = |value: &Option<Value>| match value {
            None | Some(Value::Null) => Ok(Labels::new()),
            Some(value) => Labels::deserialize(value),
        };
        let labels =
            texts(&document.labels).with_context(|| format!("the labels of {}", document.name))?;
        let annotations = texts(&document.annotations)
            .with_context(|| format!("the annotations of {}", document.name))?;
        let (kind, _) = kind::COLLECTIONS[*order];
        let (name, spec) = (document.name.clone(), document.spec.clone());
        objects.push(Desired {
            kind: kind.into(),
            name,
            labels,
            annotations,
            spec,
            ..Desired::default()
        });
    }
    Ok(session.client.plan(&MakePlan { objects }).await?)
}

/// Accepts only JSON objects, because serde alone would also accept an array of the values.
fn document(value: Value) -> anyhow::Result<Document> {
    anyhow::ensure!(
        value.is_object(),
        "a document is an object with kind, name and spec"
    );
    Ok(serde_json::from_value(value)?)
}

/// YAML is a superset of JSON, so a single parser reads both.
fn parse(text: &str) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for (at, part) in serde_yaml_ng::Deserializer::from_str(text).enumerate() {
        let value = Value::deserialize(part).with_context(|| format!("document {}", at + 1))?;
        match value {
            Value::Null => {}
            Value::Array(items) => {
                for item in items {
                    documents.push(document(item).with_context(|| format!("document {}", at + 1))?);
                }
            }
            one => {
                documents.push(document(one).with_context(|| format!("document {}", at + 1))?);
            }
        }
    }
    Ok(documents)
}

async fn apply(
    session: &Session,
    collection: &str,
    document: &Document,
) -> anyhow::Result<&'static str> {
    let path = [collection, document.name.as_str()];
    let object = match session.client.get_value(&path, &[]).await {
        Ok(object) => Some(object),
        Err(error) if error.status() == Some(404) => None,
        Err(error) => return Err(error.into()),
    };
    let before = object
        .as_ref()
        .and_then(|object| object["generation"].as_i64());
    let name = &document.name;
    if collection == "claims" {
        if let (Some(object), Some(before)) = (&object, before) {
            return change_claim(session, document, &object["spec"], before).await;
        }
        session
            .client
            .post_value(&["claims"], &json!({ "name": name, "spec": document.spec }))
            .await?;
        return Ok("created");
    }
    let mut body = json!({ "spec": document.spec });
    for (member, value) in [
        ("labels", &document.labels),
        ("annotations", &document.annotations),
    ] {
        if let Some(value) = value {
            body[member] = value.clone();
        }
    }
    let precondition = before.map_or(Precondition::Absent, Precondition::Generation);
    let after = session.client.put_value(&path, &body, precondition).await?;
    let verb = match (before, after["generation"].as_i64()) {
        (None, _) => "created",
        (before, after) if before == after => "unchanged",
        _ => "changed",
    };
    Ok(verb)
}

/// The changeable part of a claim. A member missing in the document is removed.
async fn change_claim(
    session: &Session,
    document: &Document,
    was: &Value,
    generation: i64,
) -> anyhow::Result<&'static str> {
    if ["pool", "node", "selector"]
        .iter()
        .any(|fixed| was[*fixed] != document.spec[*fixed])
    {
        anyhow::bail!(
            "of a claim, hold and wait_for can be changed: for all else, release it and make another"
        );
    }
    let patch =
        json!({ "spec": { "hold": document.spec["hold"], "wait_for": document.spec["wait_for"] } });
    let precondition = Precondition::Generation(generation);
    let after = session
        .client
        .patch::<ClaimSpec>(&document.name, &patch, precondition)
        .await?;
    Ok(if after.generation == generation {
        "unchanged"
    } else {
        "changed"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_from_yaml_and_json() {
        let yaml = "kind: site\nname: lab\nspec: {}\n---\n---\nkind: rack\nname: r1\nlabels: {row: a}\nspec:\n  units: 42\n";
        let names = |text| {
            parse(text)
                .unwrap()
                .iter()
                .map(|document| document.name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(yaml), ["lab", "r1"]);
        assert_eq!(
            names(
                r#"[{"kind": "site", "name": "a", "spec": {}}, {"kind": "site", "name": "b", "spec": {}}]"#
            ),
            ["a", "b"]
        );
        assert!(parse("kind: site\nname: lab\ncolour: red\nspec: {}").is_err());
        assert!(parse("kind: [").is_err());
        for list in [
            "[[rack, r1, {}, {}, {}]]",
            "- - rack\n  - r1\n  - {}\n  - {}\n  - {}",
            "rack",
        ] {
            let refused = parse(list).unwrap_err();
            assert!(format!("{refused:#}").contains("is an object"), "{list}");
        }
    }
}
