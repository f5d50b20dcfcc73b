//! Runs all gates, reboots, and repeats the gates that a reboot may break. Fails closed.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, follow, interrupted, wait_for_step};
use super::faults::{describe_gates, describe_unanswered, failure, fault};
use super::snapshot::Snapshot;
use super::state::State;
use super::steps::Step;
use crate::gates::{GateResult, Judged, SuiteVerdict, Verdict, judge};
use crate::recovery::Cause;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = interrupted(node, now) {
        return decision;
    }
    let measured = run_gates(node, now);
    if let (false, Some(view)) = (matches!(measured, Decision::Wait(_)), node.active()) {
        // The verdict changed while a step was running, for example because a waiver expired. The
        // running step ends first.
        return wait_for_step(node, view.step, None);
    }
    match measured {
        Decision::Advance(failed)
            if failed.to == State::Failed && !failed.effects.contains(&Effect::Stopped) =>
        {
            // A machine that cannot be measured, or does not return from a reboot, is also a fault.
            // A problem that only a person can fix is not. A tool without an answer counts as a
            // fault only during a recovery, with the recovery's cause.
            let steps = [Step::Gates, Step::RebootTest, Step::GatesAfterReboot];
            let broken = steps
                .into_iter()
                .find_map(|step| Some((step, failure(node, step)?)));
            let cause = match broken {
                Some((step, failure)) => Cause::step(step.as_str(), failure),
                None => node.recovery.as_ref().map(|recovery| {
                    let what = failed.reason.clone().unwrap_or_default();
                    Cause {
                        what,
                        ..recovery.cause.clone()
                    }
                }),
            };
            match cause {
                Some(cause) => fault(node, now, cause, failed),
                None => Decision::Advance(failed),
            }
        }
        other @ (Decision::Wait(_)
        | Decision::Advance(_)
        | Decision::Start(_)
        | Decision::Retry(..)
        | Decision::Cancel(_)
        | Decision::Granted(_)
        | Decision::Refused(_)) => other,
    }
}

fn run_gates(node: &Snapshot, now: Timestamp) -> Decision {
    let Some(suite) = &node.suite else {
        return fail("the pool names no suite, and a node is never admitted without one");
    };
    let by = Judged {
        suite,
        profile: node.profile.as_ref(),
        wanted: &[],
        now,
    };
    // A person powered the node off while at rest.
    let boot: &[Step] = if node.off || node.step(Step::BootDisk).is_some() {
        &[Step::BootDisk]
    } else {
        &[]
    };
    follow(node, now, &[boot, &[Step::Gates]].concat(), || {
        decide_by_verdict(
            node,
            now,
            Step::Gates,
            judge(&by, &node.gates),
            &node.gates,
            || {
                let again: Vec<String> = suite
                    .gates
                    .iter()
                    .filter(|gate| gate.after_reboot)
                    .map(|gate| gate.id.clone())
                    .collect();
                if again.is_empty() {
                    return Decision::Advance(Move::to(State::Admitting));
                }
                follow(
                    node,
                    now,
                    &[Step::RebootTest, Step::GatesAfterReboot],
                    || {
                        let verdict = judge(
                            &Judged {
                                wanted: &again,
                                ..by
                            },
                            &node.gates_after_reboot,
                        );
                        decide_by_verdict(
                            node,
                            now,
                            Step::GatesAfterReboot,
                            verdict,
                            &node.gates_after_reboot,
                            || Decision::Advance(Move::to(State::Admitting)),
                        )
                    },
                )
            },
        )
    })
}

fn decide_by_verdict(
    node: &Snapshot,
    now: Timestamp,
    step: Step,
    verdict: SuiteVerdict,
    results: &[GateResult],
    passed: impl FnOnce() -> Decision,
) -> Decision {
    let round = node.step(step).map_or(1, |view| view.round);
    match verdict {
        SuiteVerdict::Pass => passed(),
        SuiteVerdict::Fail => {
            let what = describe_gates(results, now, |result| result.verdict == Verdict::Fail);
            let quarantined = Move::to(State::Quarantined).because(what.clone());
            fault(node, now, Cause::gates(results, now, what), quarantined)
        }
        // A crashed tool proves no hardware fault: the gates run once more, then a person must
        // inspect the node.
        SuiteVerdict::Unknown if round < step.max_rounds() && !node.stop => {
            Decision::Retry(step, now)
        }
        SuiteVerdict::Unknown => fail(&describe_unanswered(results, now)),
    }
}

fn fail(reason: &str) -> Decision {
    Decision::Advance(
        Move {
            failed_phase: Some(State::Validating),
            ..Move::to(State::Failed)
        }
        .because(reason),
    )
}
