//! The linter of gates that are looked at while others load the machine.

use super::gate::{Gate, Suite};

/// Longest time between two looks, in seconds: what slows a machine down may be over by then.
const EVERY_MAX_S: u64 = 60;

/// What is wrong with a gate as one that looks on; nothing where it is none.
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
        format!("it looks every 1 to {EVERY_MAX_S} seconds"),
    );
    check(
        !suite.gates.iter().any(|one| loads(&one)),
        "no gate before it that `during` names loads the machine".into(),
    );
    check(
        !gate.effects.is_empty(),
        "what looks on while others load the machine does not load it itself".into(),
    );
    check(
        gate.argv.is_empty() || !plain || scratch,
        "what looks on is one tool that prints its answer, run once a look".into(),
    );
}
