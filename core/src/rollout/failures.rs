//! Halts: the failure budget, the canary and external signals. Failures count over the whole run and
//! never expire.

use super::amount::Amount;
use super::fleet::{Control, Fleet, HaltReason, Node, Stage};
use super::policy::RolloutPolicy;
use super::waves;

/// Returns the reason to be halted now: the recorded halt, or a reason found in the facts. A resume
/// clears the recorded halt, so a standing reason halts again.
pub(super) fn find_halt(policy: &RolloutPolicy, fleet: &Fleet) -> Option<HaltReason> {
    match &fleet.control {
        Control::Halted(reason) => return Some(reason.clone()),
        Control::Superseded => return None,
        Control::Running => {}
    }
    if let Some(signal) = fleet.signals.first() {
        return Some(HaltReason::Signal(signal.clone()));
    }
    if let Some(node) = waves::find_failed_canary(policy, fleet) {
        return Some(HaltReason::Canary {
            node: node.name.clone(),
        });
    }
    let failed = count_failed(fleet);
    let tolerated = count_tolerated(policy, fleet);
    (failed > tolerated).then_some(HaltReason::Failures { failed, tolerated })
}

/// Returns the number of nodes that failed in the run, nodes retried or gone since included.
pub fn count_failed(fleet: &Fleet) -> u32 {
    let failed = |node: &Node| node.failed_before || node.stage == Stage::Failed;
    fleet.count(failed).saturating_add(fleet.failed_and_left)
}

/// Returns the number of failed nodes that the policy tolerates, in nodes. 0 without a budget.
pub fn count_tolerated(policy: &RolloutPolicy, fleet: &Fleet) -> u32 {
    let budget = policy.failure_budget;
    let percent = budget
        .percent
        .map(|percent| Amount::Percent(percent).of(fleet.planned));
    budget
        .count
        .into_iter()
        .chain(percent)
        .min()
        .unwrap_or_default()
}

/// Returns the rule as a sentence: `stops at the 4th failure over the whole run; 1 so far`.
pub fn describe(policy: &RolloutPolicy, fleet: &Fleet) -> String {
    let stops_at = count_tolerated(policy, fleet).saturating_add(1);
    format!(
        "stops at the {stops_at}{} failure over the whole run; {} so far",
        ordinal_suffix(stops_at),
        count_failed(fleet)
    )
}

fn ordinal_suffix(number: u32) -> &'static str {
    match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_are_english() {
        let table = [
            (1, "st"),
            (2, "nd"),
            (3, "rd"),
            (4, "th"),
            (11, "th"),
            (12, "th"),
            (13, "th"),
            (21, "st"),
            (112, "th"),
        ];
        for (number, suffix) in table {
            assert_eq!(ordinal_suffix(number), suffix, "{number}");
        }
    }
}
