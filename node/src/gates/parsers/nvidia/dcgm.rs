//! Parser for `dcgmi diag -j`. The JSON has no published schema, so the parser accepts only
//! observed formats. DCGM 4 has `DCGM Diagnostic` with a result per entity. DCGM 3 has `DCGM GPU
//! Diagnostic` with a result per GPU or list of GPUs. A test with results for only some of the GPUs
//! is an error, unless the test failed. *Skip* is not *Pass*, and a *Pass* with an error counts by
//! the error. Warnings may precede the document.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::dcgm_errors::{Warning, Weight};
use crate::gates::parsers::{Answer, Reading, json, scan};

const NOTES_MAX: usize = 10;
/// Exit statuses of dcgmi that are faults, also without a readable document: the negative return
/// values of dcgm_structs.h in a byte (`DCGM_ST_NVVS_ISOLATE_ERROR`, `DCGM_ST_RESET_REQUIRED`,
/// `DCGM_ST_GPU_IS_LOST`).
const FAULTS: [(i32, &str); 3] = [
    (205, "a GPU must be isolated"),
    (237, "a GPU requires a reset"),
    (238, "a GPU is lost"),
];
const TESTS_MAX: usize = 256;

/// Status of a result, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Pass,
    Skip,
    NotRun,
    Warn,
    Fail,
}

impl Status {
    fn read(word: &str) -> Result<Self, String> {
        match word.to_ascii_lowercase().as_str() {
            "pass" => Ok(Self::Pass),
            "skip" | "skipped" => Ok(Self::Skip),
            "not run" | "notrun" => Ok(Self::NotRun),
            "warn" => Ok(Self::Warn),
            "fail" => Ok(Self::Fail),
            _ => Err(format!("status {:?} is not known", scan::word(word))),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skip => "skip",
            Self::NotRun => "not run",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// A test of either version.
struct Test {
    name: String,
    /// Status by GPU number. Results of the node or of other entities have no number.
    results: Vec<(Option<u64>, Status)>,
    /// Summary of all results, written by DCGM 4 only.
    summary: Option<Status>,
    /// Warnings beside the results, for any status.
    warnings: Vec<Warning>,
    /// Errors inside of a pass that kept the test from its work.
    gaps: Vec<String>,
    notes: Vec<String>,
}

pub(in crate::gates::parsers) fn parse_v4(answer: &Answer<'_>) -> Result<Reading, String> {
    read_v4(answer).or_else(|why| read_end(answer).ok_or(why))
}

pub(in crate::gates::parsers) fn parse_v3(answer: &Answer<'_>) -> Result<Reading, String> {
    read_v3(answer).or_else(|why| read_end(answer).ok_or(why))
}

/// Returns the fault of a run without a usable document.
fn read_end(answer: &Answer<'_>) -> Option<Reading> {
    let (status, meaning) = FAULTS.iter().find(|(status, _)| *status == answer.exit)?;
    let sentence = answer.reason();
    let fault = format!("dcgmi ended with {status}, {meaning}: {sentence}");
    Some(Reading::of_faults(vec![fault]))
}

/// Returns the status of a result with the errors beside the result.
fn weigh(status: Status, warnings: &[Warning], gaps: &mut Vec<String>) -> Status {
    let worst = warnings.iter().map(|warning| warning.weight).max();
    match (worst, status) {
        (Some(Weight::Fault), _) => Status::Fail,
        (Some(Weight::Look), Status::Pass) => Status::Warn,
        (Some(Weight::Untested), Status::Pass) => {
            let untested = warnings
                .iter()
                .filter(|warning| warning.weight == Weight::Untested);
            gaps.extend(untested.map(ToString::to_string));
            Status::NotRun
        }
        (Some(Weight::Watch | Weight::Untested | Weight::Look) | None, status) => status,
    }
}

fn read_v4(answer: &Answer<'_>) -> Result<Reading, String> {
    let report: V4 = json(document(answer)?)?;
    known(&report.metadata.version, "4.")?;
    let listed = report
        .entity_groups
        .iter()
        .filter(|group| group.entity_group == "GPU");
    let gpus: BTreeSet<u64> = listed
        .flat_map(|group| group.entities.iter().map(|entity| entity.entity_id))
        .collect();
    let mut tests = Vec::new();
    for test in report
        .diagnostic
        .test_categories
        .into_iter()
        .flat_map(|category| category.tests)
    {
        let (mut results, mut warnings, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
        // A test that did not run has no summary.
        let (summary, notes) = match test.test_summary {
            Some(V4Summary {
                status,
                info,
                warnings: of_all,
            }) => {
                warnings.extend(of_all.iter().map(Warning::read));
                let status = weigh(Status::read(&status)?, &warnings, &mut gaps);
                (status, info.iter().map(said).collect())
            }
            None => (Status::NotRun, Vec::new()),
        };
        for result in test.results {
            let gpu = (result.entity_group == "GPU").then_some(result.entity_id);
            if gpu.is_some_and(|gpu| !gpus.contains(&gpu)) {
                return Err(format!(
                    "test {} tells of GPU {} that is not listed",
                    scan::word(&test.name),
                    result.entity_id
                ));
            }
            let found: Vec<Warning> = result.warnings.iter().map(Warning::read).collect();
            let status = weigh(Status::read(&result.status)?, &found, &mut gaps);
            results.push((gpu, status));
            warnings.extend(found);
        }
        tests.push(Test {
            name: scan::word(&test.name),
            results,
            summary: Some(summary),
            warnings,
            gaps,
            notes,
        });
    }
    let mut reading = tally(answer, &gpus, &tests)?;
    reading.version("dcgm", &report.metadata.version);
    Ok(reading)
}

fn read_v3(answer: &Answer<'_>) -> Result<Reading, String> {
    let report: V3 = json(document(answer)?)?;
    let diagnostic = report.diagnostic;
    // dcgmi writes the version beside the output of nvvs, and nvvs writes the version inside.
    let version = diagnostic
        .version
        .or(report.version)
        .ok_or("it tells no version")?;
    known(&version, "3.")?;
    let (mut tests, mut gpus) = (Vec::new(), BTreeSet::new());
    // DCGM 3 writes nulls between tests.
    for test in diagnostic
        .test_categories
        .into_iter()
        .flat_map(|category| category.tests)
        .flatten()
    {
        let (mut results, mut warnings) = (Vec::new(), Vec::new());
        let (mut gaps, mut notes) = (Vec::new(), Vec::new());
        for result in test.results {
            let found: Vec<Warning> = result.warnings.iter().map(Warning::read).collect();
            let status = weigh(Status::read(&result.status)?, &found, &mut gaps);
            match &result.gpu_ids {
                Some(ids) => {
                    let ids = numbers(ids)?;
                    gpus.extend(&ids);
                    results.extend(ids.into_iter().map(|gpu| (Some(gpu), status)));
                }
                // Tests run before the GPU tests name GPUs only in a failure.
                None => results.push((None, status)),
            }
            warnings.extend(found);
            notes.extend(result.info.iter().map(said));
        }
        tests.push(Test {
            name: scan::word(&test.name),
            results,
            summary: None,
            warnings,
            gaps,
            notes,
        });
    }
    let mut reading = tally(answer, &gpus, &tests)?;
    reading.version("dcgm", &version);
    Ok(reading)
}

/// Counts over all tests.
#[derive(Default)]
struct Counts<'a> {
    by_status: BTreeMap<Status, usize>,
    /// GPUs with a failed result.
    failed: BTreeSet<u64>,
    names: BTreeSet<&'a str>,
    warnings: usize,
}

/// Builds the reading from the tests of either version.
fn tally(answer: &Answer<'_>, gpus: &BTreeSet<u64>, tests: &[Test]) -> Result<Reading, String> {
    if tests.is_empty() || tests.len() > TESTS_MAX {
        return Err(format!("it tells of {} tests", tests.len()));
    }
    let mut reading = Reading::default();
    let mut counts = Counts::default();
    for test in tests {
        if !counts.names.insert(&test.name) {
            return Err(format!("test {} stands there twice", test.name));
        }
        covers(test, gpus)?;
        tally_test(&mut reading, &mut counts, test)?;
    }
    reading.notes.truncate(NOTES_MAX);
    reading.gaps.truncate(NOTES_MAX);
    let of = |status: Status| counts.by_status.get(&status).copied().unwrap_or_default();
    let failures = of(Status::Fail);
    // Some versions exit with 0 after a failure. Every version exits with 0 after a success.
    if answer.exit != 0 && failures == 0 {
        return Err(format!(
            "no failure goes with its exit status: {}",
            scan::word(answer.messages)
        ));
    }
    reading.count("dcgm.tests", tests.len());
    reading.count("dcgm.passed", of(Status::Pass));
    reading.count("dcgm.failed", failures);
    reading.count("dcgm.warned", of(Status::Warn));
    reading.count("dcgm.warnings", counts.warnings);
    reading.count("dcgm.skipped", of(Status::Skip));
    reading.count("dcgm.not_run", of(Status::NotRun));
    reading.count("dcgm.gpus", gpus.len());
    reading.count("dcgm.gpus_failed", counts.failed.len());
    Ok(reading)
}

/// Adds a test to the reading and the counts.
fn tally_test(reading: &mut Reading, counts: &mut Counts<'_>, test: &Test) -> Result<(), String> {
    for (gpu, status) in &test.results {
        *counts.by_status.entry(*status).or_default() += 1;
        counts
            .failed
            .extend(gpu.filter(|_| *status == Status::Fail));
    }
    let results = test.results.iter().map(|(_, status)| *status).max();
    // A summary worse than every result counts as an additional result.
    if let Some(summary) = test
        .summary
        .filter(|summary| results.is_none_or(|results| *summary > results))
    {
        *counts.by_status.entry(summary).or_default() += 1;
    }
    let worst = results
        .max(test.summary)
        .ok_or_else(|| format!("test {} has no result", test.name))?;
    reading.add_word("dcgm.status", &test.name, worst.as_str());
    counts.warnings += test.warnings.len();
    reading
        .gaps
        .extend(test.gaps.iter().map(|gap| format!("{}: {gap}", test.name)));
    let mut notes: Vec<&String> = test.warnings.iter().map(|warning| &warning.text).collect();
    if worst != Status::Pass {
        notes.extend(&test.notes);
    }
    reading.notes.extend(
        notes
            .into_iter()
            .map(|note| format!("{}: {note}", test.name)),
    );
    if matches!(worst, Status::Skip | Status::NotRun) {
        // A skipped test is no evidence about the GPUs: a package may be missing.
        reading
            .notes
            .push(format!("{}: {}", test.name, worst.as_str()));
        return Ok(());
    }
    let passed: BTreeSet<u64> = test
        .results
        .iter()
        .filter(|(_, status)| *status == Status::Pass)
        .filter_map(|(gpu, _)| *gpu)
        .collect();
    reading.count_of("dcgm.gpus_passed", &test.name, passed.len());
    Ok(())
}

/// Checks that a GPU test has exactly a single result for each GPU. A failed test may name only the
/// failed GPUs.
fn covers(test: &Test, gpus: &BTreeSet<u64>) -> Result<(), String> {
    let told: Vec<u64> = test.results.iter().filter_map(|(gpu, _)| *gpu).collect();
    let distinct: BTreeSet<u64> = told.iter().copied().collect();
    if distinct.len() != told.len() {
        return Err(format!("test {} tells of a GPU twice", test.name));
    }
    if test.results.is_empty() && test.summary.is_none_or(|summary| summary == Status::Pass) {
        return Err(format!("test {} has no result", test.name));
    }
    let failed = test
        .results
        .iter()
        .any(|(_, status)| *status == Status::Fail);
    match told.is_empty() || failed || distinct == *gpus {
        true => Ok(()),
        false => Err(format!(
            "test {} tells of {} of {} GPUs",
            test.name,
            told.len(),
            gpus.len()
        )),
    }
}

fn known(version: &str, major: &str) -> Result<(), String> {
    match version.starts_with(major) {
        true => Ok(()),
        false => Err(format!("version {:?} is not known", scan::word(version))),
    }
}

/// Returns the document without the warnings before it.
fn document<'a>(answer: &Answer<'a>) -> Result<&'a str, String> {
    let no_document = || format!("there is no JSON in it: {}", answer.reason());
    let start = answer.text.find('{').ok_or_else(no_document)?;
    answer.text.get(start..).ok_or_else(no_document)
}

/// Parses `"0,1,2"`, `"0"` or `0`.
fn numbers(ids: &Value) -> Result<Vec<u64>, String> {
    let unknown = || {
        format!(
            "gpu_ids {} are not understood",
            scan::word(&ids.to_string())
        )
    };
    match ids {
        Value::Number(id) => id.as_u64().map(|id| vec![id]).ok_or_else(unknown),
        Value::String(ids) => ids
            .split(',')
            .map(|id| id.trim().parse().map_err(|_| unknown()))
            .collect::<Result<Vec<u64>, String>>(),
        _ => Err(unknown()),
    }
}

/// Returns the text of a warning: a string, or an object with the string in `warning`.
fn said(warning: &Value) -> String {
    match warning {
        Value::String(text) => scan::word(text),
        Value::Object(fields) => {
            let text = fields
                .get("warning")
                .and_then(Value::as_str)
                .unwrap_or_default();
            scan::word(text)
        }
        _ => String::new(),
    }
}

#[derive(Deserialize)]
struct V4 {
    #[serde(rename = "DCGM Diagnostic")]
    diagnostic: V4Diagnostic,
    entity_groups: Vec<V4Group>,
    metadata: V4Metadata,
}

#[derive(Deserialize)]
struct V4Metadata {
    version: String,
}

#[derive(Deserialize)]
struct V4Group {
    entity_group: String,
    entities: Vec<V4Entity>,
}

#[derive(Deserialize)]
struct V4Entity {
    entity_id: u64,
}

#[derive(Deserialize)]
struct V4Diagnostic {
    test_categories: Vec<V4Category>,
}

#[derive(Deserialize)]
struct V4Category {
    tests: Vec<V4Test>,
}

#[derive(Deserialize)]
struct V4Test {
    name: String,
    /// Omitted when empty.
    #[serde(default)]
    results: Vec<V4Result>,
    test_summary: Option<V4Summary>,
}

#[derive(Deserialize)]
struct V4Result {
    entity_group: String,
    entity_id: u64,
    status: String,
    #[serde(default)]
    warnings: Vec<Value>,
}

#[derive(Deserialize)]
struct V4Summary {
    status: String,
    #[serde(default, deserialize_with = "one_or_many")]
    info: Vec<Value>,
    /// Warnings about the test as a whole, not about an entity.
    #[serde(default)]
    warnings: Vec<Value>,
}

#[derive(Deserialize)]
struct V3 {
    #[serde(rename = "DCGM GPU Diagnostic")]
    diagnostic: V3Diagnostic,
    version: Option<String>,
}

#[derive(Deserialize)]
struct V3Diagnostic {
    test_categories: Vec<V3Category>,
    version: Option<String>,
}

#[derive(Deserialize)]
struct V3Category {
    tests: Vec<Option<V3Test>>,
}

#[derive(Deserialize)]
struct V3Test {
    name: String,
    results: Vec<V3Result>,
}

#[derive(Deserialize)]
struct V3Result {
    #[serde(alias = "gpu_id")]
    gpu_ids: Option<Value>,
    status: String,
    #[serde(default)]
    warnings: Vec<Value>,
    #[serde(default, deserialize_with = "one_or_many")]
    info: Vec<Value>,
}

/// DCGM 3 writes a single line of info as a string, and several lines as a list. No gate asks for
/// the info of DCGM 4, whose recordings have lists.
fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Array(many) => many,
        one => vec![one],
    })
}
