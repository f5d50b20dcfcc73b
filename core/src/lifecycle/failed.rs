//! A phase used up its retries. A person retries the phase from its start, releases or quarantines
//! the node, or starts a maintenance.

use jiff::Timestamp;

use super::asked;
use super::decision::{Decision, Effect, Move, leave_cluster, rest};
use super::snapshot::Snapshot;
use super::state::{Action, Purpose, State};
use super::wait::WaitReason;
use crate::claims::ClaimState;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    let phase = node.failed_phase.unwrap_or(State::Inspecting);
    let purpose = (phase == State::Draining).then_some(match node.releasing() {
        true => Purpose::Release,
        false => node.purpose.unwrap_or(Purpose::Maintenance),
    });
    // A failed release waits for a person. An automatic retry would skip the drain, or repeat the
    // wipe forever.
    let failed_release =
        matches!(phase, State::Draining | State::Wiping) && node.action != Some(Action::Release);
    if node.releasing() && !node.protected && !failed_release {
        return if phase == State::Draining {
            Decision::Advance(Move {
                purpose,
                ..Move::released(State::Draining)
            })
        } else {
            leave_cluster(node, now, Move::released(State::Wiping))
        };
    }
    let requested = |to| {
        leave_cluster(
            node,
            now,
            Move::to(to).as_requested(node).with(Effect::ForgetLive),
        )
    };
    // Jobs may still run after a failed drain. The jobs end first, for every requested action.
    let drained = |to, purpose| match phase == State::Draining && node.in_cluster {
        true => Decision::Advance(Move {
            purpose: Some(purpose),
            ..Move::to(State::Draining).as_requested(node)
        }),
        false => requested(to),
    };
    match node.action {
        _ if node.releasing() && node.action != Some(Action::Retry) => rest(
            WaitReason::Person,
            "a person to retry the release",
            "operator",
            "none until a person decides",
        ),
        Some(Action::Retry) if phase == State::Wiping => requested(State::Wiping),
        Some(Action::Retry) => Decision::Advance(
            Move {
                purpose,
                ..Move::to(phase)
            }
            .as_requested(node)
            .with(Effect::ForgetLive),
        ),
        Some(Action::Quarantine) => drained(State::Quarantined, Purpose::Repair),
        Some(Action::Maintain) => drained(State::Maintenance, Purpose::Maintenance),
        Some(Action::Converge) if node.holds_its_system() => {
            drained(State::Installing, Purpose::Upgrade)
        }
        Some(Action::Converge) => asked::converge(node, now),
        Some(Action::Reinstall) if node.claim == Some(ClaimState::Bound) => {
            drained(State::Imaging, Purpose::Reinstall)
        }
        Some(Action::ReplaceParts) if phase != State::Draining || !node.in_cluster => {
            requested(State::Inspecting)
        }
        _ => rest(
            WaitReason::Person,
            "a person to retry, release or quarantine the node",
            "operator",
            "none until a person decides",
        ),
    }
}
