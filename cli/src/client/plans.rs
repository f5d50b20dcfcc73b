//! A plan as a person reads it, and their word that it may be done.

use std::io::Write as _;

use muster_api::plans::{Plan, PlannedObject};

use super::output::{Rows, clean};

/// A line for each object.
pub(super) fn table(plan: &Plan) -> Rows<6> {
    let row = |object: &PlannedObject| {
        let pointers: Vec<&str> = object.diff.iter().map(|difference| difference.pointer.as_str()).collect();
        let blockers: Vec<String> =
            object.blockers.iter().map(|fault| format!("{} {}", fault.pointer, fault.detail)).collect();
        [
            clean(&object.change),
            clean(&format!("{} {}", object.kind, object.name)),
            cost(object),
            object.node_count.to_string(),
            clean(blockers.join("; ").trim()),
            clean(&pointers.join(" ")),
        ]
    };
    let rows = plan.objects.iter().map(row).collect();
    Rows { headings: ["CHANGE", "OBJECT", "EFFECT", "NODES", "BLOCKED", "DIFFERS"], rows, wide_from: 5 }
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
        println!("{} {} {}: {}", clean(&object.change), object.kind, clean(&object.name), cost(object));
        for difference in &object.diff {
            println!("    {}", clean(&difference.pointer));
        }
        if object.node_count > 0 {
            println!("    {} nodes: {}", object.node_count, clean(&object.nodes.join(" ")));
        }
        for fault in &object.blockers {
            println!("    blocked: {} {}", clean(&fault.pointer), clean(&fault.detail));
        }
    }
    if blocked > 0 {
        anyhow::bail!("{blocked} of {} objects cannot be written; nothing was", plan.objects.len());
    }
    print!("Write {} objects? [y/N] ", changing.len());
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
