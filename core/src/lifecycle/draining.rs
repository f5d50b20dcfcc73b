//! Leaves the scheduler: no new jobs start, running jobs finish, then the node is removed from the
//! configuration. Jobs are requeued only for a rollout whose policy says so. A node that a rollout
//! changes together with others stays drained until the last of these is drained.

use jiff::{SignedDuration, Timestamp};

use super::decision::{Decision, Effect, Move, follow};
use super::snapshot::{Snapshot, StepStatus};
use super::state::{Action, Purpose, State};
use super::steps::Step;
use super::wait::{Wait, WaitReason};
use crate::claims::ClaimState;

/// The rollout ends the wait. The check finds a rollout that no longer has the node.
const UNIT_CHECK: SignedDuration = SignedDuration::from_secs(30);

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    // A request during the drain replaces the purpose; a release has the highest priority.
    let purpose = match node.action {
        _ if node.releasing() => Purpose::Release,
        Some(Action::Quarantine) => Purpose::Repair,
        Some(Action::Maintain) => Purpose::Maintenance,
        _ => node.purpose.unwrap_or(Purpose::Maintenance),
    };
    let undone = purpose == Purpose::Release && node.claim == Some(ClaimState::Bound);
    let turned = undone || (purpose != Purpose::Release && turned_round(node));
    if (turned && node.step(Step::Remove).is_none()) || node.step(Step::Admit).is_some() {
        return undrain(node, now);
    }
    if node.waits_for_unit
        && matches!(purpose, Purpose::Upgrade | Purpose::Reinstall)
        && node.done(Step::Drain)
        && node.step(Step::Remove).is_none()
    {
        return wait_for_unit(now);
    }
    follow(node, now, &[Step::Drain, Step::Remove], || {
        let left = |to| {
            let left = Move::to(to).with(Effect::LeaveCluster);
            match node.action {
                Some(Action::Quarantine | Action::Maintain) => left.as_requested(node),
                _ => left.because(node.reason.clone().unwrap_or_else(|| purpose.to_string())),
            }
        };
        Decision::Advance(match purpose {
            // The release was undone after the scheduler had already removed the node, so the node
            // returns through the gates.
            Purpose::Release if undone => left(State::Validating).because("the release was undone"),
            Purpose::Release => Move::released(State::Wiping).with(Effect::LeaveCluster),
            Purpose::Repair
                if node.recovery.is_some() && node.action != Some(Action::Quarantine) =>
            {
                left(State::Repairing)
            }
            Purpose::Repair => left(State::Quarantined),
            Purpose::Upgrade if node.holds_its_system() => {
                left(State::Installing).with(Effect::ForgetLive)
            }
            Purpose::Reinstall if node.claim == Some(ClaimState::Bound) => {
                left(State::Imaging).with(Effect::ForgetLive)
            }
            Purpose::Maintenance | Purpose::Upgrade | Purpose::Reinstall => {
                left(State::Maintenance)
            }
        })
    })
}

/// Returns whether the drain was reversed, by a request or by stopping the drain.
fn turned_round(node: &Snapshot) -> bool {
    let stopped = node
        .step(Step::Drain)
        .is_some_and(|view| view.status == StepStatus::Cancelled);
    node.action == Some(Action::Undrain) || (node.action.is_none() && (node.stop || stopped))
}

/// Waits for the rollout, which starts the changes of a unit after the last drain.
fn wait_for_unit(now: Timestamp) -> Decision {
    Decision::Wait(Wait {
        reason: WaitReason::Unit,
        condition: "the drains of the nodes that are changed together with this node".to_owned(),
        owner: "muster".into(),
        next_action: "change all of these nodes after the last drain".into(),
        until: Some(now + UNIT_CHECK),
    })
}

/// Returns the node to service: the drain is stopped, and the scheduler uses the node again.
fn undrain(node: &Snapshot, now: Timestamp) -> Decision {
    match node.active() {
        Some(view) if view.step == Step::Drain => Decision::Cancel(Step::Drain),
        _ => follow(&node.unstoppable(), now, &[Step::Admit], || {
            let back = Move::to(State::InService).as_requested(node);
            Decision::Advance(if node.stop {
                back.with(Effect::Stopped)
            } else {
                back
            })
        }),
    }
}
