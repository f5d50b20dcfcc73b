//! The claim on a node, the assigned revision, and the result of the newest converge or
//! comparison.

use jiff::Timestamp;
use muster_core::stacks::{ItemOutcome, ItemReport};

use super::{Pair, pair};
use crate::db::drift::Look;
use crate::db::pages::nodes::MachineRow;
use crate::intents::nodes::view::NodeObject;
use crate::ui::format::{self, Moment, member};

const ITEMS: usize = 200;

pub(super) struct Stack {
    pub claim: String,
    /// The stack of the assigned revision. Empty without a revision.
    pub name: String,
    pub pairs: Vec<Pair>,
    pub converged: Option<Converged>,
}

pub(super) struct Converged {
    pub at: Moment,
    pub told: String,
    /// Whether an item still differs from the stack (drift).
    pub differs: bool,
    pub items: Vec<Item>,
    /// Number of further items.
    pub more: usize,
}

pub(super) struct Item {
    pub name: String,
    pub outcome: &'static str,
    pub before: String,
    pub after: String,
}

pub(super) fn render_stack(
    node: &NodeObject,
    machine: &MachineRow,
    look: Option<Look>,
    now: Timestamp,
) -> Stack {
    let mut pairs = Vec::new();
    if let Some(pool) = &node.status.pool {
        pairs.push(pair("Pool", pool.clone()));
    }
    if let Some(number) = machine.revision {
        pairs.push(pair("Revision", describe_revision(number, machine.running)));
    }
    if let Some(image) = &machine.image {
        pairs.push(pair("Image", image.clone()));
    }
    if let Some(spec) = &machine.pool_spec {
        for (name, of) in [("Suite", "suite"), ("Cluster", "cluster")] {
            pairs.push(pair(name, member(spec, of)));
        }
    }
    Stack {
        claim: node.status.claim.clone().unwrap_or_default(),
        name: machine.stack.clone().unwrap_or_default(),
        pairs,
        converged: look.map(|look| render_report(look, now)),
    }
}

/// The assigned revision, and the running one where both are not the same.
fn describe_revision(assigned: i32, running: Option<i32>) -> String {
    match running {
        Some(running) if running == assigned => format!("{assigned}, running"),
        Some(running) => format!("{assigned} assigned, {running} running"),
        None => format!("{assigned} assigned; the running one is unknown until a comparison"),
    }
}

fn render_report(look: Look, now: Timestamp) -> Converged {
    let report = look.report;
    let mut items: Vec<_> = report
        .items
        .iter()
        .filter(|item| item.outcome != ItemOutcome::Unchanged)
        .collect();
    // Items that differ now come first.
    items.sort_by_key(|item| item.outcome != ItemOutcome::Differs);
    let differ = items
        .iter()
        .filter(|item| item.outcome == ItemOutcome::Differs)
        .count();
    let changed = items.len() - differ;
    let reboot = match report.reboot_for.len() {
        0 => String::new(),
        many => format!(", {many} need a reboot to hold"),
    };
    let told = format!(
        "{} items checked, {differ} differ, {changed} were changed{reboot}; lock {}",
        report.items.len(),
        report.lock
    );
    let item = |item: &&ItemReport| Item {
        name: format::cut(&item.item, 160),
        outcome: if item.outcome == ItemOutcome::Changed {
            "changed"
        } else {
            "differs"
        },
        before: format::cut(item.before.as_deref().unwrap_or("–"), 120),
        after: format::cut(item.after.as_deref().unwrap_or("–"), 120),
    };
    let more = format::cut_rows(&mut items, ITEMS);
    let items = items.iter().map(item).collect();
    Converged {
        at: format::moment(look.observed_at, now),
        told,
        differs: differ > 0,
        items,
        more,
    }
}

#[cfg(test)]
mod tests {
    use muster_core::stacks::ConvergeReport;
    use muster_core::values::Digest;

    use super::*;

    #[test]
    fn items_beyond_the_table_are_counted() {
        let item = |number: usize| ItemReport {
            item: format!("sysctl s{number}"),
            outcome: ItemOutcome::Differs,
            before: None,
            after: None,
        };
        let render = |count: usize| {
            let look = Look {
                observed_at: Timestamp::UNIX_EPOCH,
                report: ConvergeReport {
                    lock: Digest::of(b""),
                    items: (0..count).map(item).collect(),
                    reboot_for: Vec::new(),
                },
            };
            let shown = render_report(look, Timestamp::UNIX_EPOCH);
            (shown.items.len(), shown.more)
        };
        assert_eq!(render(ITEMS), (ITEMS, 0));
        assert_eq!(render(ITEMS + 3), (ITEMS, 3));
    }
}
