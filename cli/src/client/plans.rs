//! A plan as a person reads it, and their word that it may be done.

use muster_api::plans::{Plan, PlannedObject};
use serde_json::Value;

use super::asking;
use super::output::{Column, Form, clean};

/// A line for each object.
pub(super) const COLUMNS: &[Column] = &[
    Column::new("CHANGE", "/change", Form::Text),
    Column::new("KIND", "/kind", Form::Text),
    Column::new("NAME", "/name", Form::Text),
    Column::new("EFFECT", "", Form::By(|object, _| read(object).map(|object| cost(&object)).unwrap_or_default())),
    Column::new("NODES", "/node_count", Form::Text),
    Column::new("BLOCKED", "", Form::By(|object, _| read(object).map(|object| blocked(&object)).unwrap_or_default())),
    Column::wide("DIFFERS", "", Form::By(|object, _| read(object).map(|object| differs(&object)).unwrap_or_default())),
];

fn read(object: &Value) -> Option<PlannedObject> {
    serde_json::from_value(object.clone()).ok()
}

fn blocked(object: &PlannedObject) -> String {
    let blockers = object.blockers.iter().map(|fault| format!("{} {}", fault.pointer, fault.detail));
    blockers.collect::<Vec<_>>().join("; ").trim().to_owned()
}

fn differs(object: &PlannedObject) -> String {
    object.diff.iter().map(|difference| difference.pointer.as_str()).collect::<Vec<_>>().join(" ")
}

/// The effect, and whether it comes by itself.
fn cost(object: &PlannedObject) -> String {
    match object.effect.as_str() {
        "none" => "none".into(),
        effect if object.begins => format!("{} now", clean(effect)),
        effect => format!("{} when installed again", clean(effect)),
    }
}

/// Whether whoever sits at the terminal agrees to it; what changes nothing needs no word.
pub(super) fn agreed(plan: &Plan) -> anyhow::Result<bool> {
    let blocked = plan.objects.iter().filter(|object| !object.blockers.is_empty()).count();
    let changing: Vec<&PlannedObject> = plan.objects.iter().filter(|object| object.change != "none").collect();
    if changing.is_empty() && blocked == 0 {
        return Ok(true);
    }
    for object in plan.objects.iter().filter(|object| object.change != "none" || !object.blockers.is_empty()) {
        eprintln!("{} {} {}: {}", clean(&object.change), object.kind, clean(&object.name), cost(object));
        for difference in &object.diff {
            eprintln!("    {}", clean(&difference.pointer));
        }
        if object.node_count > 0 {
            eprintln!("    {} nodes: {}", object.node_count, clean(&object.nodes.join(" ")));
        }
        for fault in &object.blockers {
            eprintln!("    blocked: {} {}", clean(&fault.pointer), clean(&fault.detail));
        }
    }
    if blocked > 0 {
        anyhow::bail!("{blocked} of {} objects cannot be written; nothing was", plan.objects.len());
    }
    asking::agreed(&format!("Write {} objects?", changing.len()), false)
}
