//! Measures gate verdicts alone: `judge-gates ANSWER ROUNDS`. Parses an output of `nvidia-smi -q
//! -x` and assesses a hundred gates over all GPUs in the output. The gates are the shipped gates of
//! the parser, repeated up to a hundred. Prints two numbers per round: µs to parse the output, and
//! µs for the hundred verdicts.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use muster_core::facts::{Facts, Gpu};
use muster_core::gates::{
    Gate, PROFILES, Parser, Reference, SUITES, Sample, Shipped, Suite, assess,
};
use muster_core::profiles::HardwareProfile;
use muster_node::gates::{Parsed, Question, read_text};

const PARSER: &str = "nvidia-smi-xml";
const GATES: usize = 100;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, rounds] = arguments.as_slice() else {
        anyhow::bail!("usage: judge-gates ANSWER ROUNDS")
    };
    let (text, rounds) = (
        std::fs::read_to_string(file).with_context(|| file.clone())?,
        rounds.parse::<usize>()?,
    );
    let suite: Suite = toml::from_str(shipped(SUITES, "admit")?)?;
    let profile: HardwareProfile = toml::from_str(shipped(PROFILES, "hgx-h100-80g")?)?;
    let gates: Vec<Gate> = suite
        .gates
        .into_iter()
        .filter(|gate| gate.parser == PARSER)
        .collect();
    ensure!(!gates.is_empty(), "no gate reads {PARSER}");
    let variables = BTreeMap::new();
    for _ in 0..rounds {
        let began = Instant::now();
        let samples = samples(&text)?;
        let read = began.elapsed();
        let seen = samples
            .iter()
            .filter(|sample| sample.metric == "gpu.name")
            .count();
        let facts = Facts {
            gpus: vec![Gpu::default(); seen],
            ..Facts::default()
        };
        let reference = Reference {
            profile: &profile,
            facts: &facts,
            stack: None,
            variables: &variables,
        };
        let began = Instant::now();
        let measured: usize = gates
            .iter()
            .cycle()
            .take(GATES)
            .map(|gate| assess(gate, &samples, &reference).measured.len())
            .sum();
        let judged = began.elapsed();
        ensure!(
            measured >= GATES * seen,
            "{measured} values were held against a limit, over {seen} GPUs"
        );
        println!("{} {}", read.as_micros(), judged.as_micros());
    }
    Ok(())
}

fn shipped(among: &'static [Shipped], name: &str) -> anyhow::Result<&'static str> {
    Ok(Shipped::find(among, name)
        .with_context(|| format!("there is no {name}"))?
        .text)
}

/// Returns the samples of the parser for an output.
fn samples(text: &str) -> anyhow::Result<Vec<Sample>> {
    let question = Question {
        parser: PARSER.to_owned(),
        ..Question::default()
    };
    let Parsed { error, samples, .. } =
        read_text(&question, text, "").map_err(|failure| anyhow::anyhow!(failure.message))?;
    ensure!(error.is_none(), "{}", error.unwrap_or_default());
    let parser = Parser::find(PARSER).context("a listed parser")?;
    let known = |name: &str| {
        parser
            .metrics
            .iter()
            .find(|metric| metric.name == name)
            .map(|metric| metric.name)
    };
    let sample = |shown: muster_node::gates::Shown| {
        let metric = known(&shown.metric)?;
        Some(Sample {
            metric,
            entity: shown.entity,
            value: shown.value,
        })
    };
    Ok(samples.into_iter().filter_map(sample).collect())
}
