//! Under a person's control, until the person resumes the node or the given time is over. Resumes
//! through inspection, or through the gates if the claimed OS is still installed.

use jiff::Timestamp;

use super::asked;
use super::decision::{Decision, Effect, Move, leave_cluster, rest, stop_first};
use super::snapshot::Snapshot;
use super::state::{Action, State};
use super::wait::{Wait, WaitReason};
use crate::claims::ClaimState;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    match node.action {
        _ if node.releasing() && !node.protected => stop_first(node, || {
            leave_cluster(node, now, Move::released(State::Wiping))
        }),
        Some(Action::Resume) => Decision::Advance(plan_resume(node).as_requested(node)),
        Some(Action::ReplaceParts) => leave_cluster(
            node,
            now,
            Move::to(State::Inspecting)
                .as_requested(node)
                .with(Effect::ForgetLive),
        ),
        Some(Action::Retire) if node.claim.is_none() => {
            Decision::Advance(Move::to(State::Retired).as_requested(node))
        }
        Some(Action::Quarantine) => {
            Decision::Advance(Move::to(State::Quarantined).as_requested(node))
        }
        Some(Action::PowerOn) => asked::power_on(node, now),
        Some(Action::PowerOff) => asked::power_off(node, now),
        Some(Action::PowerCycle) => asked::power_cycle(node, now),
        Some(Action::RotateBmc) => asked::rotate_bmc(node, now),
        Some(Action::RunGates) => asked::run_gates(node, now),
        Some(Action::Converge) => asked::converge(node, now),
        Some(Action::Reinstall) if node.claim == Some(ClaimState::Bound) => {
            asked::reinstall(node, now)
        }
        Some(Action::Maintain) => Decision::Granted("the maintenance continues".into()),
        Some(_) => rest(
            WaitReason::Person,
            "a person to resume the node",
            "operator",
            "none until a person decides",
        ),
        None => match node.until {
            Some(until) if until <= now => {
                Decision::Advance(plan_resume(node).because("the maintenance has ended"))
            }
            Some(until) => Decision::Wait(Wait {
                reason: WaitReason::Maintenance,
                condition: format!("the maintenance to end at {}", until.strftime("%F %T UTC")),
                owner: "operator".into(),
                next_action: "resume automatically".into(),
                until: Some(until),
            }),
            None => rest(
                WaitReason::Person,
                "a person to resume the node",
                "operator",
                "none until a person decides",
            ),
        },
    }
}

/// Returns the move to the state for continuing.
fn plan_resume(node: &Snapshot) -> Move {
    match node.holds_its_system() {
        true => Move::to(State::Validating),
        false => Move::to(State::Inspecting).with(Effect::ForgetLive),
    }
}
