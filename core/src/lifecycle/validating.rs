//! Gates: all of them, a reboot, and those again that a reboot may break. Fails closed.

use jiff::Timestamp;

use super::decision::{Decision, Move, follow, interrupted};
use super::snapshot::Snapshot;
use super::state::State;
use super::steps::Step;
use crate::gates::{GateResult, Judged, SuiteVerdict, Verdict, judge};

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = interrupted(node, now) {
        return decision;
    }
    let Some(suite) = &node.suite else {
        return fail("the pool names no suite, and a node is never admitted without one");
    };
    let by = Judged { suite, profile: node.profile.as_ref(), wanted: &[], now };
    // Somebody switched it off while it rested.
    let boot: &[Step] = if node.off || node.step(Step::BootDisk).is_some() { &[Step::BootDisk] } else { &[] };
    follow(node, now, &[boot, &[Step::Gates]].concat(), || {
        judged(node, now, Step::Gates, judge(&by, &node.gates), &node.gates, || {
            let again: Vec<String> =
                suite.gates.iter().filter(|gate| gate.after_reboot).map(|gate| gate.id.clone()).collect();
            if again.is_empty() {
                return Decision::Advance(Move::to(State::Admitting));
            }
            follow(node, now, &[Step::RebootTest, Step::GatesAfterReboot], || {
                let verdict = judge(&Judged { wanted: &again, ..by }, &node.gates_after_reboot);
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
        SuiteVerdict::Fail => {
            Decision::Advance(
                Move::to(State::Quarantined).because(summary(results, now, |result| result.verdict == Verdict::Fail)),
            )
        }
        // A tool that crashed says nothing about the hardware: ask once more, then a person must look.
        SuiteVerdict::Unknown if round < step.max_rounds() && !node.stop => Decision::Retry(step, now),
        SuiteVerdict::Unknown => fail(&summary(results, now, |result| match result.verdict {
            Verdict::Error => true,
            Verdict::Skipped => result.required,
            Verdict::Pass | Verdict::Fail => false,
        })),
    }
}

fn fail(reason: &str) -> Decision {
    Decision::Advance(Move { failed_phase: Some(State::Validating), ..Move::to(State::Failed) }.because(reason))
}

/// What is in the way, as people read it; neither shadows nor what is waived.
fn summary(results: &[GateResult], now: Timestamp, counts: impl Fn(&GateResult) -> bool) -> String {
    let waived = |result: &GateResult| result.waived.as_ref().is_some_and(|waived| waived.until > now);
    let counted = results.iter().filter(|result| !result.shadow && !waived(result) && counts(result));
    let told: Vec<String> = counted.map(|result| format!("gate {}: {}", result.gate, result.reason)).collect();
    if told.is_empty() { "a required gate gave no result".into() } else { told.join("; ") }
}
