//! One thing a plan asks for: what it must be, what it is. The same list is made before and after the work, and the two make the report.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::stacks::{ConvergePlan, ConvergeReport, ItemOutcome, ItemReport};
use muster_core::wire::node::{Failure, FailureCode};

use super::reboot;
use crate::failure::retryable;

/// What an item is wanted to be that must not be there.
pub(super) const ABSENT: &str = "absent";
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
    /// Whether, until that reboot, nothing may be loaded or started: it would meet a kernel or a module that is on its way out.
    pub holds_back: bool,
}

impl Item {
    /// An item that fits when it is literally as wanted.
    pub(super) fn new(
        name: impl Into<String>,
        wanted: impl Into<String>,
        found: Option<String>,
    ) -> Self {
        let (name, wanted) = (name.into(), wanted.into());
        let fits = found.as_ref() == Some(&wanted);
        Self {
            name,
            wanted,
            found,
            fits,
            by_reboot: false,
            holds_back: false,
        }
    }

    /// The same, where it fits only after a reboot and holds back what is started.
    pub(super) fn held_until_boot(self) -> Self {
        Self {
            by_reboot: true,
            holds_back: true,
            ..self
        }
    }
}

/// Whether a reboot is due before anything may be loaded or started.
pub(super) fn held_back(items: &[Item]) -> bool {
    items.iter().any(|item| !item.fits && item.holds_back)
}

/// What a dry run says: nothing was touched. `asking`: items other than packages whose change will ask for a reboot.
pub(super) fn forecast(plan: &ConvergePlan, items: &[Item], asking: &[String]) -> ConvergeReport {
    let differs = |item: &Item| ItemReport {
        item: item.name.clone(),
        outcome: if item.fits {
            ItemOutcome::Unchanged
        } else {
            ItemOutcome::Differs
        },
        before: item.found.clone(),
        after: if item.fits {
            item.found.clone()
        } else {
            Some(item.wanted.clone())
        },
    };
    // What will ask for it, once it has changed.
    let asks = |item: &&Item| {
        let package = item.name.strip_prefix("package ");
        !item.fits
            && (asking.contains(&item.name)
                || package.is_some_and(|name| reboot::asked_by(name, item.found.is_some())))
    };
    let mut reboot_for = waiting(items);
    reboot_for.extend(items.iter().filter(asks).map(|item| item.name.clone()));
    ConvergeReport {
        lock: plan.lock,
        items: items.iter().map(differs).collect(),
        reboot_for,
    }
}

/// What the work came to.
///
/// # Errors
/// `not_converged` when anything still differs that no reboot will mend: a program said it did what it did not.
pub(super) fn conclude(
    plan: &ConvergePlan,
    before: &[Item],
    after: &[Item],
) -> Result<ConvergeReport, Failure> {
    let stuck: Vec<String> = after
        .iter()
        .filter(|item| !item.fits && !item.by_reboot)
        .map(difference)
        .collect();
    if !stuck.is_empty() {
        let more = stuck.len().saturating_sub(NAMED_MAX);
        let named = stuck[..stuck.len().min(NAMED_MAX)].join("; ");
        let more = if more == 0 {
            String::new()
        } else {
            format!("; and {more} more")
        };
        return Err(retryable(
            FailureCode::NotConverged,
            format!("after all steps the node still differs: {named}{more}"),
        ));
    }
    let earlier: BTreeMap<&str, &Item> = before
        .iter()
        .map(|item| (item.name.as_str(), item))
        .collect();
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
    let now: BTreeSet<&str> = after.iter().map(|item| item.name.as_str()).collect();
    // What left with a former lock is no item any more, nor is a file that is again what it was before a stack wrote it.
    let gone = |item: &Item| item.wanted == ABSENT || item.name.starts_with("file ");
    let left = before
        .iter()
        .filter(|item| !item.fits && gone(item) && !now.contains(item.name.as_str()));
    let left = left.map(|item| ItemReport {
        item: item.name.clone(),
        outcome: ItemOutcome::Changed,
        before: item.found.clone(),
        after: None,
    });
    let items = after.iter().map(report).chain(left).collect();
    Ok(ConvergeReport {
        lock: plan.lock,
        items,
        reboot_for: waiting(after),
    })
}

fn waiting(items: &[Item]) -> Vec<String> {
    items
        .iter()
        .filter(|item| !item.fits && item.by_reboot)
        .map(|item| item.name.clone())
        .collect()
}

/// What differs, in words.
pub(super) fn difference(item: &Item) -> String {
    format!(
        "{} is {}, wanted {}",
        item.name,
        item.found.as_deref().unwrap_or("absent"),
        item.wanted
    )
}
