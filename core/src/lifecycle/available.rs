//! Inspected and powered off, ready to be claimed.

use jiff::Timestamp;

use super::asked;
use super::decision::{Decision, Effect, Move, leave_cluster, rest};
use super::snapshot::{Snapshot, StepStatus, StepView};
use super::state::{Action, State};
use super::steps::Step;
use super::wait::WaitReason;
use crate::claims::ClaimState;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    let requested = |to| Decision::Advance(Move::to(to).as_requested(node));
    match (node.claim, node.action) {
        (Some(ClaimState::Bound), _) => {
            Decision::Advance(Move::to(State::Imaging).because("claimed"))
        }
        // An earlier attempt under the same claim wrote to the disks, so the remaining data is
        // erased first.
        (Some(ClaimState::Releasing), _) if node.unsanitised => {
            leave_cluster(node, now, Move::released(State::Wiping))
        }
        // Released before any write: there is no data to erase.
        (Some(ClaimState::Releasing), _) => Decision::Advance(
            Move::released(State::Inspecting)
                .because("released before imaging")
                .with(Effect::EndClaim),
        ),
        (_, Some(Action::Inspect | Action::ReplaceParts)) => requested(State::Inspecting),
        (_, Some(Action::Maintain)) => requested(State::Maintenance),
        (_, Some(Action::Retire)) => requested(State::Retired),
        (_, Some(Action::Quarantine)) => requested(State::Quarantined),
        (_, Some(Action::PowerOff)) => asked::power_off(node, now),
        (_, Some(Action::RotateBmc)) => asked::rotate_bmc(node, now),
        (_, Some(Action::RunGates)) => quarantine_if_on(asked::run_gates(node, now), node),
        _ => rest(
            WaitReason::Claim,
            "a claim",
            "nobody",
            "none until a claim takes the node",
        ),
    }
}

/// A claimable node must be off. A node that cannot be powered off again is quarantined for a
/// person to inspect.
fn quarantine_if_on(decision: Decision, node: &Snapshot) -> Decision {
    let stays_on = |view: &StepView| view.current && view.status != StepStatus::Succeeded;
    match decision {
        Decision::Refused(why) if node.step(Step::PowerOff).is_some_and(stays_on) => {
            Decision::Advance(
                Move::to(State::Quarantined)
                    .because(why)
                    .with(Effect::ActionTaken),
            )
        }
        other @ (Decision::Wait(_)
        | Decision::Advance(_)
        | Decision::Start(_)
        | Decision::Retry(..)
        | Decision::Cancel(_)
        | Decision::Granted(_)
        | Decision::Refused(_)) => other,
    }
}
