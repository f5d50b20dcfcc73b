//! A node in service under measurement, with other nodes of its pool or by a sweep with load. The
//! scheduler starts no jobs before the measurement, and uses the node again afterwards for every
//! result.

use jiff::{SignedDuration, Timestamp};

use super::decision::Decision;
use super::faults;
use super::snapshot::{Snapshot, StepStatus};
use super::steps::Step;
use super::wait::{Wait, WaitReason};
use crate::recovery::Cause;

/// Time until a waiting node of a run is checked again without a wake-up.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// Time until a scheduler that failed to use the node again is asked again.
const GIVE_BACK_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// The action required of a node by a run of pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// The scheduler must start no new jobs on the node.
    Hold,
    /// The node measures with another node, as the requesting end.
    Measure,
    /// No action until the described condition is over.
    Waits(String),
    /// The node failed with known-good partners, so the fault is in this node.
    Faulty(Cause),
    /// The scheduler must use the node again; not attempted before the given time.
    GiveBack(Timestamp),
    /// The scheduler uses the node again.
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
                // Bounds or protection keep the node in service, and a person reads the finding.
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

/// Returns the decision that returns a node to the scheduler after a sweep, under the current
/// operation. Returns `None` when done.
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

/// Returns the run's step still under way on the node.
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
