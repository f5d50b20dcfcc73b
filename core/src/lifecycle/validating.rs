//! Gates: all of them, a reboot, and those again that a reboot may break. Fails closed.

use jiff::Timestamp;

use super::decision::{Decision, Move, follow, interrupted};
use super::snapshot::Snapshot;
use super::state::State;
use super::steps::Step;
use crate::gates::{GateResult, SuiteVerdict, Verdict, judge};

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = interrupted(node, now) {
        return decision;
    }
    let Some(suite) = &node.suite else {
        return fail("the pool names no suite, and a node is never admitted without one");
    };
    follow(node, now, &[Step::Gates], || {
        judged(node, now, Step::Gates, judge(suite, &[], &node.gates), &node.gates, || {
            let again: Vec<String> =
                suite.gates.iter().filter(|gate| gate.after_reboot).map(|gate| gate.id.clone()).collect();
            if again.is_empty() {
                return Decision::Advance(Move::to(State::Admitting));
            }
            follow(node, now, &[Step::RebootTest, Step::GatesAfterReboot], || {
                let verdict = judge(suite, &again, &node.gates_after_reboot);
                judged(node, now, Step::GatesAfterReboot, verdict, &node.gates_after_reboot, || {
                    Decision::Advance(Move::to(State::Admitting))
                })
            })
        })
    })
}

fn judged(
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
        SuiteVerdict::Fail => Decision::Advance(
            Move::to(State::Quarantined).because(summary(results, |verdict| verdict == Verdict::Fail)),
        ),
        // A tool that crashed says nothing about the hardware: ask once more, then a person must look.
        SuiteVerdict::Unknown if round < step.max_rounds() && !node.stop => Decision::Retry(step, now),
        SuiteVerdict::Unknown => {
            fail(&summary(results, |verdict| matches!(verdict, Verdict::Error | Verdict::Skipped)))
        }
    }
}

fn fail(reason: &str) -> Decision {
    Decision::Advance(Move { failed_phase: Some(State::Validating), ..Move::to(State::Failed) }.because(reason))
}

fn summary(results: &[GateResult], counts: impl Fn(Verdict) -> bool) -> String {
    let counted = results.iter().filter(|result| result.required && counts(result.verdict));
    let told: Vec<String> = counted.map(|result| format!("gate {}: {}", result.gate, result.reason)).collect();
    if told.is_empty() { "a required gate gave no result".into() } else { told.join("; ") }
}
