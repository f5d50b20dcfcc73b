//! The claim on a node, what its pool wants, and what the newest converge found.

use muster_core::stacks::{ConvergeReport, ItemOutcome};

use super::{Pair, pair};
use crate::db::pages::nodes::MachineRow;
use crate::http::nodes::view::NodeObject;
use crate::ui::format::{self, member};

const ITEMS: usize = 200;

pub(super) struct Stack {
    pub claim: String,
    pub pairs: Vec<Pair>,
    pub converged: Option<Converged>,
}

pub(super) struct Converged {
    pub told: String,
    pub items: Vec<Item>,
}

pub(super) struct Item {
    pub name: String,
    pub outcome: &'static str,
    pub before: String,
    pub after: String,
}

pub(super) fn of(node: &NodeObject, machine: &MachineRow, converged: Option<ConvergeReport>) -> Stack {
    let mut pairs = Vec::new();
    if let Some(pool) = &node.status.pool {
        pairs.push(pair("Pool", pool.clone()));
    }
    if let Some(spec) = &machine.pool_spec {
        for (name, of) in [("Image", "image"), ("Stack", "stack"), ("Suite", "suite"), ("Cluster", "cluster")] {
            pairs.push(pair(name, member(spec, of)));
        }
    }
    Stack { claim: node.status.claim.clone().unwrap_or_default(), pairs, converged: converged.map(report) }
}

fn report(report: ConvergeReport) -> Converged {
    let changed: Vec<_> = report.items.iter().filter(|item| item.outcome != ItemOutcome::Unchanged).collect();
    let reboot = match report.reboot_for.len() {
        0 => String::new(),
        many => format!(", {many} need a reboot to hold"),
    };
    let told = format!("{} items checked, {} changed{reboot}; lock {}", report.items.len(), changed.len(), report.lock);
    let item = |item: &&muster_core::stacks::ItemReport| Item {
        name: format::cut(&item.item, 160),
        outcome: if item.outcome == ItemOutcome::Changed { "changed" } else { "differs" },
        before: format::cut(item.before.as_deref().unwrap_or("–"), 120),
        after: format::cut(item.after.as_deref().unwrap_or("–"), 120),
    };
    Converged { told, items: changed.iter().take(ITEMS).map(item).collect() }
}
