//! The first rung of a ladder. If the driver or its vendor recommends an action for a fault, milder
//! rungs are skipped. `collect` still runs first, and only rungs named by the pool are tried.

use super::rung::Rung;
use crate::gates::xid::Action;
use crate::gates::{GateResult, Limit, Measured, Verdict};

/// Returns the most severe action requested by the drivers in counted gates. `counts` selects real
/// failures, without waived and shadow gates.
pub(super) fn asked_by_drivers(
    results: &[GateResult],
    counts: impl Fn(&GateResult) -> bool,
) -> Option<Action> {
    let missed = results
        .iter()
        .filter(|result| counts(result))
        .flat_map(|result| &result.measured);
    missed
        .filter(|measured| measured.verdict == Verdict::Fail)
        .filter_map(find_action)
        .max()
}

/// Returns the action from the kernel log (by the Xid table), or from the driver's own word for a
/// GPU.
fn find_action(measured: &Measured) -> Option<Action> {
    let Limit::Text(word) = &measured.value else {
        return None;
    };
    match measured.metric.as_str() {
        "kernel.recovery_action" => Action::told(word),
        "gpu.recovery_action" => Some(Action::recommended(word)),
        _ => None,
    }
}

/// Parses the action from the sentences of a gate: `kernel.recovery_action is reset gpu, wanted …`.
/// Nodes of the previous version wrote only sentences. The text can only skip rungs of the node's
/// own pool, so a compromised node gains no other power.
pub(super) fn asked_in(told: &str) -> Option<Action> {
    let words = told
        .split("kernel.recovery_action is ")
        .skip(1)
        .filter_map(|rest| rest.split(',').next());
    words.filter_map(|word| Action::told(word.trim())).max()
}

impl Action {
    /// Returns the first rung for the action, or `None` for the usual start. A reboot resets every
    /// GPU. `Diagnose` starts as usual, because gates must run before any reset. `Inspect` goes to
    /// RMA, because no automatic rung repairs such a fault.
    fn rung(self) -> Option<Rung> {
        match self {
            Self::Ignore | Self::RestartApp | Self::Update | Self::Diagnose => None,
            Self::ResetGpu | Self::RebootNode => Some(Rung::Reboot),
            Self::Inspect => Some(Rung::Rma),
        }
    }
}

/// Returns the pool's rungs to try for an action, in the pool's order. Other rungs are never added.
pub fn rungs_for(action: Option<Action>, pool: &[Rung]) -> Vec<Rung> {
    let from = action.and_then(Action::rung);
    let wanted = |rung: &&Rung| **rung == Rung::Collect || from.is_none_or(|from| **rung >= from);
    pool.iter().filter(wanted).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Rung::{Collect, PowerCycle, Reboot, Reimage, RestartServices, Rma};

    #[test]
    fn what_the_driver_asks_for_picks_the_rung() {
        let pool = [Collect, RestartServices, Reboot, PowerCycle, Reimage, Rma];
        let table: [(Option<Action>, &[Rung]); 8] = [
            (None, &pool),
            (Some(Action::Ignore), &pool),
            (Some(Action::RestartApp), &pool),
            (Some(Action::Update), &pool),
            (
                Some(Action::ResetGpu),
                &[Collect, Reboot, PowerCycle, Reimage, Rma],
            ),
            (
                Some(Action::RebootNode),
                &[Collect, Reboot, PowerCycle, Reimage, Rma],
            ),
            (Some(Action::Diagnose), &pool),
            (Some(Action::Inspect), &[Collect, Rma]),
        ];
        for (action, wanted) in table {
            assert_eq!(rungs_for(action, &pool), wanted, "{action:?}");
        }
    }

    #[test]
    fn only_named_rungs_are_tried_and_collect_always() {
        let all = [
            Action::Ignore,
            Action::RestartApp,
            Action::Update,
            Action::ResetGpu,
            Action::RebootNode,
            Action::Diagnose,
            Action::Inspect,
        ];
        let pools: [&[Rung]; 5] = [
            &[],
            &[Collect],
            &[Collect, RestartServices],
            &[RestartServices, PowerCycle],
            &[Collect, Reboot, Rma],
        ];
        for (action, pool) in all
            .into_iter()
            .flat_map(|action| pools.map(|pool| (action, pool)))
        {
            let rungs = rungs_for(Some(action), pool);
            assert!(
                rungs.iter().all(|rung| pool.contains(rung)),
                "{action:?} of {pool:?}: {rungs:?}"
            );
            assert_eq!(
                rungs.contains(&Collect),
                pool.contains(&Collect),
                "{action:?} of {pool:?}"
            );
            assert!(
                rungs.windows(2).all(|pair| pair[0] < pair[1]),
                "{action:?} of {pool:?}: {rungs:?}"
            );
        }
        assert_eq!(
            rungs_for(Some(Action::Inspect), &[Collect, RestartServices, Reboot]),
            [Collect],
            "a person looks"
        );
    }
}
