//! A phase used up its retries. A person retries the phase from its start, releases or quarantines
//! the node, or starts a maintenance. A node is unchanged after a failed drain, and may also go back
//! into service.

use jiff::Timestamp;

use super::asked;
use super::decision::{Decision, Effect, Move, leave_cluster, on_the_spot, rest, stop_first};
use super::snapshot::Snapshot;
use super::state::{Action, Purpose, State};
use super::steps::Step;
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
        return release(node, phase, now);
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
        Some(Action::Undrain) => undrain(node, now),
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
            match phase == State::Draining && node.in_cluster {
                true => "a person to retry, undrain, release or quarantine the node",
                false => "a person to retry, release or quarantine the node",
            },
            "operator",
            "none until a person decides",
        ),
    }
}

/// Goes on with a release. A failed drain begins again, before the wipe.
fn release(node: &Snapshot, phase: State, now: Timestamp) -> Decision {
    // The admission of an undrain would lift the drain of the release.
    stop_first(node, || match phase == State::Draining {
        true => Decision::Advance(Move {
            purpose: Some(Purpose::Release),
            ..Move::released(State::Draining)
        }),
        false => leave_cluster(node, now, Move::released(State::Wiping)),
    })
}

/// Returns a node to service after a failed drain, also if the removal from the scheduler failed: the
/// scheduler uses the node again. If the scheduler refuses, the node stays failed.
fn undrain(node: &Snapshot, now: Timestamp) -> Decision {
    if node.failed_phase != Some(State::Draining) || !node.in_cluster {
        return Decision::Refused("only a failed drain can be undone".into());
    }
    on_the_spot(node, now, &[Step::Admit], || {
        Decision::Advance(Move::to(State::InService).as_requested(node))
    })
}
