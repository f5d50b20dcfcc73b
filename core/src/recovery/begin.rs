//! Where a ladder begins. What the driver or its maker recommends for a fault is no milder than what helps: rungs below it are left out. A look at the
//! machine's parts comes first all the same, and nothing is tried that the pool does not name.

use super::rung::Rung;
use crate::gates::xid::Action;
use crate::gates::{GateResult, Limit, Measured, Verdict};

/// What the drivers ask for in gates that count: the hardest of it. `counts` tells a failure from one that is waived or a shadow.
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
        .filter_map(told)
        .max()
}

/// The kernel's log as the table of Xids weighs it, and the driver's own word for a GPU.
fn told(measured: &Measured) -> Option<Action> {
    let Limit::Text(word) = &measured.value else {
        return None;
    };
    match measured.metric.as_str() {
        "kernel.recovery_action" => Action::told(word),
        "gpu.recovery_action" => Some(Action::recommended(word)),
        _ => None,
    }
}

/// What the drivers ask for, from the sentences of a gate: `kernel.recovery_action is reset gpu, wanted …`.
/// Nodes of the version before wrote sentences only. A node can only say which rungs of its own pool are left out.
pub(super) fn asked_in(told: &str) -> Option<Action> {
    let words = told
        .split("kernel.recovery_action is ")
        .skip(1)
        .filter_map(|rest| rest.split(',').next());
    words.filter_map(|word| Action::told(word.trim())).max()
}

impl Action {
    /// The rung that a ladder begins at; nothing where it begins as always. A reboot resets every GPU. What must be diagnosed first is not reset before
    /// the gates had their say; what must be inspected, no rung of ours mends.
    fn rung(self) -> Option<Rung> {
        match self {
            Self::Ignore | Self::RestartApp | Self::Update | Self::Diagnose => None,
            Self::ResetGpu | Self::RebootNode => Some(Rung::Reboot),
            Self::Inspect => Some(Rung::Rma),
        }
    }
}

/// The rungs of a pool that are tried where this is asked for; in their order, and never others.
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
    fn no_rung_is_tried_that_the_pool_does_not_name_and_collect_is_never_left_out() {
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
