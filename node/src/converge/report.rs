//! The report of a run, made from the items before and after the work.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::stacks::{ConvergePlan, ConvergeReport, ItemOutcome, ItemReport};
use muster_core::wire::node::{Failure, FailureCode};

use super::item::{ABSENT, Item, difference};
use super::reboot;
use crate::failure::retryable;

/// Differences named in one failure message.
const NAMED_MAX: usize = 8;

/// Builds the report of a dry run; no item was changed. `asking`: items other than packages whose
/// change will need a reboot.
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
    // Items whose change will need a reboot.
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

/// Builds the report of a finished run.
///
/// # Errors
/// `not_converged` when an item still differs and a reboot cannot help: a program reported success
/// without making the change.
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
        let earlier = earlier.get(item.name.as_str()).copied();
        ItemReport {
            item: item.name.clone(),
            outcome: outcome_of(item, earlier),
            before: earlier.and_then(|earlier| earlier.found.clone()),
            after: item.found.clone(),
        }
    };
    let now: BTreeSet<&str> = after.iter().map(|item| item.name.as_str()).collect();
    // An item removed with a former lock is absent from the new list; so is a file restored to its
    // content from before the stack.
    let gone = |item: &Item| item.wanted == ABSENT || is_file(item);
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

/// Returns the outcome of an item after the work. `earlier`: the item before the work.
fn outcome_of(item: &Item, earlier: Option<&Item>) -> ItemOutcome {
    // A file made from the packages may fit the former and the new packages.
    let is_rewritten = |earlier: &Item| is_file(item) && earlier.wanted != item.wanted;
    let fitted = earlier.is_some_and(|earlier| earlier.fits && !is_rewritten(earlier));
    match (item.fits, fitted) {
        (true, true) => ItemOutcome::Unchanged,
        (true, false) => ItemOutcome::Changed,
        (false, _) => ItemOutcome::Differs,
    }
}

fn is_file(item: &Item) -> bool {
    item.name.starts_with("file ")
}

fn waiting(items: &[Item]) -> Vec<String> {
    items
        .iter()
        .filter(|item| !item.fits && item.by_reboot)
        .map(|item| item.name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_wanted_state_is_a_change_of_a_file_alone() {
        let fits = |name: &str, state: &str| Item::new(name, state, Some(state.to_owned()));
        let outcome = |name: &str| {
            let (before, after) = (fits(name, "550"), fits(name, "535"));
            outcome_of(&after, Some(&before))
        };
        assert_eq!(outcome("file /etc/cdi/nvidia.json"), ItemOutcome::Changed);
        assert_eq!(outcome("running kernel"), ItemOutcome::Unchanged);
    }
}
