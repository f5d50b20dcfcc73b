//! `muster gate`: the shipped gates, the linter, and the results of parsers, without a server.
//! Gates are run by `muster-node gate`.

mod explain; // Explains a gate or a check
mod parse; // Prints the result of a parser for a file
mod tried; // Judges a recorded answer

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use muster_core::gates::{CHECKS, PROFILES, SUITES, Shipped, Suite, lint, lint_profile, lint_with};
use muster_core::profiles::HardwareProfile;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::exit::{Ended, Exit};
use crate::client::files;
use crate::client::output::Output;

use self::explain::{check_lines, gate_lines};

/// Subcommands of gates.
#[derive(Debug, Subcommand)]
pub(crate) enum GateVerb {
    /// List the shipped gates with their suites
    List {
        /// Only gates of this suite
        #[arg(long)]
        suite: Option<String>,
    },
    /// Explain a gate: measurement, thresholds, sources. Or explain the gates covering a check (A1
    /// to E5)
    Explain { id: String },
    /// Print a shipped suite or hardware profile in TOML, for reading or as a start for a new one
    Show { name: String },
    /// Check suites and hardware profiles
    Lint {
        /// TOML files; the content decides the kind
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Also compare suites with this profile: a file, or the name of a shipped profile
        #[arg(long)]
        profile: Vec<String>,
    },
    /// Show the metrics read by a parser from a tool's output, with units, or the reason of a
    /// failure. Exits with 1
    /// on failure. docs/parsers.md lists the parsers
    Parse(parse::ParseArgs),
    /// Judge a recorded output by a gate's criteria: each value, its limit, the verdict. Exits with
    /// 1 unless the gate passes
    Try(tried::TryArgs),
}

/// The largest file in bytes.
const LONGEST: u64 = 4 << 20;

/// Executes the subcommand.
///
/// # Errors
/// Exit code 2 for a refusal by the linter, 3 for an unknown gate.
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

/// Prints TOML with comments, or a document if requested.
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

/// A gate with its suites.
#[derive(Serialize)]
struct Listed {
    id: String,
    title: String,
    checks: Vec<String>,
    stage: &'static str,
    parser: String,
    /// Whether the gate needs two nodes: a listening node and a measuring node.
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

/// The explanation of a gate or a check.
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

/// A file with its problems.
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

/// Returns the problems of a suite or a profile.
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

/// Reads a file, or a shipped document.
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
