//! The suite linter. Rejects gates that could pass without a measurement, and gates that are
//! unreadable for an operator.

use std::collections::BTreeSet;

use super::catalogue::{Parser, TEXT};
use super::checks::CHECKS;
use super::gate::{Criterion, Each, Gate, Limit, Need, Op, SideEffect, Suite};
use super::lint_during::lint_during;
use super::lint_pair::lint_pair;
use super::lint_program::lint_program;
use super::mode::Mode;
use super::resolve::{COUNTS, or_more, profile_number, whole};
use super::words::{VARIABLES, starts_shell, variables_of};
use crate::profiles::HardwareProfile;

/// One week in seconds, longer than any soak test.
const TIMEOUT_MAX_S: u64 = 7 * 24 * 3600;
/// Maximum number of retries after an error. A tool with four errors in a row will not give an
/// answer.
pub const RETRIES_MAX: u32 = 3;
/// Maximum time in seconds between the two runs of a growth gate. Other gates wait meanwhile.
const WINDOW_MAX_S: u64 = 3600;
/// Maximum time in seconds after a boot for components to settle. A slower component is treated as
/// failed.
const SETTLE_MAX_S: u64 = 900;
/// Units of counters that only increase.
const GROWING: [&str; 5] = ["errors", "events", "packets", "replays", "ticks"];
/// Units of parts a machine may lack completely. For every other unit a limit of 0 would always
/// pass.
const MAY_BE_NONE: [&str; 3] = ["NICs", "disks", "ports"];
/// Maximum number of extra files kept by a gate, besides its output.
const KEPT_MAX: usize = 8;

/// Returns every reason to reject the suite, formatted as `gate: problem`; empty if the suite is
/// valid.
pub fn lint(suite: &Suite) -> Vec<String> {
    lint_accepted(suite, |_| false)
}

/// Returns the same reasons as [`lint`]. The rule of programs does not hold for a gate that was
/// accepted before the rule: `is_former` is true for the gate.
pub fn lint_accepted(suite: &Suite, is_former: impl Fn(&Gate) -> bool) -> Vec<String> {
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
        lint_during(gate, suite, &mut found);
        if is_former(gate) {
            lint_former(gate, &mut found);
        } else {
            found.extend(lint_program(gate));
        }
        problems.extend(
            found
                .into_iter()
                .map(|problem| format!("{}: {problem}", gate.id)),
        );
    }
    problems
}

/// Returns every reason why the suite gives no answer on nodes of a model: values missing from the
/// profile, or given in another unit. Empty if the suite fits. Optional and shadow gates may lack
/// thresholds: such gates are skipped and report the reason.
pub fn lint_with(suite: &Suite, profile: &HardwareProfile) -> Vec<String> {
    let mut problems = Vec::new();
    for gate in &suite.gates {
        let required = gate.mode(Some(profile)) == Mode::Required;
        let mut problem = |text: String| problems.push(format!("{}: {text}", gate.id));
        if required && Parser::find(&gate.parser).is_some_and(|parser| parser.experimental) {
            problem(format!(
                "the profile requires the gate, but parser {} is experimental",
                gate.parser
            ));
        }
        let names = list_counts(gate).filter_map(|count| count.strip_prefix("profile:"));
        for name in names.filter(|name| required && profile_number(name, profile).is_none()) {
            problem(format!("the profile has no threshold {name} for the count"));
        }
        for name in list_counts(gate).filter_map(|count| count.strip_prefix("profile:")) {
            let value = profile_number(name, profile).map(|(value, _)| value);
            if let Some(value) = value.filter(|value| whole(*value).is_none()) {
                problem(format!(
                    "the profile's {name} is {value}, which is not a count"
                ));
            }
        }
        for Criterion {
            metric,
            op,
            limit,
            unit,
            ..
        } in &gate.criteria
        {
            let Limit::Text(text) = limit else { continue };
            let Some(name) = text.strip_prefix("profile:") else {
                continue;
            };
            match profile_number(name, profile) {
                _ if unit == TEXT => {
                    if required && !profile.words.contains_key(name) {
                        problem(format!("the profile has no word {name}"));
                    }
                }
                None if required => problem(format!("the profile has no threshold {name}")),
                Some((_, its_unit)) if its_unit != unit => {
                    problem(format!(
                        "the profile's {name} is in {its_unit}, the criterion in {unit}"
                    ));
                }
                Some((0.0, _)) if *op == Op::AtLeast && !MAY_BE_NONE.contains(&unit.as_str()) => {
                    problem(format!(
                        "{metric}: the profile's {name} is 0 {unit}, and every value is >= 0"
                    ));
                }
                None | Some(_) => {}
            }
        }
    }
    problems
}

fn lint_gate(gate: &Gate, problems: &mut Vec<String>) {
    let mut check = |wrong: bool, problem: &str| {
        if wrong {
            problems.push(problem.into());
        }
    };
    let plain =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
    check(
        gate.id.is_empty() || gate.id.len() > 100 || !gate.id.chars().all(plain),
        "the id must be 1 to 100 of a-z, 0-9, '-', '.', '_'",
    );
    check(gate.title.is_empty(), "no title");
    check(
        gate.finding.is_empty(),
        "no finding: explain what a failure means",
    );
    check(gate.timeout_s == 0, "no timeout");
    check(gate.timeout_s > TIMEOUT_MAX_S, "the timeout exceeds a week");
    check(
        gate.criteria.is_empty(),
        "no criteria: the gate would pass for every measurement",
    );
    check(
        gate.output
            .as_ref()
            .is_some_and(|name| name.is_empty() || name.contains('/') || name.contains("..")),
        "output must be a plain file name",
    );
    check(
        !list_counts(gate).all(is_count),
        "count is neither a number from 1 nor a known reference",
    );
    lint_each(gate, problems);
    lint_running(gate, problems);
    lint_window(gate, problems);
    lint_pair(gate, problems);
    match Parser::find(&gate.parser) {
        None => problems.push(format!("unknown parser {:?}", gate.parser)),
        Some(parser) => lint_parsed(gate, parser, problems),
    }
}

/// Checks a gate from before the rule of programs by the older rule alone.
fn lint_former(gate: &Gate, problems: &mut Vec<String>) {
    let peer = gate.peer.as_ref();
    for (end, argv) in [
        ("argv", Some(&gate.argv)),
        ("peer", peer.map(|peer| &peer.argv)),
    ] {
        if argv.is_some_and(|argv| starts_shell(argv)) {
            problems.push(format!("{end} must not start a shell"));
        }
    }
}

/// Returns every count of the gate: `best` of each criterion and the gate's own `count`.
fn list_counts(gate: &Gate) -> impl Iterator<Item = &str> {
    let best = gate
        .criteria
        .iter()
        .filter_map(|criterion| criterion.best.as_deref());
    best.chain(gate.count.as_deref().map(|count| or_more(count).0))
}

fn is_count(count: &str) -> bool {
    count.starts_with("profile:")
        || COUNTS.contains(&count)
        || matches!(count.parse::<u64>(), Ok(1..=100_000))
}

/// Checks side effects, needs, retries and kept files of a gate.
fn lint_running(gate: &Gate, problems: &mut Vec<String>) {
    let plain_file =
        |name: &String| !name.is_empty() && !name.contains('/') && !name.contains("..");
    let variable = |name: &String| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    let mut check = |wrong: bool, problem: String| {
        if wrong {
            problems.push(problem);
        }
    };
    check(
        gate.retries > RETRIES_MAX,
        format!("at most {RETRIES_MAX} retries"),
    );
    check(
        gate.keep.len() > KEPT_MAX || !gate.keep.iter().all(plain_file),
        format!("keep is at most {KEPT_MAX} plain file names"),
    );
    check(
        !gate.env.keys().all(variable),
        "variables of env use only A-Z, 0-9 and _".into(),
    );
    check(
        gate.argv.is_empty() && !(gate.env.is_empty() && gate.keep.is_empty()),
        "env and keep need a tool in argv".into(),
    );
    let archs = ["amd64", "arm64"];
    check(
        !gate.arch.iter().all(|arch| archs.contains(&arch.as_str())),
        "arch is amd64 or arm64".into(),
    );
    let gpu = gate.effects.contains(&SideEffect::GpuLoad);
    check(
        !gate.effects.is_empty() && !gate.needs.contains(&Need::Drained),
        "a gate that loads or writes needs a drained node".into(),
    );
    check(
        gpu && !gate.needs.contains(&Need::GpusIdle),
        "a gate that loads GPUs needs gpus_idle".into(),
    );
    check(
        gate.settle_s > SETTLE_MAX_S,
        format!("settle_s is at most {SETTLE_MAX_S} seconds"),
    );
    let looks = gate.effects.is_empty() && gate.during.is_none() && gate.peer.is_none();
    check(
        gate.settle_s > 0 && !looks,
        "settle_s needs a gate that only reads: no load, no peer, no `during`".into(),
    );
    for unknown in gate
        .checks
        .iter()
        .filter(|id| CHECKS.iter().all(|check| check.id != id.as_str()))
    {
        check(true, format!("unknown check {unknown:?}"));
    }
}

/// Checks a gate that measures growth between two runs: only counters are allowed, and the window
/// is bounded.
fn lint_window(gate: &Gate, problems: &mut Vec<String>) {
    let Some(window_s) = gate.window_s else {
        return;
    };
    let mut check = |wrong: bool, problem: String| {
        if wrong {
            problems.push(problem);
        }
    };
    check(
        !(1..=WINDOW_MAX_S).contains(&window_s),
        format!("a window is 1 to {WINDOW_MAX_S} seconds"),
    );
    check(
        gate.peer.is_some(),
        "a window needs a gate that can run twice on one node".into(),
    );
    for criterion in gate
        .criteria
        .iter()
        .filter(|criterion| !GROWING.contains(&criterion.unit.as_str()))
    {
        let Criterion { metric, unit, .. } = criterion;
        check(
            true,
            format!("{metric}: {unit} is not a counter, and does not grow within the window"),
        );
    }
}

/// Checks a gate that runs once per disk: argv must name the disk, and the gate must count its
/// runs.
fn lint_each(gate: &Gate, problems: &mut Vec<String>) {
    let words: Vec<&str> = gate
        .argv
        .iter()
        .flat_map(|argument| variables_of(argument))
        .collect();
    for word in words.iter().filter(|word| !VARIABLES.contains(word)) {
        problems.push(format!("argv names the unknown variable {word:?}"));
    }
    let uses_each = words.contains(&"each");
    match &gate.each {
        Some(_) if !uses_each => {
            problems.push("the gate has `each`, but argv does not name ${each}".into())
        }
        None if uses_each => problems.push("argv names ${each}, but the gate has no `each`".into()),
        _ => {}
    }
    let counted = match gate.each {
        Some(Each::NvmeDisks) => gate.count.as_deref() == Some("facts:nvme_disks"),
        Some(Each::Disks) => gate.count.as_deref() == Some("facts:disks"),
        Some(Each::SataDisks) => gate.count.as_deref() == Some("facts:sata_disks"),
        Some(Each::Mounts) => gate.count.as_deref() == Some("stack:mounts"),
        None => true,
    };
    if !counted {
        problems.push("`each` and `count` must name the same disks or mounts".into());
    }
}

fn lint_parsed(gate: &Gate, parser: &Parser, problems: &mut Vec<String>) {
    match (parser.builtin, gate.argv.is_empty()) {
        (true, false) => problems.push(format!(
            "parser {} measures by itself and takes no argv",
            parser.name
        )),
        (false, true) => problems.push(format!("parser {} needs an argv", parser.name)),
        _ => {}
    }
    if parser.experimental && gate.mode(None) == Mode::Required {
        let name = parser.name;
        problems.push(format!(
            "parser {name} has not read the real tool's output: required must be false, or shadow true"
        ));
    }
    for criterion in &gate.criteria {
        let metric = &criterion.metric;
        if criterion.of.as_deref() == Some("") {
            problems.push(format!("{metric}: of is empty"));
        }
        let each = parser
            .metrics
            .iter()
            .any(|known| known.name == *metric && !known.per.is_empty());
        let ordered =
            matches!(criterion.op, Op::AtLeast | Op::AtMost) && criterion.of.is_none() && each;
        if criterion.best.is_some() && !ordered {
            problems.push(format!(
                "{metric}: `best` needs a metric per entity, >= or <=, and no `of`"
            ));
        }
        match parser.unit(metric) {
            None => problems.push(format!("parser {} has no metric {metric:?}", parser.name)),
            Some(_) if criterion.unit.is_empty() => problems.push(format!("{metric}: no unit")),
            Some(unit) if unit != criterion.unit => problems.push(format!(
                "{metric}: the unit is {unit}, not {}",
                criterion.unit
            )),
            Some(unit) => lint_limit(metric, unit, criterion.op, &criterion.limit, problems),
        }
    }
}

fn lint_limit(metric: &str, unit: &str, op: Op, limit: &Limit, problems: &mut Vec<String>) {
    let is_text = unit == TEXT;
    if is_text && !matches!(op, Op::Equal | Op::NotEqual) {
        problems.push(format!("{metric}: words support only == and !="));
    }
    match limit {
        Limit::Number(_) if is_text => {
            problems.push(format!("{metric}: a word cannot be compared with a number"))
        }
        Limit::Number(number) if !number.is_finite() || *number < 0.0 => {
            problems.push(format!("{metric}: {number} is not a limit"))
        }
        Limit::Number(0.0) if op == Op::AtLeast => {
            problems.push(format!("{metric}: every value is >= 0"))
        }
        Limit::Number(_) => {}
        Limit::Text(text) => match text.split_once(':') {
            Some(("profile", name)) if !name.is_empty() => {}
            Some(("stack", "packages" | "services" | "kernel_args" | "mounts")) if !is_text => {}
            Some(("variable", name)) if is_text && VARIABLES.contains(&name) => {}
            None if is_text && !text.is_empty() => {}
            _ => problems.push(format!("{metric}: {text:?} is not a limit for this metric")),
        },
    }
}
