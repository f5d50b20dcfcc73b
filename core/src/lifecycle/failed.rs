//! A phase used up its retries. A person retries the phase from its start, releases or quarantines
//! the node, or starts a maintenance.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, leave_cluster, rest};
use super::snapshot::Snapshot;
use super::state::{Purpose, State, Wish};
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
        matches!(phase, State::Draining | State::Wiping) && node.wish != Some(Wish::Release);
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
    let wished = |to| {
        leave_cluster(
            node,
            now,
            Move::to(to).as_wished(node).with(Effect::ForgetLive),
        )
    };
    // Jobs may still run after a failed drain. The jobs end first, for every requested action.
    let drained = |to, purpose| match phase == State::Draining && node.in_cluster {
        true => Decision::Advance(Move {
            purpose: Some(purpose),
            ..Move::to(State::Draining).as_wished(node)
        }),
        false => wished(to),
    };
    match node.wish {
        _ if node.releasing() && node.wish != Some(Wish::Retry) => rest(
            WaitReason::Person,
            "a person to retry the release",
            "operator",
            "none until a person decides",
        ),
        Some(Wish::Retry) if phase == State::Wiping => wished(State::Wiping),
        Some(Wish::Retry) => Decision::Advance(
            Move {
                purpose,
                ..Move::to(phase)
            }
            .as_wished(node)
            .with(Effect::ForgetLive),
        ),
        Some(Wish::Quarantine) => drained(State::Quarantined, Purpose::Repair),
        Some(Wish::Maintain) => drained(State::Maintenance, Purpose::Maintenance),
        Some(Wish::Converge) if node.holds_its_system() => {
            drained(State::Installing, Purpose::Upgrade)
        }
        Some(Wish::Reinstall) if node.claim == Some(ClaimState::Bound) => {
            drained(State::Imaging, Purpose::Reinstall)
        }
        Some(Wish::ReplaceParts) if phase != State::Draining || !node.in_cluster => {
            wished(State::Inspecting)
        }
        _ => rest(
            WaitReason::Person,
            "a person to retry, release or quarantine the node",
            "operator",
            "none until a person decides",
        ),
    }
}
