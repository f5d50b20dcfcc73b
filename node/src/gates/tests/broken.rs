//! Tests of damaged recordings. The damage is a cut, a missing or repeated part, an invalid number,
//! a different root, or a different version. The gates ask for all values of a recording, in the
//! same number. A damaged recording must not pass, unless all numbers stay the same.

use std::collections::BTreeMap;

use muster_core::facts::Facts;
use muster_core::gates::{Criterion, Gate, Limit, Op, Reference, Sample, Verdict, assess};
use muster_core::profiles::HardwareProfile;
use serde_json::Value;

use super::bench::{gate, profile};
use super::recordings::{RECORDINGS, Recording};
use crate::gates::parsers::{Answer, Reading, parse};
use crate::gates::verdict::weigh_unread;

/// Units of counts. A gate compares a count with the hardware of the node.
const COUNTED: [&str; 28] = [
    "GPUs",
    "links",
    "ports",
    "adapters",
    "arrays",
    "file systems",
    "tests",
    "results",
    "warnings",
    "ranks",
    "sizes",
    "lines",
    "events",
    "processors",
    "modules",
    "slots",
    "disks",
    "NICs",
    "devices",
    "processes",
    "flags",
    "failures",
    "incidents",
    "errors",
    "errno",
    "iterations",
    "bytes",
    "sensors",
];

/// Makes gates for all values of a recording: a gate per number of samples. A count must be equal
/// if all samples agree. Other numbers must be at least zero, and a word may have any value.
fn gates(recording: &Recording, good: &[Sample]) -> Vec<Gate> {
    let parser = muster_core::gates::Parser::find(recording.parser).expect("a listed parser");
    let mut by_count: BTreeMap<usize, Vec<Criterion>> = BTreeMap::new();
    let mut seen: Vec<&str> = Vec::new();
    for sample in good {
        if seen.contains(&sample.metric) {
            continue;
        }
        seen.push(sample.metric);
        let of_metric: Vec<&Sample> = good
            .iter()
            .filter(|other| other.metric == sample.metric)
            .collect();
        let unit = parser.unit(sample.metric).expect("a listed metric");
        let same = of_metric.iter().all(|other| other.value == sample.value);
        let (op, limit) = match &sample.value {
            Limit::Number(number) if COUNTED.contains(&unit) && same => {
                (Op::Equal, Limit::Number(*number))
            }
            Limit::Number(_) => (Op::AtLeast, Limit::Number(0.0)),
            Limit::Text(_) => (Op::NotEqual, Limit::Text("never".into())),
        };
        let criterion = Criterion {
            metric: sample.metric.into(),
            op,
            limit,
            unit: unit.into(),
            of: None,
            best: None,
        };
        by_count.entry(of_metric.len()).or_default().push(criterion);
    }
    let one = |(count, criteria): (usize, Vec<Criterion>)| Gate {
        count: Some(count.to_string()),
        criteria,
        ..gate(&format!(
            "id = \"g\"\nstage = \"gpu\"\ntimeout_s = 1\nargv = [\"t\"]\nparser = {:?}\ncriteria = []",
            recording.parser
        ))
    };
    by_count.into_iter().map(one).collect()
}

/// Metrics with negative numbers in real output: degrees above a limit, and a count of errors
/// beyond 32 bits.
const SIGNED: [&str; 2] = ["gpu.temperature_margin", "burn.errors"];

/// Returns the numbers with the metrics, without the names of entities, sorted. The metrics of
/// `SIGNED` are absent.
fn numbers(samples: &[Sample]) -> Vec<(&'static str, String)> {
    let number = |sample: &Sample| match &sample.value {
        Limit::Number(number) if !SIGNED.contains(&sample.metric) => {
            Some((sample.metric, number.to_string()))
        }
        _ => None,
    };
    let mut numbers: Vec<_> = samples.iter().filter_map(number).collect();
    numbers.sort();
    numbers
}

/// A recording with its gates.
struct Bench<'a> {
    recording: &'a Recording,
    text: String,
    messages: String,
    gates: Vec<Gate>,
    numbers: Vec<(&'static str, String)>,
    profile: HardwareProfile,
    facts: Facts,
    variables: BTreeMap<String, String>,
}

fn benches() -> Vec<Bench<'static>> {
    let bench = |recording: &'static Recording| {
        let text = recording.text();
        let good = recording
            .read(&text)
            .unwrap_or_else(|why| panic!("{}: {why}", recording.file));
        let bench = Bench {
            recording,
            messages: recording.messages(),
            text,
            gates: gates(recording, &good.samples),
            numbers: numbers(&good.samples),
            profile: profile(),
            facts: Facts::default(),
            variables: BTreeMap::new(),
        };
        assert!(bench.passes(&good), "{} itself passes", recording.file);
        bench
    };
    RECORDINGS.iter().map(bench).collect()
}

impl Bench<'_> {
    fn read(&self, text: &str) -> Result<Reading, String> {
        parse(
            self.recording.parser,
            &Answer {
                exit: self.recording.exit,
                text,
                messages: &self.messages,
                serial: None,
            },
        )
    }

    /// Returns whether all gates pass.
    fn passes(&self, reading: &Reading) -> bool {
        let Bench {
            profile,
            facts,
            variables,
            ..
        } = self;
        let reference = Reference {
            profile,
            facts,
            stack: None,
            variables,
        };
        self.gates.iter().all(|gate| {
            let assessment = assess(gate, &reading.samples, &reference);
            weigh_unread(gate, &reading.unread, assessment).verdict == Verdict::Pass
        })
    }

    /// Reports a damaged text that passes with different numbers.
    fn hold(&self, broken: &str, how: &str, problems: &mut Vec<String>) {
        let Ok(reading) = self.read(broken) else {
            return;
        };
        if self.passes(&reading) && numbers(&reading.samples) != self.numbers {
            let now = numbers(&reading.samples);
            let other: Vec<_> = now
                .iter()
                .filter(|number| !self.numbers.contains(number))
                .collect();
            problems.push(format!(
                "{}: {how}: passes with {other:?}",
                self.recording.file
            ));
        }
    }

    /// Reports a damaged text that passes.
    fn refuse(&self, broken: &str, how: &str, problems: &mut Vec<String>) {
        if self.read(broken).is_ok_and(|reading| self.passes(&reading)) {
            problems.push(format!("{}: {how}: passes", self.recording.file));
        }
    }
}

fn done(mut problems: Vec<String>) {
    let count = problems.len();
    problems.truncate(30);
    assert!(
        problems.is_empty(),
        "{count} broken answers pass:\n{}",
        problems.join("\n")
    );
}

#[test]
fn nothing_and_other_documents_never_pass() {
    let mut problems = Vec::new();
    for bench in benches() {
        let others = [
            "",
            "\n",
            " \n \n",
            "null",
            "{}",
            "[]",
            "[{}]",
            "{\"a\":{}}",
            "N/A\n",
            "---\n...\n",
            "<a></a>",
            "\u{0}",
            "0\n",
            "<?xml version=\"1.0\"?>\n",
        ];
        for other in others {
            bench.refuse(other, &format!("{other:?}"), &mut problems);
        }
        let (from, to) = bench
            .recording
            .version
            .expect("all of them say what they are");
        assert!(
            bench.text.contains(from),
            "{}: {from:?} is there",
            bench.recording.file
        );
        bench.refuse(
            &bench.text.replace(from, to),
            &format!("{to:?} for {from:?}"),
            &mut problems,
        );
        // The answer of a different tool must not pass.
        for other in RECORDINGS
            .iter()
            .filter(|other| other.parser != bench.recording.parser)
        {
            bench.refuse(&other.text(), other.file, &mut problems);
        }
        // A parser of a table ignores other lines before the table. A parser of a document refuses
        // a different root.
        if !matches!(
            bench.recording.parser,
            "stressapptest" | "nccl-tests" | "perftest" | "gpu-burn"
        ) {
            bench.refuse(
                &format!("{{\"document\": {}}}\n", bench.text.trim()),
                "another root",
                &mut problems,
            );
        }
    }
    done(problems);
}

#[test]
fn cut_answers_never_pass_as_something_else() {
    let mut problems = Vec::new();
    for bench in benches() {
        // A short text is cut at every byte. A longer text is cut at every line end and at every
        // 29th byte.
        let step = if bench.text.len() < 1500 { 1 } else { 29 };
        for at in 0..bench.text.len() {
            let line_end = bench.text.as_bytes()[at] == b'\n';
            if (at % step == 0 || line_end) && bench.text.is_char_boundary(at) {
                bench.hold(&bench.text[..at], &format!("cut at {at}"), &mut problems);
            }
        }
    }
    done(problems);
}

/// Returns the places of numbers. A number has digits, with points between digits, and no sign.
fn number_places(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let (mut places, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len()
            && (bytes[at].is_ascii_digit()
                || (bytes[at] == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)))
        {
            at += 1;
        }
        places.push((start, at));
    }
    places
}

#[test]
fn numbers_that_are_none_never_pass_as_something_else() {
    let mut problems = Vec::new();
    for bench in benches() {
        let places = number_places(&bench.text);
        let step = places.len() / 80 + 1;
        for (start, end) in places.into_iter().step_by(step) {
            for odd in [
                "N/A",
                "NaN",
                "-1",
                "9223372036854775808",
                "",
                "1e999",
                "1e",
                "e+06",
            ] {
                let broken = format!("{}{odd}{}", &bench.text[..start], &bench.text[end..]);
                let line = bench.text[..start].rsplit('\n').next().unwrap_or_default();
                bench.hold(&broken, &format!("{odd:?} after {line:?}"), &mut problems);
            }
        }
    }
    done(problems);
}

#[test]
fn answers_without_a_line_or_with_one_twice_never_pass_as_something_else() {
    let mut problems = Vec::new();
    for bench in benches() {
        let lines: Vec<&str> = bench.text.split_inclusive('\n').collect();
        for (index, line) in lines.iter().enumerate().step_by(lines.len() / 120 + 1) {
            let without: String = lines
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index)
                .map(|(_, line)| *line)
                .collect();
            bench.hold(&without, &format!("without {line:?}"), &mut problems);
            let twice: String = lines[..=index]
                .iter()
                .chain(&lines[index..])
                .copied()
                .collect();
            bench.hold(&twice, &format!("twice {line:?}"), &mut problems);
        }
    }
    done(problems);
}

/// Returns all documents without a single member or element, at every depth.
fn without_one(document: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    match document {
        Value::Object(members) => {
            for (key, value) in members {
                let mut fewer = members.clone();
                fewer.remove(key);
                all.push(Value::Object(fewer));
                for inner in without_one(value) {
                    let mut changed = members.clone();
                    changed.insert(key.clone(), inner);
                    all.push(Value::Object(changed));
                }
            }
        }
        Value::Array(elements) => {
            for (index, value) in elements.iter().enumerate() {
                let mut fewer = elements.clone();
                fewer.remove(index);
                all.push(Value::Array(fewer));
                for inner in without_one(value) {
                    let mut changed = elements.clone();
                    changed[index] = inner;
                    all.push(Value::Array(changed));
                }
            }
        }
        _ => {}
    }
    all
}

#[test]
fn documents_without_one_part_never_pass_as_something_else() {
    let mut problems = Vec::new();
    for bench in benches() {
        let start = bench.text.find(['{', '[']).unwrap_or(bench.text.len());
        let Ok(document) = serde_json::from_str::<Value>(&bench.text[start..]) else {
            continue;
        };
        let all = without_one(&document);
        let step = all.len() / 200 + 1;
        for broken in all.iter().step_by(step) {
            bench.hold(&broken.to_string(), "without one part", &mut problems);
        }
    }
    done(problems);
}

#[test]
fn documents_without_one_gpu_or_element_never_pass_as_something_else() {
    let mut problems = Vec::new();
    for bench in benches()
        .iter()
        .filter(|bench| bench.text.starts_with("<?xml"))
    {
        let lines: Vec<&str> = bench.text.split_inclusive('\n').collect();
        for (start, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let opens = line.trim().starts_with('<')
                && !line.contains("</")
                && !line.contains("/>")
                && !line.contains("<?")
                && !line.contains("<!");
            let end = lines[start..].iter().position(|end| {
                end.trim().starts_with("</") && end.len() - end.trim_start().len() == indent
            });
            if let (true, Some(length)) = (opens, end) {
                let without: String = lines[..start]
                    .iter()
                    .chain(&lines[start + length + 1..])
                    .copied()
                    .collect();
                bench.hold(&without, &format!("without {}", line.trim()), &mut problems);
            }
        }
    }
    done(problems);
}
