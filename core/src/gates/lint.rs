//! The linter of suites: refuses gates that could pass without having measured anything, or that nobody could read.

use std::collections::BTreeSet;

use super::assess::COUNTS;
use super::catalogue::{Parser, TEXT};
use super::{Each, Gate, Limit, Op, Suite};

/// A week: longer than any soak.
const TIMEOUT_MAX_S: u64 = 7 * 24 * 3600;
/// Words that argv may hold as `${word}`; `each` is the disk of gates that run once per disk.
pub const VARIABLES: [&str; 7] = ["agent_address", "agent_url", "iperf_port", "address", "hostname", "each", "scratch"];

/// Every reason why a suite must not be used, as `gate: what is wrong`; empty when there is none.
pub fn lint(suite: &Suite) -> Vec<String> {
    let mut problems = Vec::new();
    if suite.name.is_empty() || suite.version.is_empty() {
        problems.push("the suite has no name or no version".into());
    }
    if suite.gates.is_empty() {
        problems.push("the suite has no gates".into());
    }
    let mut ids = BTreeSet::new();
    for gate in &suite.gates {
        if !ids.insert(&gate.id) {
            problems.push(format!("{}: two gates have this id", gate.id));
        }
        let mut found = Vec::new();
        lint_gate(gate, &mut found);
        problems.extend(found.into_iter().map(|problem| format!("{}: {problem}", gate.id)));
    }
    problems
}

fn lint_gate(gate: &Gate, problems: &mut Vec<String>) {
    let mut check = |wrong: bool, problem: &str| {
        if wrong {
            problems.push(problem.into());
        }
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
    check(
        gate.id.is_empty() || gate.id.len() > 100 || !gate.id.chars().all(plain),
        "the id must be 1 to 100 of a-z, 0-9, '-', '.', '_'",
    );
    check(gate.title.is_empty(), "no title");
    check(gate.finding.is_empty(), "no finding: what does a failure mean?");
    check(gate.timeout_s == 0, "no timeout");
    check(gate.timeout_s > TIMEOUT_MAX_S, "a timeout of more than a week");
    check(gate.criteria.is_empty(), "no criteria: it would pass whatever is measured");
    let shells = ["sh", "bash", "dash", "zsh", "env"];
    let program = gate.argv.first().map(|program| program.rsplit('/').next().unwrap_or(program));
    check(program.is_some_and(|program| shells.contains(&program)), "argv must not start a shell");
    check(
        gate.output.as_ref().is_some_and(|name| name.is_empty() || name.contains('/') || name.contains("..")),
        "output must be a plain file name",
    );
    let count_is_known = |count: &String| {
        count.starts_with("profile:")
            || COUNTS.contains(&count.as_str())
            || matches!(count.parse::<u64>(), Ok(1..=100_000))
    };
    check(!gate.count.as_ref().is_none_or(count_is_known), "count is neither a number from 1 nor a known reference");
    lint_each(gate, problems);
    match Parser::find(&gate.parser) {
        None => problems.push(format!("unknown parser {:?}", gate.parser)),
        Some(parser) => lint_parsed(gate, parser, problems),
    }
}

/// A gate that runs once per disk must name the disk, and count what it ran for.
fn lint_each(gate: &Gate, problems: &mut Vec<String>) {
    let words: Vec<&str> = gate.argv.iter().flat_map(|argument| variables_of(argument)).collect();
    for word in words.iter().filter(|word| !VARIABLES.contains(word)) {
        problems.push(format!("argv names the unknown variable {word:?}"));
    }
    let uses_each = words.contains(&"each");
    match &gate.each {
        Some(_) if !uses_each => problems.push("it runs for each disk, but argv does not name ${each}".into()),
        None if uses_each => problems.push("argv names ${each}, but the gate has no `each`".into()),
        _ => {}
    }
    let counted = match gate.each {
        Some(Each::NvmeDisks) => gate.count.as_deref() == Some("facts:nvme_disks"),
        Some(Each::Disks) => gate.count.as_deref() == Some("facts:disks"),
        None => true,
    };
    if !counted {
        problems.push("a gate that runs for each disk must count the same disks of the facts".into());
    }
}

fn lint_parsed(gate: &Gate, parser: &Parser, problems: &mut Vec<String>) {
    match (parser.builtin, gate.argv.is_empty()) {
        (true, false) => problems.push(format!("parser {} measures by itself and takes no argv", parser.name)),
        (false, true) => problems.push(format!("parser {} needs an argv", parser.name)),
        _ => {}
    }
    if parser.experimental && gate.required {
        problems
            .push(format!("parser {} was never seen on the real tool's output: required must be false", parser.name));
    }
    for criterion in &gate.criteria {
        let metric = &criterion.metric;
        match parser.unit(metric) {
            None => problems.push(format!("parser {} gives no metric {metric:?}", parser.name)),
            Some(_) if criterion.unit.is_empty() => problems.push(format!("{metric}: no unit")),
            Some(unit) if unit != criterion.unit => {
                problems.push(format!("{metric}: is measured in {unit}, not {}", criterion.unit))
            }
            Some(unit) => lint_limit(metric, unit, criterion.op, &criterion.limit, problems),
        }
    }
}

fn lint_limit(metric: &str, unit: &str, op: Op, limit: &Limit, problems: &mut Vec<String>) {
    let is_text = unit == TEXT;
    if is_text && !matches!(op, Op::Equal | Op::NotEqual) {
        problems.push(format!("{metric}: words are only == or !="));
    }
    match limit {
        Limit::Number(_) if is_text => problems.push(format!("{metric}: a word cannot be held against a number")),
        Limit::Number(number) if !number.is_finite() || *number < 0.0 => {
            problems.push(format!("{metric}: {number} is no limit"))
        }
        Limit::Number(0.0) if op == Op::AtLeast => problems.push(format!("{metric}: everything is >= 0")),
        Limit::Number(_) => {}
        Limit::Text(text) => match text.split_once(':') {
            Some(("profile", name)) if !is_text && !name.is_empty() => {}
            Some(("stack", "packages" | "services" | "kernel_args")) if !is_text => {}
            Some(("variable", name)) if is_text && VARIABLES.contains(&name) => {}
            None if is_text && !text.is_empty() => {}
            _ => problems.push(format!("{metric}: {text:?} is no limit for it")),
        },
    }
}

/// The words of `${word}` in an argument.
fn variables_of(argument: &str) -> Vec<&str> {
    argument.split("${").skip(1).map(|rest| rest.split_once('}').map_or(rest, |(word, _)| word)).collect()
}
