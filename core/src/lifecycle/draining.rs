//! Out of the scheduler: no new jobs, running ones finish, then the node leaves the configuration. Never kills a job.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, follow};
use super::snapshot::Snapshot;
use super::state::{Purpose, State, Wish};
use super::steps::Step;
use crate::claims::ClaimState;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    // A release that comes while it drains for another reason is what it drains for from now on.
    let purpose = if node.releasing() { Purpose::Release } else { node.purpose.unwrap_or(Purpose::Maintenance) };
    let undone = purpose == Purpose::Release && node.claim == Some(ClaimState::Bound);
    let undrained = undone || (node.wish == Some(Wish::Undrain) && purpose != Purpose::Release);
    if (undrained && node.step(Step::Remove).is_none()) || node.step(Step::Admit).is_some() {
        return undrain(node, now);
    }
    follow(node, now, &[Step::Drain, Step::Remove], || {
        let left = |to| Move::to(to).with(Effect::LeaveCluster);
        let reason = node.reason.clone().unwrap_or_else(|| purpose.to_string());
        Decision::Advance(match purpose {
            // Undone when the scheduler had let it go already: back through the gates.
            Purpose::Release if undone => left(State::Validating).because("the release was undone"),
            Purpose::Release => Move::released(State::Wiping).with(Effect::LeaveCluster),
            Purpose::Repair => left(State::Quarantined).because(reason),
            Purpose::Maintenance | Purpose::Upgrade => left(State::Maintenance).because(reason),
        })
    })
}

/// Back into service: the drain is stopped, and the scheduler told to use the node again.
fn undrain(node: &Snapshot, now: Timestamp) -> Decision {
    match node.active() {
        Some(view) if view.step == Step::Drain => Decision::Cancel(Step::Drain),
        _ => follow(node, now, &[Step::Admit], || Decision::Advance(Move::to(State::InService).as_wished(node))),
    }
}
