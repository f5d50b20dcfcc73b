//! `muster stack lint` and `muster stack diff`: the problems of a stack, and the changes between
//! two stacks.

use anyhow::Context as _;
use muster_api::client::ClientError;
use muster_core::stacks::StackSpec;
use muster_core::stacks::diff::{StackDiff, diff};
use muster_core::stacks::rules::{Finding, Level, Subject, book, findings};
use serde::Serialize;

use super::{LintArgs, manifest, read, with_parts};
use crate::client::output::Output;

/// A finding with its line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Placed {
    #[serde(flatten)]
    finding: Finding,
    /// Line of the file, from 1; absent if no line contains the word.
    line: Option<usize>,
}

#[derive(Serialize)]
struct Report<'a> {
    stack: String,
    /// The date of the rules' facts.
    rules: &'a str,
    findings: Vec<Placed>,
}

/// Prints all findings; fails on a refusal.
pub(super) fn run(args: &LintArgs, output: Output) -> anyhow::Result<()> {
    let text = read(&args.stack)?;
    let stack: StackSpec =
        toml::from_str(&text).with_context(|| args.stack.display().to_string())?;
    let stack = with_parts(stack, &args.with)?;
    let image = args.image.as_deref().map(manifest).transpose()?;
    let found = findings(Subject {
        stack: &stack,
        image: image.as_ref(),
        facts: None,
    });
    let placed = |finding: Finding| Placed {
        line: line_of(&text, &finding.about),
        finding,
    };
    let report = Report {
        stack: args.stack.display().to_string(),
        rules: &book().version,
        findings: found.into_iter().map(placed).collect(),
    };
    output.print_lines(&report, || report.findings.iter().map(line).collect())?;
    let refused = report
        .findings
        .iter()
        .filter(|placed| placed.finding.level == Level::Refused)
        .count();
    match refused {
        0 => {
            output.note(&format!("no rule of {} refuses the stack", report.rules));
            Ok(())
        }
        many => Err(ClientError::Usage(format!("{many} findings refuse this stack")).into()),
    }
}

fn line(placed: &Placed) -> String {
    let at = placed
        .line
        .map(|line| format!("line {line}: "))
        .unwrap_or_default();
    format!("{} {at}{}", word(placed.finding.level), placed.finding)
}

/// A level as a word of fixed width.
pub(crate) fn word(level: Level) -> &'static str {
    match level {
        Level::Refused => "refused",
        Level::Unknown => "unknown",
        Level::Note => "note   ",
    }
}

/// Returns the first line with the word as a key or a text.
fn line_of(text: &str, word: &str) -> Option<usize> {
    if word.is_empty() {
        return None;
    }
    let says = |line: &str| {
        let key = line
            .split('=')
            .next()
            .unwrap_or_default()
            .trim()
            .trim_matches(['"', '\'']);
        key == word || line.contains(&format!("\"{word}\"")) || line.trim() == format!("[{word}]")
    };
    text.lines().position(says).map(|at| at + 1)
}

#[derive(Serialize)]
struct Compared {
    #[serde(flatten)]
    diff: StackDiff,
    /// The findings of the rules for the second stack.
    findings: Vec<Finding>,
}

/// Prints the changes of the second stack, and the findings of the rules.
pub(crate) fn show_diff(
    before: &StackSpec,
    after: &StackSpec,
    output: Output,
) -> anyhow::Result<()> {
    let found = findings(Subject {
        stack: after,
        image: None,
        facts: None,
    });
    let found = found
        .into_iter()
        .filter(|finding| finding.level > Level::Note)
        .collect();
    let compared = Compared {
        diff: diff(before, after),
        findings: found,
    };
    output.print_lines(&compared, || {
        let StackDiff {
            before,
            after,
            differences,
            class,
            effect,
            before_lock,
            after_lock,
        } = &compared.diff;
        let lock = |lock: &Option<muster_core::values::Digest>| {
            lock.map_or_else(|| "not locked".to_owned(), |digest| digest.to_string())
        };
        let mut lines = vec![
            format!("{before} -> {after}"),
            format!("{} -> {}", lock(before_lock), lock(after_lock)),
        ];
        lines.extend(differences.iter().map(|one| {
            let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
            format!(
                "{:<16} {:<40} {} -> {}",
                one.class.as_str(),
                one.item,
                shown(&one.before),
                shown(&one.after)
            )
        }));
        lines.push(match differences.is_empty() {
            true => "no difference".to_owned(),
            false => format!(
                "{} differ; the dearest costs: {}; effect: {effect}",
                differences.len(),
                class.as_str()
            ),
        });
        lines.extend(
            compared
                .findings
                .iter()
                .map(|finding| format!("{} {finding}", word(finding.level))),
        );
        lines
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_told_with_its_line() {
        let text = "version = \"1\"\nimage = \"i\"\n[packages]\nlibcuda1 = \"580.95.05-1\"\n\"nvidia-open\" = \"580.126.20-1\"\n";
        assert_eq!(line_of(text, "libcuda1"), Some(4));
        assert_eq!(line_of(text, "nvidia-open"), Some(5));
        assert_eq!(line_of(text, "nvidia"), None);
        let stack: StackSpec = toml::from_str(text).unwrap();
        let found = findings(Subject {
            stack: &stack,
            image: None,
            facts: None,
        });
        let mismatch = found.iter().find(|finding| finding.rule == "R8").unwrap();
        let placed = Placed {
            line: line_of(text, &mismatch.about),
            finding: mismatch.clone(),
        };
        assert!(
            line(&placed).starts_with("refused line "),
            "{}",
            line(&placed)
        );
    }
}
