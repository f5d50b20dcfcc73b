//! `muster stack` subcommands with a server: publish, plan, drift, and show and diff of published
//! stacks.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use muster_api::client::{ClientError, Precondition};
use muster_api::nodes::NodeSpec;
use muster_api::object::Labels;
use muster_api::plans::{Desired, MakePlan};
use muster_api::stacks::NodeDrift;
use muster_core::stacks::StackSpec;
use muster_core::stacks::diff::Class;
use muster_core::stacks::rules::Level;
use muster_core::values::Digest;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::output::{Column, Form};
use super::session::Session;
use super::{plans, progress};
use crate::stack::{self, DriftArgs, PlanArgs, PublishArgs, StackVerb, lint, show};

/// A line per node.
const COLUMNS: &[Column] = &[
    Column::new("NODE", "/node", Form::Text),
    Column::new("STACK", "/stack", Form::Text),
    Column::new(
        "DIFFERS",
        "",
        Form::By(|drift, _| drift["items"].as_array().map_or(0, Vec::len).to_string()),
    ),
    Column::new("MENDING COSTS", "/class", Form::Text),
    Column::new("SEEN", "/observed_at", Form::Age),
    Column::new("LOCK", "/lock", Form::Digest),
    Column::new("CURRENT", "/current", Form::Text),
];

pub(super) async fn run(session: &Session, verb: StackVerb) -> anyhow::Result<()> {
    match verb {
        StackVerb::Show(args) => {
            let stack = find(session, &args.stack).await?;
            show::print_summary(&stack, session.clock.now(), session.output)
        }
        StackVerb::Diff(args) => {
            let before = find(session, &args.before).await?;
            let after = find(session, &args.after).await?;
            lint::show_diff(&before, &after, session.output)
        }
        StackVerb::Publish(args) => publish(session, &args).await,
        StackVerb::Plan(args) => plan(session, &args).await,
        StackVerb::Drift(args) => drift(session, &args).await,
        verb @ (StackVerb::Lint(_) | StackVerb::Lock(_)) => stack::run(verb, session.output).await,
    }
}

/// A stack from its file, or a published stack.
async fn find(session: &Session, given: &str) -> anyhow::Result<StackSpec> {
    match stack::is_file(given) {
        true => stack::parse(Path::new(given)),
        false => Ok(session.client.get::<StackSpec>(given).await?.spec),
    }
}

/// The document of the bundle.
#[derive(serde::Deserialize)]
struct Bundle {
    files: BTreeMap<String, Digest>,
}

/// Blobs are uploaded first, so a published stack is installable.
async fn publish(session: &Session, args: &PublishArgs) -> anyhow::Result<()> {
    let spec = stack::parse(&args.stack)?;
    let unlocked = || {
        ClientError::Usage(
            "the stack has no lock or no bundle; make them with `muster stack lock`".into(),
        )
    };
    spec.lock.as_ref().ok_or_else(unlocked)?;
    let bundle = spec.bundle.ok_or_else(unlocked)?;
    let blob = |digest: &Digest| args.blobs.join("sha256").join(digest.hex());
    let text = std::fs::read(blob(&bundle))
        .with_context(|| format!("{}: the bundle", args.blobs.display()))?;
    let files: Bundle = serde_json::from_slice(&text).context("the bundle's document")?;
    let path = ["stacks", args.name.as_str()];
    let current = match session.client.get_value(&path, &[]).await {
        Ok(object) => Some(object),
        Err(error) if error.status() == Some(404) => None,
        Err(error) => return Err(error.into()),
    };
    let mut body = json!({ "spec": spec });
    if let Some(object) = &current {
        (body["labels"], body["annotations"]) =
            (object["labels"].clone(), object["annotations"].clone());
    }
    // Every pool naming the stack gets a revision, so the nodes and the cost are shown first.
    let object = Desired {
        kind: "stack".into(),
        name: args.name.clone(),
        spec: body["spec"].clone(),
        ..Desired::default()
    };
    let plan = session
        .client
        .plan(&MakePlan {
            objects: vec![labelled(object, &body)?],
        })
        .await?;
    // Checked before gigabytes are uploaded.
    plans::possible(&plan)?;
    if args.dry_run || args.yes {
        plans::told(&plan);
    } else if !plans::agreed(&plan)? {
        session.output.note("the stack was not published");
        return Ok(());
    }
    if !args.dry_run {
        for digest in files.files.values().chain([&bundle]) {
            session.client.upload_blob(*digest, &blob(digest)).await?;
        }
    }
    let precondition = current
        .and_then(|object| object["generation"].as_i64())
        .map_or(Precondition::Absent, Precondition::Generation);
    let query: Vec<(&str, &str)> = args
        .dry_run
        .then_some(("dry_run", "true"))
        .into_iter()
        .collect();
    let written = session
        .client
        .put_value_with(&path, &query, &body, precondition)
        .await?;
    session.output.print_lines(&written, || {
        describe_published(&args.name, &spec.version, args.dry_run)
    })
}

fn describe_published(name: &str, version: &str, dry_run: bool) -> Vec<String> {
    match dry_run {
        true => vec![format!("stack {name} {version} would be published")],
        false => vec![
            format!("stack {name} {version} published"),
            "no node changes: muster pool revisions POOL shows the new revision".to_owned(),
        ],
    }
}

/// With the existing labels and annotations.
fn labelled(object: Desired, body: &Value) -> anyhow::Result<Desired> {
    let texts = |member: &str| match &body[member] {
        Value::Null => Ok(Labels::new()),
        texts => Labels::deserialize(texts),
    };
    Ok(Desired {
        labels: texts("labels")?,
        annotations: texts("annotations")?,
        ..object
    })
}

/// Requests a comparison and waits for the result.
async fn look(session: &Session, node: &str, timeout: Duration) -> anyhow::Result<()> {
    let operation = session
        .client
        .node_action(node, "check-drift", None)
        .await?;
    progress::follow(session, &[operation.id], timeout)
        .await
        .map(drop)
}

async fn plan(session: &Session, args: &PlanArgs) -> anyhow::Result<()> {
    look(session, &args.node, args.timeout).await?;
    let drift = session.client.node_drift(&args.node).await?;
    session.output.print_lines(&drift, || lines(&drift))?;
    let refused: Vec<String> = drift
        .findings
        .iter()
        .filter(|finding| finding.level == Level::Refused)
        .map(ToString::to_string)
        .collect();
    match refused.is_empty() {
        true => Ok(()),
        false => Err(ClientError::Usage(format!(
            "the stack cannot go onto {}: {}",
            drift.node,
            refused.join("; ")
        ))
        .into()),
    }
}

async fn drift(session: &Session, args: &DriftArgs) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for node in &args.nodes {
        if args.look {
            look(session, node, args.timeout).await?;
        }
        found.push(session.client.node_drift(node).await?);
    }
    if args.nodes.is_empty() {
        for node in session
            .client
            .list_all::<NodeSpec>(Some("state=in_service"))
            .await?
        {
            match session.client.node_drift(node.name.as_str()).await {
                Ok(drift) => found.push(drift),
                // Without a comparison the drift is unknown, and printed as unknown.
                Err(error) if error.status() == Some(404) => {
                    session
                        .output
                        .note(&format!("{}: never held against its stack", node.name));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    match found.as_slice() {
        [one] if !args.nodes.is_empty() => session.output.print_lines(one, || lines(one)),
        several => session
            .output
            .list_of(several, COLUMNS, session.clock.now()),
    }
}

fn lines(drift: &NodeDrift) -> Vec<String> {
    let stack = drift.stack.as_deref().unwrap_or("no stack");
    let mut lines = vec![format!(
        "{} against {stack}, lock {}, seen {}",
        drift.node, drift.lock, drift.observed_at
    )];
    if !drift.current {
        lines.push("the claim is assigned another lock by now: check the drift again".into());
    }
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".into());
    lines.extend(drift.items.iter().map(|item| {
        format!(
            "{:<16} {:<40} is {}, wanted {}",
            item.class.as_str(),
            item.item,
            shown(&item.found),
            shown(&item.wanted)
        )
    }));
    lines.push(match (drift.items.len(), drift.class) {
        (0, _) => format!("no difference in {} items", drift.checked),
        (many, Class::None) => format!(
            "{many} of {} items differ; a converge repairs them without a disturbance",
            drift.checked
        ),
        (many, class) => format!(
            "{many} of {} items differ; mending them costs: {}",
            drift.checked,
            class.as_str()
        ),
    });
    lines.extend(
        drift
            .findings
            .iter()
            .map(|finding| format!("{} {finding}", lint::word(finding.level))),
    );
    lines
}
