//! Steps that hold a node in service back from its scheduler's jobs, and return the node to the scheduler.

use jiff::{SignedDuration, Timestamp};

use super::decision::Decision;
use super::snapshot::{Snapshot, StepStatus};
use super::steps::Step;
use super::wait::{Wait, WaitReason};

/// Time until a waiting node of a run is checked again without a wake-up.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// Time until a scheduler that failed to use the node again is asked again.
const GIVE_BACK_AGAIN: SignedDuration = SignedDuration::from_secs(60);

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

/// Starts a step, or repeats a finished step at time `at`. The run bounds the number of repeats.
pub(super) fn begin(node: &Snapshot, now: Timestamp, step: Step, at: Timestamp) -> Decision {
    match node.step(step).map(|view| &view.status) {
        None => Decision::Start(step),
        Some(StepStatus::Queued | StepStatus::Running { .. } | StepStatus::Lost) => {
            wait(now, step.title(), "continue after this step")
        }
        Some(StepStatus::Succeeded | StepStatus::Failed { .. } | StepStatus::Cancelled) => {
            Decision::Retry(step, at)
        }
    }
}

pub(super) fn wait(now: Timestamp, condition: &str, next_action: &str) -> Decision {
    Decision::Wait(Wait {
        reason: WaitReason::Pair,
        condition: condition.to_owned(),
        owner: "muster".into(),
        next_action: next_action.to_owned(),
        until: Some(now + LOOK_AGAIN),
    })
}
