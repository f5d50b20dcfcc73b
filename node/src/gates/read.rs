//! The result of a parser for a file: `muster-node gate parse PARSER FILE [--exit N] [--messages
//! FILE] [--json]`. The command neither judges nor runs tools.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use muster_core::facts::Facts;
use muster_core::gates::{
    Assessment, Gate, Limit, Measured, Parser, Reference, Sample, Value, Verdict, assess,
    unmeasurable,
};
use muster_core::profiles::HardwareProfile;
use muster_core::wire::node::{Failure, FailureCode};
use serde::Serialize;

use super::parsers::{self, Answer, Unread};
use super::verdict;
use crate::failure::fatal;
use crate::tool::Output;
use crate::{files, terminal};

const USAGE: &str = "muster-node gate parse PARSER FILE [--exit N] [--messages FILE] [--json]";
/// Maximum size of a file; the runner keeps only a part of larger outputs.
const FILE_MAX: u64 = 64 << 20;

/// The file and the parser.
#[derive(Clone, Debug, Default)]
pub struct Question {
    pub parser: String,
    /// A tool's stdout, or the file written by the tool.
    pub file: String,
    /// The tool's exit status.
    pub exit: i32,
    /// A tool's stderr, for parsers using stderr.
    pub messages: Option<String>,
}

/// The values of a file, or the reason of a failure.
#[derive(Debug, Serialize)]
pub struct Parsed {
    pub parser: String,
    /// No recording of the real tool exists for this parser.
    pub experimental: bool,
    /// The reason why a gate would have no answer; the other fields are then empty.
    pub error: Option<String>,
    pub samples: Vec<Shown>,
    /// Faults that the tool itself found: the gate fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Tests that did not do their work: the gate never passes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// Values of unknown form: an error for a gate that asks for one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Unread>,
    /// Versions of the tool, drivers and firmware, if the answer has them.
    pub versions: BTreeMap<String, String>,
    pub notes: Vec<String>,
}

/// A value.
#[derive(Debug, Serialize)]
pub struct Shown {
    pub metric: String,
    /// The GPU, port or disk; empty for the node.
    pub entity: String,
    pub value: Value,
    pub unit: String,
}

/// Parses a file in the same way as a gate.
///
/// # Errors
/// `usage` for an unknown parser, or a parser without a tool; `io` for an unreadable file. A
/// failure of the parser is not an error
/// of this function: see [`Parsed::error`].
pub fn read(question: &Question) -> Result<Parsed, Failure> {
    tool_parser(&question.parser)?;
    let text = file(&question.parser, &question.file)?;
    let messages = question
        .messages
        .as_deref()
        .map(|path| file(&question.parser, path))
        .transpose()?
        .unwrap_or_default();
    read_text(question, &text, &messages)
}

/// The same as [`read`], for a text.
///
/// # Errors
/// `usage` for an unknown parser, or a parser without a tool.
pub fn read_text(question: &Question, text: &str, messages: &str) -> Result<Parsed, Failure> {
    let parser = tool_parser(&question.parser)?;
    let answer = Answer {
        exit: question.exit,
        text,
        messages,
        serial: None,
    };
    let (reading, error) = match parsers::parse(parser.name, &answer) {
        Ok(reading) => (reading, None),
        Err(why) => (parsers::Reading::default(), Some(why)),
    };
    let shown = |sample: muster_core::gates::Sample| Shown {
        metric: sample.metric.to_owned(),
        unit: parser.unit(sample.metric).unwrap_or_default().to_owned(),
        entity: sample.entity,
        value: sample.value,
    };
    Ok(Parsed {
        parser: parser.name.to_owned(),
        experimental: parser.experimental,
        error,
        samples: reading.samples.into_iter().map(shown).collect(),
        faults: reading.faults,
        gaps: reading.gaps,
        unread: reading.unread,
        versions: reading.versions,
        notes: reading.notes,
    })
}

/// The verdict of a gate for a recorded answer.
#[derive(Debug, Serialize)]
pub struct Judged {
    pub gate: String,
    pub verdict: Verdict,
    /// The values beyond their limits, or the reason of a missing answer.
    pub reason: String,
    /// The finding; empty for a passed or skipped gate.
    pub finding: String,
    /// Each value beside its limit.
    pub measured: Vec<Measured>,
    pub parsed: Parsed,
}

/// Judges a file by a gate's criteria, for nodes of a profile. For a gate per disk or mount, the
/// file is the answer for one of them. Criteria needing the
/// node or its stack have no answer.
///
/// # Errors
/// As [`read`], and `usage` for a gate needing several answers.
pub fn judge(
    gate: &Gate,
    profile: &HardwareProfile,
    question: &Question,
) -> Result<Judged, Failure> {
    if gate.window_s.is_some() {
        let why = "it is run twice, and what grew between the two is held against its limits";
        return Err(fatal(FailureCode::Usage, format!("{}: {why}", gate.id)));
    }
    let gate = match gate.each {
        Some(_) => Gate {
            each: None,
            count: None,
            ..gate.clone()
        },
        None => gate.clone(),
    };
    let parsed = read(question)?;
    let (facts, variables) = (Facts::default(), BTreeMap::new());
    let reference = Reference {
        profile,
        facts: &facts,
        stack: None,
        variables: &variables,
    };
    let known = Parser::find(&gate.parser)
        .map(|parser| parser.metrics)
        .unwrap_or_default();
    let sample = |shown: &Shown| {
        let metric = known
            .iter()
            .find(|metric| metric.name == shown.metric)?
            .name;
        Some(Sample {
            metric,
            entity: shown.entity.clone(),
            value: shown.value.clone(),
        })
    };
    let samples: Vec<Sample> = parsed.samples.iter().filter_map(sample).collect();
    let Assessment {
        verdict,
        reason,
        measured,
    } = match (unmeasurable(&gate, &reference), &parsed.error) {
        (Some(why), _) => verdict::judge_absent(&gate, profile, why),
        (None, Some(why)) => verdict::unmeasured(Verdict::Error, why.clone()),
        (None, None) => {
            let assessment = assess(&gate, &samples, &reference);
            let assessment = verdict::weigh_unread(&gate, &parsed.unread, assessment);
            verdict::weigh_report(&parsed.faults, &parsed.gaps, assessment)
        }
    };
    let finding = match verdict {
        Verdict::Pass | Verdict::Skipped => String::new(),
        Verdict::Fail | Verdict::Error => gate.finding,
    };
    Ok(Judged {
        gate: gate.id,
        verdict,
        reason,
        finding,
        measured,
        parsed,
    })
}

impl Judged {
    /// The form for people: values, each value beside its limit, verdict.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.parsed.lines();
        lines.push(String::new());
        let word = |value: &Value| match value {
            Limit::Number(number) => number.to_string(),
            Limit::Text(text) => text.clone(),
        };
        lines.extend(self.measured.iter().map(|held| {
            let (verdict, value, limit) =
                (held.verdict.as_str(), word(&held.value), word(&held.limit));
            format!(
                "{verdict:<6} {:<36} {:<16} {value} {} {limit} {}",
                held.metric, held.entity, held.op, held.unit
            )
        }));
        lines.push(format!(
            "{}: {}: {}",
            self.gate,
            self.verdict.as_str(),
            self.reason
        ));
        lines.extend(Some(self.finding.clone()).filter(|finding| !finding.is_empty()));
        lines
    }
}

fn tool_parser(name: &str) -> Result<&'static Parser, Failure> {
    let found = Parser::find(name);
    if found.is_some_and(|parser| parser.builtin) {
        let why = "measures by itself, on the node: there is no answer of a tool to read; `muster-node gate` runs it";
        return Err(fatal(FailureCode::Usage, format!("parser {name} {why}")));
    }
    found.ok_or_else(|| {
        let known: Vec<&str> = Parser::all()
            .filter(|parser| !parser.builtin)
            .map(|parser| parser.name)
            .collect();
        fatal(
            FailureCode::Usage,
            format!("no parser {name:?}; there are {}", known.join(", ")),
        )
    })
}

impl Parsed {
    /// The form for people: a line per value, then versions and notes.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.experimental {
            lines.push(format!(
                "{} is experimental: it was written from documentation",
                self.parser
            ));
        }
        if let Some(error) = &self.error {
            lines.push(format!("no answer: {error}"));
        }
        for Shown {
            metric,
            entity,
            value,
            unit,
        } in &self.samples
        {
            let value = match value {
                Limit::Number(number) => format!("{number} {unit}"),
                Limit::Text(text) => text.clone(),
            };
            lines.push(format!("{metric:<36} {entity:<16} {value}"));
        }
        lines.extend(self.faults.iter().map(|fault| format!("fault: {fault}")));
        lines.extend(self.gaps.iter().map(|gap| format!("not tested: {gap}")));
        lines.extend(
            self.unread
                .iter()
                .map(|Unread { metric, reason }| format!("not read: {metric}: {reason}")),
        );
        lines.extend(
            self.versions
                .iter()
                .map(|(program, version)| format!("{program} {version}")),
        );
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines
    }
}

/// Truncates a file like the runner truncates a tool's output.
fn file(parser: &str, path: &str) -> Result<String, Failure> {
    let wrong = |why: String| fatal(FailureCode::Io, format!("{path}: {why}"));
    let bytes =
        files::read_capped(Path::new(path), FILE_MAX).map_err(|error| wrong(error.to_string()))?;
    let most = parsers::answer_max(parser);
    let mut output = Output::new(most, parsers::superseded(parser));
    output.push(&bytes);
    let (bytes, truncated) = output.take();
    if truncated {
        return Err(wrong(format!("it is longer than {most} bytes")));
    }
    parsers::text(parser, &bytes)
        .map(Cow::into_owned)
        .map_err(wrong)
}

/// Executes the subcommand. Exit codes: 0 read, 1 no answer, 2 invalid usage.
pub(super) fn command(arguments: &[String]) -> ExitCode {
    let parsed =
        question(arguments).and_then(|(question, as_json)| Ok((read(&question)?, as_json)));
    match parsed {
        Ok((parsed, as_json)) => {
            match as_json {
                true => println!(
                    "{}",
                    serde_json::to_string_pretty(&parsed).unwrap_or_default()
                ),
                false => parsed.lines().iter().for_each(|line| println!("{line}")),
            }
            ExitCode::from(u8::from(parsed.error.is_some()))
        }
        Err(failure) => terminal::report(&failure),
    }
}

fn question(arguments: &[String]) -> Result<(Question, bool), Failure> {
    let usage = |what: &str| fatal(FailureCode::Usage, format!("{what}; {USAGE}"));
    let (mut question, mut as_json, mut words) = (Question::default(), false, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || {
            rest.next()
                .cloned()
                .ok_or_else(|| usage(&format!("{argument} needs a value")))
        };
        match argument.as_str() {
            "--json" => as_json = true,
            "--exit" => {
                question.exit = value()?
                    .parse()
                    .map_err(|_| usage("--exit takes a number"))?
            }
            "--messages" => question.messages = Some(value()?),
            word if !word.starts_with("--") => words.push(word.to_owned()),
            other => return Err(usage(&format!("{other:?} is not an option"))),
        }
    }
    let [parser, file] =
        <[String; 2]>::try_from(words).map_err(|_| usage("it takes a parser and a file"))?;
    Ok((
        Question {
            parser,
            file,
            ..question
        },
        as_json,
    ))
}

#[cfg(test)]
mod tests {
    use muster_core::gates::{Mode, Suite};
    use muster_core::profiles::GatePolicy;

    use super::*;

    fn asked(words: &[&str]) -> Result<Parsed, Failure> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        question(&words).and_then(|(question, _)| read(&question))
    }

    #[test]
    fn any_file_is_read_or_said_to_be_no_answer() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");
        let good = asked(&[
            "nvidia-smi-nvlink",
            &format!("{fixtures}/nvidia-smi-a100-nvlink.txt"),
        ])
        .expect("a file");
        assert!(good.error.is_none() && !good.experimental);
        let speed = good
            .samples
            .iter()
            .find(|shown| shown.metric == "nvlink.link_speed")
            .expect("a speed");
        assert_eq!(
            (
                speed.value.clone(),
                speed.unit.as_str(),
                speed.entity.as_str()
            ),
            (Limit::Number(25.0), "GB/s", "GPU 7")
        );
        let cut = asked(&[
            "nvidia-smi-xml",
            &format!("{fixtures}/nvidia-smi-535.54.03-a100-mig-v12.xml"),
        ])
        .expect("a file");
        assert_eq!(
            cut.error.as_deref(),
            Some("4 GPUs are attached, it tells of 1")
        );
        assert!(
            cut.samples.is_empty() && cut.lines().iter().any(|line| line.starts_with("no answer"))
        );
        // The tool's exit status and messages count as for a gate.
        let [file, said] =
            ["yaml", "txt"].map(|kind| format!("{fixtures}/stress-ng-0.15.06.{kind}"));
        assert!(
            asked(&["stress-ng", &file])
                .expect("a file")
                .error
                .is_some(),
            "it never said that it completed"
        );
        assert!(
            asked(&["stress-ng", &file, "--messages", &said])
                .expect("a file")
                .error
                .is_none()
        );
        assert!(
            asked(&["stress-ng", &file, "--messages", &said, "--exit", "2"])
                .expect("a file")
                .error
                .is_some()
        );
    }

    #[test]
    fn an_answer_that_was_kept_is_judged_as_a_node_would() {
        let suite: Suite =
            toml::from_str(include_str!("../../../suites/admit.toml")).expect("a suite");
        let mut gate = suite
            .gates
            .into_iter()
            .find(|gate| gate.id == "bmc.power_supplies")
            .expect("a gate");
        let mut profile: HardwareProfile =
            toml::from_str(include_str!("../../../suites/profiles/hgx-h100-80g.toml"))
                .expect("a profile");
        let told = |gate: &Gate, profile: &HardwareProfile| {
            let file = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/fixtures/ipmitool-1.8.19-sdr.txt"
            )
            .into();
            let question = Question {
                parser: gate.parser.clone(),
                file,
                ..Question::default()
            };
            judge(gate, profile, &question).expect("a verdict")
        };
        assert_eq!(
            told(&gate, &profile).verdict,
            Verdict::Skipped,
            "its profile has no threshold"
        );
        let required = GatePolicy {
            mode: Mode::Required,
            because: "we count them".into(),
        };
        profile.gates.insert(gate.id.clone(), required.clone());
        assert_eq!(
            told(&gate, &profile).verdict,
            Verdict::Error,
            "and it must be measured"
        );
        for (count, verdict) in [(2.0, Verdict::Pass), (3.0, Verdict::Fail)] {
            gate.criteria[0].limit = Limit::Number(count);
            assert_eq!(told(&gate, &profile).verdict, verdict);
        }
        // A parser without a recording cannot be required.
        let experimental = Gate {
            id: "new".into(),
            parser: "perftest-json".into(),
            ..gate
        };
        profile.gates.insert("new".into(), required);
        let told = told(&experimental, &profile);
        assert!(
            told.verdict == Verdict::Error && told.reason.contains("is experimental"),
            "{}",
            told.reason
        );
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        for words in [
            &["hope", "x"][..],
            &["clock", "x"],
            &["ibstat"],
            &["ibstat", "x", "--exit"],
            &["ibstat", "x", "--twice"],
        ] {
            assert_eq!(
                asked(words).expect_err("refused").code,
                FailureCode::Usage,
                "{words:?}"
            );
        }
        assert_eq!(
            asked(&["ibstat", "/nowhere/at/all"])
                .expect_err("no file")
                .code,
            FailureCode::Io
        );
        let builtin = asked(&["facts", "x"])
            .expect_err("docs/parsers.md lists it")
            .message;
        assert!(
            builtin.starts_with("parser facts measures by itself"),
            "{builtin}"
        );
    }
}
