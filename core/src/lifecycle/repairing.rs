//! A ladder is climbed: rung by rung, until one may have helped. Then the gates say whether it did.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Ladder, Move, follow, interrupted, leave_cluster};
use super::quarantined::TO_MAKER;
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

fn climb(node: &Snapshot, now: Timestamp, recovery: &Recovery) -> Decision {
    let means = Means {
        bmc: node.power_person.is_none(),
        protected: node.protected,
        held: node.held,
    };
    let mut went: Vec<Tried> = Vec::new();
    for (at, &rung) in recovery.rungs.iter().enumerate().skip(recovery.tried) {
        let tried = |outcome, why| Tried { rung, outcome, why };
        // One that has begun is seen through: the next one must not come beside it.
        let untouched = rung.steps().iter().all(|step| node.step(*step).is_none());
        if node.stop && untouched {
            break;
        }
        if let Some(why) = recovery.refusal(rung, means).filter(|_| untouched) {
            went.push(tried(Outcome::Skipped, Some(why.to_owned())));
            continue;
        }
        if let Some(hold) = node.hold.as_ref().filter(|_| untouched) {
            return over(
                node,
                now,
                Ended::HeldBack,
                went,
                &format!("{}; {}", recovery.cause.what, hold.why()),
            );
        }
        match rung {
            Rung::Rma => {
                went.push(tried(Outcome::Done, None));
                return over(node, now, Ended::Spent, went, &spent(recovery, TO_MAKER));
            }
            Rung::Reimage => {
                went.push(tried(Outcome::Done, None));
                let imaging =
                    Move::to(State::Imaging).because(format!("recovery: {}", rung.title()));
                return Decision::Advance(imaging.with(Effect::ForgetLive).on(Ladder::Climb {
                    tried: at + 1,
                    went,
                }));
            }
            Rung::Collect | Rung::RestartServices | Rung::Reboot | Rung::PowerCycle => {
                match tread(node, now, rung) {
                    Trod::Waits(decision) => return *decision,
                    Trod::Failed(why) => went.push(tried(Outcome::Failed, Some(why))),
                    // The pool asks for another driver or kernel by now: nothing was started that would meet the old one. Gates would see what is as before.
                    Trod::Done if rung == Rung::RestartServices && waits_for_reboot(node) => {
                        went.push(tried(
                            Outcome::Failed,
                            Some("its stack waits for a reboot, and nothing was started".into()),
                        ));
                    }
                    Trod::Done => {
                        went.push(tried(Outcome::Done, None));
                        if rung.heals() && !node.stop {
                            let verified = Move::to(State::Validating)
                                .because(format!("verify by gates: {}", rung.title()));
                            return Decision::Advance(verified.on(Ladder::Climb {
                                tried: at + 1,
                                went,
                            }));
                        }
                    }
                }
            }
        }
    }
    if node.stop {
        let stopped = Move::to(State::Quarantined)
            .because("its recovery was stopped on request")
            .with(Effect::Stopped);
        return leave_cluster(
            node,
            now,
            stopped.on(Ladder::End {
                how: Ended::Stopped,
                went,
            }),
        );
    }
    over(
        node,
        now,
        Ended::Spent,
        went,
        &spent(recovery, "no rung is left"),
    )
}

/// Whether what converge brought holds only after a reboot.
fn waits_for_reboot(node: &Snapshot) -> bool {
    node.converged
        .as_ref()
        .is_some_and(|report| !report.reboot_for.is_empty())
}

/// How far a rung is.
enum Trod {
    Waits(Box<Decision>),
    Done,
    Failed(String),
}

/// Works through a rung's steps. Each is tried once where the system must answer: one that does not is what the next rung is for. Whoever stops the ladder
/// has its rung done to the end: a machine that is off after half a power cycle is nobody's help.
fn tread(node: &Snapshot, now: Timestamp, rung: Rung) -> Trod {
    let once = |view: &StepView| match &view.status {
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
        _ => view.clone(),
    };
    let node = Snapshot {
        steps: node.steps.iter().map(once).collect(),
        ..node.unstoppable()
    };
    let done = Move::to(State::Repairing);
    // Where there is no BMC, nobody says what firmware and BIOS are.
    let asked = |step: &Step| node.power_person.is_none() || *step != Step::FirmwareLook;
    let steps: Vec<Step> = rung.steps().iter().copied().filter(asked).collect();
    match follow(&node, now, &steps, || Decision::Advance(done.clone())) {
        Decision::Advance(moved) if moved == done => Trod::Done,
        Decision::Advance(Move {
            to: State::Failed,
            reason,
            effects,
            ..
        }) if !effects.contains(&Effect::Stopped) => Trod::Failed(reason.unwrap_or_default()),
        // Stopped by whoever cancelled its job.
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
            Trod::Waits(Box::new(leave_cluster(&node, now, stopped.on(how))))
        }
        waits => Trod::Waits(Box::new(waits)),
    }
}

fn spent(recovery: &Recovery, next: &str) -> String {
    format!("{}; its recovery did not help, {next}", recovery.cause.what)
}

fn over(node: &Snapshot, now: Timestamp, how: Ended, went: Vec<Tried>, why: &str) -> Decision {
    leave_cluster(
        node,
        now,
        Move::to(State::Quarantined)
            .because(why)
            .on(Ladder::End { how, went }),
    )
}
