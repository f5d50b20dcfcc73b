//! Out of the scheduler: no new jobs, running ones finish, then the node leaves the configuration. Never kills a job.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, follow};
use super::snapshot::{Snapshot, StepStatus};
use super::state::{Purpose, State, Wish};
use super::steps::Step;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    // What is asked for while it drains is what it drains for from now on; a release above all.
    let purpose = match node.wish {
        _ if node.releasing() => Purpose::Release,
        Some(Wish::Quarantine) => Purpose::Repair,
        Some(Wish::Maintain) => Purpose::Maintenance,
        _ => node.purpose.unwrap_or(Purpose::Maintenance),
    };
    let may_return = purpose != Purpose::Release && node.step(Step::Remove).is_none();
    if (may_return && turned_round(node)) || node.step(Step::Admit).is_some() {
        return undrain(node, now);
    }
    follow(node, now, &[Step::Drain, Step::Remove], || {
        let left = |to| {
            let left = Move::to(to).with(Effect::LeaveCluster);
            match node.wish {
                Some(Wish::Quarantine | Wish::Maintain) => left.as_wished(node),
                _ => left.because(node.reason.clone().unwrap_or_else(|| purpose.to_string())),
            }
        };
        Decision::Advance(match purpose {
            Purpose::Release => Move::released(State::Wiping).with(Effect::LeaveCluster),
            Purpose::Repair => left(State::Quarantined),
            Purpose::Maintenance | Purpose::Upgrade => left(State::Maintenance),
        })
    })
}

/// Whether somebody wants the node back: by asking, or by stopping the drain.
fn turned_round(node: &Snapshot) -> bool {
    let stopped = node.step(Step::Drain).is_some_and(|view| view.status == StepStatus::Cancelled);
    node.wish == Some(Wish::Undrain) || (node.wish.is_none() && (node.stop || stopped))
}

/// Back into service: the drain is stopped, and the scheduler told to use the node again.
fn undrain(node: &Snapshot, now: Timestamp) -> Decision {
    match node.active() {
        Some(view) if view.step == Step::Drain => Decision::Cancel(Step::Drain),
        _ => follow(&node.unstoppable(), now, &[Step::Admit], || {
            let back = Move::to(State::InService).as_wished(node);
            Decision::Advance(if node.stop { back.with(Effect::Stopped) } else { back })
        }),
    }
}
