//! A node in service that is measured, against others of its pool or by a sweep that loads it: held back from the scheduler's jobs first, and given back
//! afterwards whatever came of it.

use jiff::{SignedDuration, Timestamp};

use super::decision::Decision;
use super::faults;
use super::snapshot::{Snapshot, StepStatus};
use super::steps::Step;
use super::wait::{Wait, WaitReason};
use crate::recovery::Cause;

/// Until a node of a run is looked at again where nothing woke it.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// Until a scheduler that did not take a node back is asked again.
const GIVE_BACK_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// What a run of pairs wants of one of its nodes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// No job is to start on it from now on.
    Hold,
    /// It is to measure with another node, and asks.
    Measure,
    /// Nothing, until this is over.
    Waits(String),
    /// It failed with known-good partners: it is its fault.
    Faulty(Cause),
    /// It serves again; not tried before this time.
    GiveBack(Timestamp),
    /// It does so.
    Back,
}

pub(super) fn decide(node: &Snapshot, now: Timestamp, wanted: &Pairing) -> Decision {
    match wanted {
        Pairing::Hold => begin(node, now, Step::Hold, now),
        Pairing::Measure => begin(node, now, Step::Pair, now),
        Pairing::Waits(what) => wait(now, what, "go on with its pool's pairs"),
        Pairing::Faulty(cause) => match measuring(node) {
            Some(step) => Decision::Cancel(step),
            None => match faults::taken_out(node, now, cause.clone()) {
                // The fleet's bounds, or its protection: it serves on, and a person reads what was found.
                Decision::Granted(_) => begin(node, now, Step::Admit, now),
                taken @ (Decision::Wait(_)
                | Decision::Advance(_)
                | Decision::Start(_)
                | Decision::Retry(..)
                | Decision::Cancel(_)
                | Decision::Refused(_)) => taken,
            },
        },
        Pairing::GiveBack(at) => match measuring(node) {
            Some(step) => Decision::Cancel(step),
            None => begin(node, now, Step::Admit, *at),
        },
        Pairing::Back => Decision::Granted("it takes jobs again after its pool's pairs".into()),
    }
}

/// What gives a node back that a sweep held back, under the operation of now; nothing once that is done.
pub(super) fn given_back(node: &Snapshot, now: Timestamp) -> Option<Decision> {
    Some(
        match node
            .step(Step::Admit)
            .filter(|view| view.current)
            .map(|view| &view.status)
        {
            Some(StepStatus::Succeeded) => return None,
            Some(StepStatus::Failed { at, .. }) => {
                Decision::Retry(Step::Admit, *at + GIVE_BACK_AGAIN)
            }
            Some(
                StepStatus::Queued
                | StepStatus::Running { .. }
                | StepStatus::Lost
                | StepStatus::Cancelled,
            )
            | None => begin(node, now, Step::Admit, now),
        },
    )
}

/// What of the run is still under way on it.
fn measuring(node: &Snapshot) -> Option<Step> {
    node.active()
        .map(|view| view.step)
        .filter(|step| matches!(step, Step::Hold | Step::Pair))
}

/// Starts a step, or repeats a finished step at time `at`. The run bounds the number of repeats.
pub(super) fn begin(node: &Snapshot, now: Timestamp, step: Step, at: Timestamp) -> Decision {
    match node.step(step).map(|view| &view.status) {
        None => Decision::Start(step),
        Some(StepStatus::Queued | StepStatus::Running { .. } | StepStatus::Lost) => {
            wait(now, step.title(), "go on when this is done")
        }
        Some(StepStatus::Succeeded | StepStatus::Failed { .. } | StepStatus::Cancelled) => {
            Decision::Retry(step, at)
        }
    }
}

fn wait(now: Timestamp, condition: &str, next_action: &str) -> Decision {
    Decision::Wait(Wait {
        reason: WaitReason::Pair,
        condition: condition.to_owned(),
        owner: "muster".into(),
        next_action: next_action.to_owned(),
        until: Some(now + LOOK_AGAIN),
    })
}
