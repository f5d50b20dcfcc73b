//! Explains a gate or a check: command, parser, criteria. Only the shipped suites and profiles are
//! read.

use muster_core::gates::{CHECKS, Check, Gate, Limit, Mode, Parser, Suite, TEXT};
use muster_core::profiles::HardwareProfile;

pub(super) fn check_lines(check: &Check, suites: &[(&str, Suite)]) -> Vec<String> {
    let mut lines = vec![
        format!("{} {}", check.id, check.title),
        field("finds", check.catches),
    ];
    let mut seen = Vec::new();
    for gate in suites.iter().flat_map(|(_, suite)| &suite.gates) {
        if gate.checks.iter().any(|id| id == check.id) && !seen.contains(&&gate.id) {
            seen.push(&gate.id);
            lines.push(field("gate", &format!("{:<20} {}", gate.id, gate.title)));
        }
    }
    if !check.not_shipped.is_empty() {
        lines.push(field("no gate", check.not_shipped));
    }
    lines
}

fn field(name: &str, text: &str) -> String {
    format!("  {name:<10} {text}")
}

pub(super) fn gate_lines(
    id: &str,
    suites: &[(&str, Suite)],
    profiles: &[(&str, HardwareProfile)],
) -> Option<Vec<String>> {
    let among = suites
        .iter()
        .map(|(name, suite)| (name, suite.gates.iter().find(|gate| gate.id == id)));
    let found: Vec<(&&str, &Gate)> = among
        .filter_map(|(name, gate)| Some((name, gate?)))
        .collect();
    let (_, gate) = found.first()?;
    let mut lines = vec![format!("{} {}", gate.id, gate.title)];
    for check in CHECKS
        .iter()
        .filter(|check| gate.checks.iter().any(|id| id == check.id))
    {
        lines.push(field(
            "covers",
            &format!("{} {}: {}", check.id, check.title, check.catches),
        ));
    }
    let places: Vec<String> = found
        .iter()
        .map(|(suite, gate)| format!("{suite} ({})", gate.mode(None).as_str()))
        .collect();
    lines.push(field("suites", &places.join(", ")));
    lines.push(field("stage", gate.stage.as_str()));
    run_lines(gate, &mut lines);
    reading_lines(gate, &mut lines);
    lines.push(field("holds", "when all of these do:"));
    gate.criteria
        .iter()
        .for_each(|criterion| criterion_lines(criterion, gate, profiles, &mut lines));
    lines.push(field("finding", &gate.finding));
    Some(lines)
}

/// The command of a gate, its environment, the second node's command, and the times.
fn run_lines(gate: &Gate, lines: &mut Vec<String>) {
    if !gate.argv.is_empty() {
        lines.push(field("runs", &gate.argv.join(" ")));
    }
    lines.extend(
        gate.env
            .iter()
            .map(|(name, value)| field("with", &format!("{name}={value}"))),
    );
    if let Some(peer) = &gate.peer {
        let sign = peer
            .says
            .as_ref()
            .map_or("its port is open".to_owned(), |says| {
                format!("it prints {says:?}")
            });
        lines.push(field(
            "meanwhile",
            &format!("on a second node: {}", peer.argv.join(" ")),
        ));
        lines.push(field(
            "",
            &format!(
                "which listens once {sign}, within {} s; then the other way round",
                peer.ready_s
            ),
        ));
    }
    if let Some(window_s) = gate.window_s {
        lines.push(field(
            "twice",
            &format!("{window_s} s apart: what grew meanwhile is held against the limits"),
        ));
    }
    if gate.settle_s > 0 {
        lines.push(field(
            "settles",
            &format!(
                "until {} s after a boot what is missed is measured again",
                gate.settle_s
            ),
        ));
    }
    lines.push(field(
        "at most",
        &format!(
            "{} s, {} again after an error",
            gate.timeout_s, gate.retries
        ),
    ));
}

/// The parser of a gate, and the conditions under which the gate runs.
fn reading_lines(gate: &Gate, lines: &mut Vec<String>) {
    if let Some(parser) = Parser::find(&gate.parser) {
        let state = if parser.experimental {
            " (experimental: no recording of the real tool was read yet)"
        } else {
            ""
        };
        lines.push(field(
            "reads",
            &format!("{}{state}: {}", parser.name, parser.reads),
        ));
    }
    for (what, words) in [
        (
            "needs",
            gate.needs
                .iter()
                .map(|need| need.as_str())
                .collect::<Vec<_>>(),
        ),
        (
            "effects",
            gate.effects.iter().map(|effect| effect.as_str()).collect(),
        ),
        ("only on", gate.arch.iter().map(String::as_str).collect()),
    ] {
        if !words.is_empty() {
            lines.push(field(what, &words.join(", ")));
        }
    }
    lines.extend(
        gate.count
            .iter()
            .map(|count| field("for each", &format!("of {count}"))),
    );
}

fn criterion_lines(
    criterion: &muster_core::gates::Criterion,
    gate: &Gate,
    profiles: &[(&str, HardwareProfile)],
    lines: &mut Vec<String>,
) {
    let of = criterion
        .of
        .as_ref()
        .map(|of| format!(" of {of}"))
        .unwrap_or_default();
    let unit = if criterion.unit == TEXT {
        ""
    } else {
        criterion.unit.as_str()
    };
    let limit = match &criterion.limit {
        Limit::Number(number) => number.to_string(),
        Limit::Text(text) => text.clone(),
    };
    lines.push(
        format!(
            "    {}{of} {} {limit} {unit}",
            criterion.metric, criterion.op
        )
        .trim_end()
        .to_owned(),
    );
    let Limit::Text(text) = &criterion.limit else {
        return;
    };
    let Some(name) = text.strip_prefix("profile:") else {
        return;
    };
    for (model, profile) in profiles {
        let told = match (profile.thresholds.get(name), profile.words.get(name)) {
            (Some(at), _) => {
                let more = [("statistic", &at.statistic), ("conditions", &at.conditions)];
                let more = more.iter().filter_map(|(what, text)| {
                    text.as_ref().map(|text| format!("; {what}: {text}"))
                });
                format!(
                    "{} {} ({}: {}){}",
                    at.value,
                    at.unit,
                    at.provenance,
                    at.source,
                    more.collect::<String>()
                )
            }
            (None, Some(word)) => format!("{} ({}: {})", word.value, word.provenance, word.source),
            (None, None) => continue,
        };
        let mode = match profile.gates.get(&gate.id) {
            Some(policy) if policy.mode != Mode::Required => {
                format!(" [{}: {}]", policy.mode.as_str(), policy.because)
            }
            _ => String::new(),
        };
        lines.push(format!("        {model:<15} {told}{mode}"));
    }
}
