//! Prints plans for people, and asks for confirmation.

use muster_api::client::ClientError;
use muster_api::nodes::NodePlan;
use muster_api::plans::{Desired, MakePlan, NodesFinding, Plan, PlannedObject, ReleaseLimit};
use serde_json::{Value, json};

use super::asking;
use super::output::{Column, Form, clean};
use super::session::Session;
use crate::stack::lint;

/// A line per object.
pub(super) const COLUMNS: &[Column] = &[
    Column::new("CHANGE", "/change", Form::Text),
    Column::new("KIND", "/kind", Form::Text),
    Column::new("NAME", "/name", Form::Text),
    Column::new(
        "EFFECT",
        "",
        Form::By(|object, _| read(object).map(|object| cost(&object)).unwrap_or_default()),
    ),
    Column::new("NODES", "/node_count", Form::Text),
    Column::new(
        "BLOCKED",
        "",
        Form::By(|object, _| {
            read(object)
                .map(|object| blocked(&object))
                .unwrap_or_default()
        }),
    ),
    Column::wide(
        "DIFFERS",
        "",
        Form::By(|object, _| {
            read(object)
                .map(|object| differs(&object))
                .unwrap_or_default()
        }),
    ),
];

fn read(object: &Value) -> Option<PlannedObject> {
    serde_json::from_value(object.clone()).ok()
}

fn blocked(object: &PlannedObject) -> String {
    let blockers = object
        .blockers
        .iter()
        .map(|fault| format!("{} {}", fault.pointer, fault.detail));
    blockers.collect::<Vec<_>>().join("; ").trim().to_owned()
}

fn differs(object: &PlannedObject) -> String {
    object
        .diff
        .iter()
        .map(|difference| difference.pointer.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the effect, and whether the effect is automatic.
fn cost(object: &PlannedObject) -> String {
    match object.effect.as_str() {
        "none" => "none".into(),
        effect if object.begins => format!("{} now", clean(effect)),
        effect if is_revised(object) => {
            format!(
                "{} when the revision is assigned and installed",
                clean(effect)
            )
        }
        effect => format!("{} when installed again", clean(effect)),
    }
}

/// Returns whether the object's content reaches nodes by revisions of pools.
fn is_revised(object: &PlannedObject) -> bool {
    let kinds = ["image", "stack", "network_profile", "pool"];
    kinds.contains(&object.kind.as_str())
}

/// Prints the effects of an action on a node.
pub(super) fn show(session: &Session, plan: &NodePlan) -> anyhow::Result<()> {
    session.output.print_lines(plan, || {
        let effect = format!("effect: {}", plan.effect);
        let changes = plan.changes.iter().map(|change| format!("  {change}"));
        let blockers = plan
            .blockers
            .iter()
            .map(|blocker| format!("blocked: {blocker}"));
        [effect]
            .into_iter()
            .chain(changes)
            .chain(blockers)
            .collect()
    })
}

/// Prints the effects on several nodes, a line each.
pub(super) fn show_all(session: &Session, plans: &[(&str, NodePlan)]) -> anyhow::Result<()> {
    let items: Vec<Value> = plans
        .iter()
        .map(|(node, plan)| json!({ "name": node, "plan": plan }))
        .collect();
    session.output.list(&items, OF_NODES, session.clock.now())
}

const OF_NODES: &[Column] = &[
    Column::new("NODE", "/name", Form::Text),
    Column::new("EFFECT", "/plan/effect", Form::Text),
    Column::new("CHANGE", "/plan/changes/0", Form::Text),
    Column::new("BLOCKED", "/plan/blockers/0", Form::Text),
];

/// Prints the effects of writing or removing an object.
pub(super) async fn tell(session: &Session, object: Desired) -> anyhow::Result<()> {
    let plan = session
        .client
        .plan(&MakePlan {
            objects: vec![object],
        })
        .await?;
    session
        .output
        .print_lines(&plan, || plan.objects.iter().flat_map(lines).collect())
}

fn lines(object: &PlannedObject) -> Vec<String> {
    let mut lines = vec![format!("effect: {}", cost(object))];
    let mut named = |what: &str, names: &[String]| {
        if !names.is_empty() {
            lines.push(format!("  {what}: {}", names.join(" ")));
        }
    };
    named("nodes", &object.nodes);
    named("gates", &object.gates);
    let limit = |limit: &ReleaseLimit| {
        format!(
            "  {}: {} of {} releases in an hour are left, this one counted",
            limit.of, limit.left, limit.per_hour
        )
    };
    lines.extend(object.limits.iter().map(limit));
    lines.extend(object.findings.iter().map(finding));
    lines.extend(
        object
            .blockers
            .iter()
            .map(|fault| format!("blocked: {} {}", fault.pointer, fault.detail)),
    );
    lines
}

/// A rule's sentence, with its nodes.
fn finding(found: &NodesFinding) -> String {
    format!(
        "{} {} on {}",
        lint::word(found.finding.level),
        found.finding,
        found.nodes.join(" ")
    )
}

/// Checks that all objects can be written.
///
/// # Errors
/// With the reasons on standard error, if an object cannot be written.
pub(super) fn possible(plan: &Plan) -> anyhow::Result<()> {
    let blocked: Vec<&PlannedObject> = plan
        .objects
        .iter()
        .filter(|object| !object.blockers.is_empty())
        .collect();
    for object in &blocked {
        eprintln!("{} {} cannot be written", object.kind, clean(&object.name));
        for fault in &object.blockers {
            eprintln!("    {} {}", clean(&fault.pointer), clean(&fault.detail));
        }
    }
    if !blocked.is_empty() {
        let all = plan.objects.len();
        let why = format!(
            "{} of {all} objects cannot be written; no object was written",
            blocked.len()
        );
        return Err(ClientError::Usage(why).into());
    }
    Ok(())
}

/// Returns whether the person at the terminal confirms. A plan without changes needs no
/// confirmation.
pub(super) fn agreed(plan: &Plan) -> anyhow::Result<bool> {
    match told(plan) {
        0 => Ok(true),
        changing => asking::agreed(&format!("Write {changing} objects?"), false),
    }
}

/// Prints the changes and the number of objects to standard error.
pub(super) fn told(plan: &Plan) -> usize {
    let changing: Vec<&PlannedObject> = plan
        .objects
        .iter()
        .filter(|object| object.change != "none")
        .collect();
    for object in &changing {
        eprintln!(
            "{} {} {}: {}",
            clean(&object.change),
            object.kind,
            clean(&object.name),
            cost(object)
        );
        for difference in &object.diff {
            eprintln!("    {}", clean(&difference.pointer));
        }
        if object.node_count > 0 {
            eprintln!(
                "    {} nodes: {}",
                object.node_count,
                clean(&object.nodes.join(" "))
            );
        }
        for found in &object.findings {
            eprintln!("    {}", clean(&finding(found)));
        }
    }
    changing.len()
}
