//! Inspected and powered off, ready to be claimed.

use jiff::Timestamp;

use super::asked;
use super::decision::{Decision, Effect, Move, leave_cluster, rest};
use super::snapshot::{Snapshot, StepStatus, StepView};
use super::state::{State, Wish};
use super::steps::Step;
use super::wait::WaitReason;
use crate::claims::ClaimState;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    let wished = |to| Decision::Advance(Move::to(to).as_wished(node));
    match (node.claim, node.wish) {
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
        (_, Some(Wish::Inspect | Wish::ReplaceParts)) => wished(State::Inspecting),
        (_, Some(Wish::Maintain)) => wished(State::Maintenance),
        (_, Some(Wish::Retire)) => wished(State::Retired),
        (_, Some(Wish::Quarantine)) => wished(State::Quarantined),
        (_, Some(Wish::PowerOff)) => asked::power_off(node, now),
        (_, Some(Wish::RotateBmc)) => asked::rotate_bmc(node, now),
        (_, Some(Wish::RunGates)) => claimable(asked::run_gates(node, now), node),
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
fn claimable(decision: Decision, node: &Snapshot) -> Decision {
    let stays_on = |view: &StepView| view.current && view.status != StepStatus::Succeeded;
    match decision {
        Decision::Refused(why) if node.step(Step::PowerOff).is_some_and(stays_on) => {
            Decision::Advance(
                Move::to(State::Quarantined)
                    .because(why)
                    .with(Effect::WishTaken),
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
