//! The linter for gates sampled while other gates load the machine.

use super::gate::{Gate, Suite};

/// Maximum time between two samples, in seconds. A throttling event may be over after a longer
/// pause.
const EVERY_MAX_S: u64 = 60;

/// Adds the problems of a gate with `during`, sampled under load. Gates without `during` are
/// skipped.
pub(super) fn lint_during(gate: &Gate, suite: &Suite, problems: &mut Vec<String>) {
    let Some(during) = &gate.during else { return };
    let place = |gate: &Gate| {
        (
            gate.stage,
            suite.gates.iter().position(|one| one.id == gate.id),
        )
    };
    let loads = |one: &&Gate| {
        during.gates.contains(&one.id) && !one.effects.is_empty() && place(one) < place(gate)
    };
    let plain = gate.each.is_none()
        && gate.window_s.is_none()
        && gate.output.is_none()
        && gate.keep.is_empty()
        && gate.peer.is_none()
        && gate.retries == 0;
    let scratch = gate
        .argv
        .iter()
        .any(|argument| argument.contains("${scratch}"));
    let mut check = |wrong: bool, problem: String| {
        if wrong {
            problems.push(problem);
        }
    };
    check(
        !(1..=EVERY_MAX_S).contains(&during.every_s),
        format!("every_s must be 1 to {EVERY_MAX_S} seconds"),
    );
    check(
        !suite.gates.iter().any(|one| loads(&one)),
        "no earlier gate in `during` loads the machine".into(),
    );
    check(
        !gate.effects.is_empty(),
        "a gate with `during` must not load the machine itself".into(),
    );
    check(
        gate.argv.is_empty() || !plain || scratch,
        "a gate with `during` is a single tool that prints its output, one run at a time".into(),
    );
}
