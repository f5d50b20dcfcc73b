//! One thing a plan asks for: what it must be, what it is. The same list is made before and after the work, and the two make the report.

use std::collections::BTreeMap;

use muster_core::stacks::{ConvergePlan, ConvergeReport, ItemOutcome, ItemReport};
use muster_core::wire::node::Failure;

use crate::failure::retryable;

/// Differences named in one failure message.
const NAMED_MAX: usize = 8;

/// One observed item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// `package slurmd`, `file /etc/chrony/chrony.conf`, `sysctl vm.swappiness`…
    pub name: String,
    pub wanted: String,
    /// What is there; `None` when nothing is.
    pub found: Option<String>,
    pub fits: bool,
    /// Whether only a reboot can make it fit once the node is configured for it.
    pub by_reboot: bool,
}

impl Item {
    /// An item that fits when it is literally as wanted.
    pub(super) fn new(name: impl Into<String>, wanted: impl Into<String>, found: Option<String>) -> Self {
        let (name, wanted) = (name.into(), wanted.into());
        let fits = found.as_ref() == Some(&wanted);
        Self { name, wanted, found, fits, by_reboot: false }
    }
}

/// What a dry run says: nothing was touched.
pub(super) fn forecast(plan: &ConvergePlan, items: &[Item]) -> ConvergeReport {
    let differs = |item: &Item| ItemReport {
        item: item.name.clone(),
        outcome: if item.fits { ItemOutcome::Unchanged } else { ItemOutcome::Differs },
        before: item.found.clone(),
        after: if item.fits { item.found.clone() } else { Some(item.wanted.clone()) },
    };
    ConvergeReport { lock: plan.lock, items: items.iter().map(differs).collect(), reboot_for: waiting(items) }
}

/// What the work came to.
///
/// # Errors
/// `not_converged` when anything still differs that no reboot will mend: a program said it did what it did not.
pub(super) fn conclude(plan: &ConvergePlan, before: &[Item], after: &[Item]) -> Result<ConvergeReport, Failure> {
    let stuck: Vec<String> = after.iter().filter(|item| !item.fits && !item.by_reboot).map(difference).collect();
    if !stuck.is_empty() {
        let more = stuck.len().saturating_sub(NAMED_MAX);
        let named = stuck[..stuck.len().min(NAMED_MAX)].join("; ");
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        return Err(retryable("not_converged", format!("after all steps the node still differs: {named}{more}")));
    }
    let earlier: BTreeMap<&str, &Item> = before.iter().map(|item| (item.name.as_str(), item)).collect();
    let report = |item: &Item| {
        let earlier = earlier.get(item.name.as_str());
        ItemReport {
            item: item.name.clone(),
            outcome: match (item.fits, earlier.is_some_and(|earlier| earlier.fits)) {
                (true, true) => ItemOutcome::Unchanged,
                (true, false) => ItemOutcome::Changed,
                (false, _) => ItemOutcome::Differs,
            },
            before: earlier.and_then(|earlier| earlier.found.clone()),
            after: item.found.clone(),
        }
    };
    Ok(ConvergeReport { lock: plan.lock, items: after.iter().map(report).collect(), reboot_for: waiting(after) })
}

fn waiting(items: &[Item]) -> Vec<String> {
    items.iter().filter(|item| !item.fits && item.by_reboot).map(|item| item.name.clone()).collect()
}

/// What differs, in words.
pub(super) fn difference(item: &Item) -> String {
    format!("{} is {}, wanted {}", item.name, item.found.as_deref().unwrap_or("absent"), item.wanted)
}
