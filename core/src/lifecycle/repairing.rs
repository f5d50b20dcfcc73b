//! Runs a recovery through its ladder, rung by rung, until a rung may have helped. Then the gates
//! verify the node.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Ladder, Move, follow, interrupted, leave_cluster};
use super::snapshot::{Snapshot, StepStatus, StepView};
use super::state::State;
use super::steps::Step;
use crate::recovery::{Ended, Means, Outcome, Recovery, Rung, Tried};

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = interrupted(node, now) {
        return decision;
    }
    let Some(recovery) = &node.recovery else {
        return Decision::Advance(Move::to(State::Validating).because("verify by gates"));
    };
    climb(node, now, recovery)
}

/// Goes through the remaining rungs, up to the first rung that needs time, verification or a
/// person.
fn climb(node: &Snapshot, now: Timestamp, recovery: &Recovery) -> Decision {
    let means = Means {
        bmc: node.power_person.is_none(),
        protected: node.protected,
        held: node.held,
    };
    let mut tried: Vec<Tried> = Vec::new();
    for (at, &rung) in recovery.rungs.iter().enumerate().skip(recovery.tried) {
        let record = |outcome, why| Tried { rung, outcome, why };
        // A rung that has begun runs to its end, so that two rungs never overlap.
        let untouched = rung.steps().iter().all(|step| node.step(*step).is_none());
        if node.stop && untouched {
            break;
        }
        if let Some(why) = recovery.refusal(rung, means).filter(|_| untouched) {
            tried.push(record(Outcome::Skipped, Some(why.to_owned())));
            continue;
        }
        if let Some(hold) = node.hold.as_ref().filter(|_| untouched) {
            let why = format!("{}; {}", recovery.cause.what, hold.why());
            return end_ladder(node, now, Ended::HeldBack, tried, &why);
        }
        match rung {
            Rung::Rma => {
                tried.push(record(Outcome::Done, None));
                let why = describe_spent(recovery, "its parts go back to their maker");
                return end_ladder(node, now, Ended::Spent, tried, &why);
            }
            Rung::Reimage => {
                tried.push(record(Outcome::Done, None));
                let why = format!("recovery: {}", rung.title());
                let imaging = Move::to(State::Imaging)
                    .because(why)
                    .with(Effect::ForgetLive);
                return leave_rung(imaging, at, tried);
            }
            Rung::Collect | Rung::RestartServices | Rung::Reboot | Rung::PowerCycle => {
                match run_rung(node, now, rung) {
                    RungState::Waits(decision) => return *decision,
                    RungState::Failed(why) => tried.push(record(Outcome::Failed, Some(why))),
                    RungState::Done => tried.push(record(Outcome::Done, None)),
                }
            }
        }
        let done = tried
            .last()
            .is_some_and(|last| last.outcome == Outcome::Done);
        if done && rung.heals() && !node.stop {
            let why = format!("verify by gates: {}", rung.title());
            let validating = Move::to(State::Validating).because(why);
            return leave_rung(validating, at, tried);
        }
    }
    if node.stop {
        return stop_ladder(node, now, tried);
    }
    let why = describe_spent(recovery, "no rung is left");
    end_ladder(node, now, Ended::Spent, tried, &why)
}

/// Leaves the ladder at a rung for another state. The node may come back from there for the next
/// rung.
fn leave_rung(moved: Move, at: usize, went: Vec<Tried>) -> Decision {
    let tried = at + 1;
    Decision::Advance(moved.on(Ladder::Climb { tried, went }))
}

fn stop_ladder(node: &Snapshot, now: Timestamp, went: Vec<Tried>) -> Decision {
    let stopped = Move::to(State::Quarantined)
        .because("the recovery was stopped on request")
        .with(Effect::Stopped);
    let how = Ended::Stopped;
    leave_cluster(node, now, stopped.on(Ladder::End { how, went }))
}

/// Returns whether the changes of the last converge need a reboot.
fn needs_reboot(node: &Snapshot) -> bool {
    node.converged
        .as_ref()
        .is_some_and(|report| !report.reboot_for.is_empty())
}

/// The state of a rung after its steps so far.
enum RungState {
    Waits(Box<Decision>),
    Done,
    Failed(String),
}

/// Runs the steps of a rung. A step that needs an answer of the system runs once, because the next
/// rung is for a system that does not answer. A stop request lets the rung finish: half a power
/// cycle would leave the machine off.
fn run_rung(node: &Snapshot, now: Timestamp, rung: Rung) -> RungState {
    let without_retry = |view: &StepView| match &view.status {
        StepStatus::Failed { at, failure } if rung.needs_answers() => {
            let failure = crate::wire::node::Failure {
                retryable: false,
                ..failure.clone()
            };
            StepView {
                status: StepStatus::Failed { at: *at, failure },
                ..view.clone()
            }
        }
        StepStatus::Queued
        | StepStatus::Running { .. }
        | StepStatus::Lost
        | StepStatus::Succeeded
        | StepStatus::Failed { .. }
        | StepStatus::Cancelled => view.clone(),
    };
    let node = Snapshot {
        steps: node.steps.iter().map(without_retry).collect(),
        ..node.unstoppable()
    };
    let done = Move::to(State::Repairing);
    // A node without a BMC has no report of firmware and BIOS.
    let possible = |step: &Step| node.power_person.is_none() || *step != Step::FirmwareLook;
    let steps: Vec<Step> = rung.steps().iter().copied().filter(possible).collect();
    match follow(&node, now, &steps, || Decision::Advance(done.clone())) {
        // The pool now wants another driver or kernel, so no service was started on the old one,
        // and the gates would measure the old state.
        Decision::Advance(moved)
            if moved == done && rung == Rung::RestartServices && needs_reboot(&node) =>
        {
            RungState::Failed("the stack needs a reboot first, and no service was started".into())
        }
        Decision::Advance(moved) if moved == done => RungState::Done,
        Decision::Advance(Move {
            to: State::Failed,
            reason,
            effects,
            ..
        }) if !effects.contains(&Effect::Stopped) => RungState::Failed(reason.unwrap_or_default()),
        // The job of the step was cancelled.
        Decision::Advance(Move { reason, .. }) => {
            let stopped = Move {
                reason,
                ..Move::to(State::Quarantined)
            }
            .with(Effect::Stopped);
            let how = Ladder::End {
                how: Ended::Stopped,
                went: Vec::new(),
            };
            RungState::Waits(Box::new(leave_cluster(&node, now, stopped.on(how))))
        }
        waits @ (Decision::Wait(_)
        | Decision::Start(_)
        | Decision::Retry(..)
        | Decision::Cancel(_)
        | Decision::Granted(_)
        | Decision::Refused(_)) => RungState::Waits(Box::new(waits)),
    }
}

fn describe_spent(recovery: &Recovery, next: &str) -> String {
    format!("{}; the recovery did not help, {next}", recovery.cause.what)
}

fn end_ladder(
    node: &Snapshot,
    now: Timestamp,
    how: Ended,
    went: Vec<Tried>,
    why: &str,
) -> Decision {
    leave_cluster(
        node,
        now,
        Move::to(State::Quarantined)
            .because(why)
            .on(Ladder::End { how, went }),
    )
}
