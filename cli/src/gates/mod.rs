//! `muster gate`: the gates that come with Muster, the linter, and what parsers read, without a server. Runs no gate: `muster-node gate` does.

mod parse; // What a parser reads from a file
mod tried; // What a gate makes of a file

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use muster_core::gates::{
    CHECKS, Check, Gate, Limit, Mode, PROFILES, Parser, SUITES, Shipped, Suite, TEXT, lint,
    lint_profile, lint_with,
};
use muster_core::profiles::HardwareProfile;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::exit::{Ended, Exit};
use crate::client::files;
use crate::client::output::Output;

/// What can be asked of gates.
#[derive(Debug, Subcommand)]
pub(crate) enum GateVerb {
    /// List the gates that come with Muster, and which suites have them.
    List {
        /// Only those of this suite.
        #[arg(long)]
        suite: Option<String>,
    },
    /// Tell what a gate measures, by which thresholds, from where; or what covers a check (A1 to E5).
    Explain { id: String },
    /// Print a suite or hardware profile that comes with Muster as it is written, in TOML: to read, or to begin one of your own with.
    Show { name: String },
    /// Say what is wrong with suites and hardware profiles.
    Lint {
        /// TOML; what it is shows in what is in it.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Hold suites against this profile as well: a file, or the name of one that comes with Muster.
        #[arg(long)]
        profile: Vec<String>,
    },
    /// Show what a parser reads from a tool's answer: metrics, units, what each belongs to, versions, or why a gate would have no answer. Exits with 1
    /// then. docs/parsers.md lists the parsers.
    Parse(parse::ParseArgs),
    /// Hold a tool's answer that was kept against a gate's criteria: each value, its limit, the verdict. Exits with 1 unless it passes.
    Try(tried::TryArgs),
}

/// Longest file, in bytes.
const LONGEST: u64 = 4 << 20;

/// Does what was asked.
///
/// # Errors
/// Exit code 2 when the linter refuses something, 3 when there is no such gate.
pub(crate) fn run(output: Output, verb: GateVerb) -> anyhow::Result<()> {
    match verb {
        GateVerb::List { suite } => list(output, suite.as_deref()),
        GateVerb::Explain { id } => explain(output, &id),
        GateVerb::Show { name } => show(output, &name),
        GateVerb::Lint { files, profile } => lint_files(output, &files, &profile),
        GateVerb::Parse(args) => parse::run(output, args),
        GateVerb::Try(args) => tried::run(output, args),
    }
}

/// As TOML, comments with it; as a document where one was asked for.
fn show(output: Output, name: &str) -> anyhow::Result<()> {
    let shipped = files::shipped(name)?;
    let document: serde_json::Value = parsed(name, shipped.text)?;
    output.print_lines(&document, || {
        shipped.text.lines().map(str::to_owned).collect()
    })
}

fn suites() -> anyhow::Result<Vec<(&'static str, Suite)>> {
    let read = |shipped: &Shipped| {
        Ok((
            shipped.name,
            toml::from_str(shipped.text).context(shipped.name)?,
        ))
    };
    SUITES.iter().map(read).collect()
}

fn profiles() -> anyhow::Result<Vec<(&'static str, HardwareProfile)>> {
    let read = |shipped: &Shipped| {
        Ok((
            shipped.name,
            toml::from_str(shipped.text).context(shipped.name)?,
        ))
    };
    PROFILES.iter().map(read).collect()
}

/// A gate with the suites that have it.
#[derive(Serialize)]
struct Listed {
    id: String,
    title: String,
    checks: Vec<String>,
    stage: &'static str,
    parser: String,
    /// Whether it takes two nodes: one that listens, and one that measures.
    pair: bool,
    /// By the suite's name: `required`, `optional` or `shadow`.
    suites: Vec<(String, &'static str)>,
}

fn list(output: Output, only: Option<&str>) -> anyhow::Result<()> {
    let mut listed: Vec<Listed> = Vec::new();
    for (name, suite) in suites()?
        .into_iter()
        .filter(|(name, _)| only.is_none_or(|only| only == *name))
    {
        for gate in suite.gates {
            let place = (name.to_owned(), gate.mode(None).as_str());
            match listed.iter_mut().find(|known| known.id == gate.id) {
                Some(known) => known.suites.push(place),
                None => listed.push(Listed {
                    stage: gate.stage.as_str(),
                    pair: gate.peer.is_some(),
                    id: gate.id,
                    title: gate.title,
                    checks: gate.checks,
                    parser: gate.parser,
                    suites: vec![place],
                }),
            }
        }
    }
    if listed.is_empty() {
        let names: Vec<&str> = SUITES.iter().map(|shipped| shipped.name).collect();
        return Err(missing(format!(
            "no such suite; there are {}",
            names.join(", ")
        )));
    }
    output.print_lines(&listed, || {
        let line = |gate: &Listed| {
            let place = |(suite, mode): &(String, &str)| match *mode {
                "required" => suite.clone(),
                mode => format!("{suite} ({mode})"),
            };
            let places: Vec<String> = gate.suites.iter().map(place).collect();
            let nodes = if gate.pair { " (two nodes)" } else { "" };
            let what = format!(
                "{:<20} {:<9} {:<9} {}{nodes}",
                gate.id,
                gate.checks.join(","),
                gate.stage,
                gate.title
            );
            [what, format!("{:<40} {}", "", places.join(", "))]
        };
        listed.iter().flat_map(line).collect()
    })
}

fn missing(told: String) -> anyhow::Error {
    Ended {
        exit: Exit::NotFound,
        told,
    }
    .into()
}

/// What is told of a gate or a check.
#[derive(Serialize)]
struct Explained {
    id: String,
    lines: Vec<String>,
}

fn explain(output: Output, id: &str) -> anyhow::Result<()> {
    let suites = suites()?;
    let lines = match CHECKS
        .iter()
        .find(|check| check.id.eq_ignore_ascii_case(id))
    {
        Some(check) => check_lines(check, &suites),
        None => gate_lines(id, &suites, &profiles()?).ok_or_else(|| {
            missing(format!(
                "no gate {id:?} comes with Muster; `muster gate list` shows them"
            ))
        })?,
    };
    output.print_lines(
        &Explained {
            id: id.to_owned(),
            lines: lines.clone(),
        },
        || lines,
    )
}

fn check_lines(check: &Check, suites: &[(&str, Suite)]) -> Vec<String> {
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

fn gate_lines(
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

/// A file and what is wrong with it.
#[derive(Serialize)]
struct Linted {
    file: String,
    problems: Vec<String>,
}

fn lint_files(output: Output, files: &[PathBuf], with: &[String]) -> anyhow::Result<()> {
    let with: Vec<(String, HardwareProfile)> = with
        .iter()
        .map(|word| Ok((word.clone(), profile(word)?)))
        .collect::<anyhow::Result<_>>()?;
    let mut linted = Vec::with_capacity(files.len());
    for file in files {
        let problems =
            problems(&read(file)?, &with).unwrap_or_else(|error| vec![format!("{error:#}")]);
        linted.push(Linted {
            file: file.display().to_string(),
            problems,
        });
    }
    let count: usize = linted.iter().map(|linted| linted.problems.len()).sum();
    output.print_lines(&linted, || {
        let lines = |linted: &Linted| match linted.problems.as_slice() {
            [] => vec![format!("{}: sound", linted.file)],
            problems => problems
                .iter()
                .map(|problem| format!("{}: {problem}", linted.file))
                .collect(),
        };
        linted.iter().flat_map(lines).collect()
    })?;
    match count {
        0 => Ok(()),
        count => Err(Ended {
            exit: Exit::Usage,
            told: format!("the linter refuses this: {count} problems"),
        }
        .into()),
    }
}

/// What is wrong with a suite or a profile.
fn problems(text: &str, with: &[(String, HardwareProfile)]) -> anyhow::Result<Vec<String>> {
    let table: toml::Table = toml::from_str(text)?;
    if !table.contains_key("gates") || table.contains_key("root_disk") {
        let profile: HardwareProfile = toml::from_str(text)?;
        return Ok(lint_profile(&profile)
            .into_iter()
            .map(|(part, problem)| format!("{part}: {problem}"))
            .collect());
    }
    let suite: Suite = toml::from_str(text)?;
    let mut problems = lint(&suite);
    for (name, profile) in with {
        problems.extend(
            lint_with(&suite, profile)
                .into_iter()
                .map(|problem| format!("with {name}: {problem}")),
        );
    }
    Ok(problems)
}

fn profile(word: &str) -> anyhow::Result<HardwareProfile> {
    named(PROFILES, word)
}

/// A file, or what comes with Muster under this name.
fn named<T: DeserializeOwned>(among: &[Shipped], word: &str) -> anyhow::Result<T> {
    match Shipped::find(among, word) {
        Some(shipped) if !Path::new(word).exists() => parsed(word, shipped.text),
        _ => parsed(word, &read(Path::new(word))?),
    }
}

fn parsed<T: DeserializeOwned>(name: &str, text: &str) -> anyhow::Result<T> {
    toml::from_str(text).with_context(|| name.to_owned())
}

fn read(path: &Path) -> anyhow::Result<String> {
    let size = std::fs::metadata(path)
        .with_context(|| path.display().to_string())?
        .len();
    anyhow::ensure!(
        size <= LONGEST,
        "{} is longer than {LONGEST} bytes",
        path.display()
    );
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_and_check_is_explained() {
        let (suites, profiles) = (suites().unwrap(), profiles().unwrap());
        for gate in suites.iter().flat_map(|(_, suite)| &suite.gates) {
            let lines = gate_lines(&gate.id, &suites, &profiles).unwrap().join("\n");
            assert!(
                lines.contains(&gate.finding) && lines.contains(&gate.parser),
                "{lines}"
            );
        }
        for check in CHECKS {
            let lines = check_lines(check, &suites).join("\n");
            assert!(
                lines.contains("  gate ") != lines.contains("no gate"),
                "{lines}"
            );
        }
        let nvlink = gate_lines("gpu.nvlink", &suites, &profiles)
            .unwrap()
            .join("\n");
        for told in [
            "A5 NVLink state",
            "nvidia-smi nvlink -s",
            "hgx-h100-80g",
            "26.562 GB/s (seed: ",
            "smoke (required)",
        ] {
            assert!(nvlink.contains(told), "{told}: {nvlink}");
        }
        let pair = gate_lines("ib-write-bw-pair", &suites, &profiles)
            .unwrap()
            .join("\n");
        for told in [
            "on a second node: ib_write_bw",
            "once its port is open, within 15 s",
            "380 Gb/s (seed: ",
        ] {
            assert!(pair.contains(told), "{told}: {pair}");
        }
        assert!(gate_lines("no.such", &suites, &profiles).is_none());
    }

    #[test]
    fn the_linter_tells_a_suite_from_a_profile_and_both_from_nonsense() {
        let with = [("h100".to_owned(), profile("hgx-h100-80g").unwrap())];
        let admit = Shipped::find(SUITES, "admit").unwrap().text;
        assert_eq!(problems(admit, &with).unwrap(), Vec::<String>::new());
        let loose = admit.replacen("timeout_s = 60", "timeout_s = 0", 1);
        assert_eq!(
            problems(&loose, &with).unwrap(),
            ["inventory.facts: no timeout"]
        );
        let amd = [("mi".to_owned(), profile("mi300x").unwrap())];
        assert!(
            problems(admit, &amd)
                .unwrap()
                .iter()
                .any(|problem| problem.starts_with("with mi: gpu.nvlink:"))
        );
        let h100 = Shipped::find(PROFILES, "hgx-h100-80g").unwrap().text;
        assert_eq!(problems(h100, &[]).unwrap(), Vec::<String>::new());
        let slip = h100.replacen(
            "value = 380\nunit = \"Gb/s\"",
            "value = 380\nunit = \"GB/s\"",
            1,
        );
        assert!(
            problems(&slip, &[]).unwrap()[0].contains("beyond the ceiling nic"),
            "{:?}",
            problems(&slip, &[])
        );
        assert!(problems("name = 1", &[]).is_err() && problems("=", &[]).is_err());
    }
}
