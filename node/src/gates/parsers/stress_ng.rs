//! Parser for stress-ng 0.15 and newer with `--verify --metrics`. Numbers come from the YAML file
//! (`-Y`), and wrong computations from the messages. The messages are on stderr, or on stdout from
//! 0.15.08 on.

use serde::Deserialize;

use super::scan::plain;
use super::{Answer, Reading, scan};

#[derive(Deserialize)]
struct Report {
    #[serde(rename = "system-info")]
    system: System,
    metrics: Vec<Metric>,
}

#[derive(Deserialize)]
struct System {
    #[serde(rename = "stress-ng-version")]
    version: String,
}

#[derive(Deserialize)]
struct Metric {
    stressor: String,
    #[serde(rename = "bogo-ops-per-second-real-time")]
    #[serde(deserialize_with = "plain")]
    rate: f64,
}

/// Maximum failures in a reading.
const FAILURES_MAX: usize = 10;

pub(super) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    let failures: Vec<&str> = answer
        .messages
        .lines()
        .filter(|line| line.starts_with("stress-ng: fail:"))
        .collect();
    let shown: Vec<String> = failures
        .iter()
        .take(FAILURES_MAX)
        .map(|line| scan::word(line))
        .collect();
    match read_report(answer, &failures) {
        Ok(reading) => Ok(Reading {
            notes: shown,
            ..reading
        }),
        // A stressor failed, also without a usable report.
        Err(_) if !shown.is_empty() => Ok(Reading::of_faults(shown)),
        Err(why) => Err(why),
    }
}

/// Reads the report, and compares the report with the failures in the messages.
fn read_report(answer: &Answer<'_>, failures: &[&str]) -> Result<Reading, String> {
    // A truncated number is a different number, so the parser requires the end mark of the
    // document.
    if !answer.text.trim_end().ends_with("\n...") {
        return Err("it has no end".into());
    }
    let report: Report = serde_yaml_ng::from_str(answer.text)
        .map_err(|error| format!("its answer is not what this parser knows: {error}"))?;
    let version = report.system.version;
    if !version.starts_with("0.") {
        return Err(format!("version {version:?} is not known"));
    }
    // The bracket excludes `unsuccessful run completed`.
    let completed = answer
        .messages
        .lines()
        .any(|line| line.contains("] successful run completed"));
    // Exit status 2: a stressor failed (stress-ng(1), EXIT STATUS). Any other status except 0 is a
    // problem of stress-ng itself.
    match (answer.exit, completed, failures.len()) {
        (0, true, 0) => {}
        (2, false, 1..) => {}
        _ => {
            return Err(format!(
                "{} failures do not go with its exit status",
                failures.len()
            ));
        }
    }
    if report.metrics.is_empty() {
        return Err("no stressor has metrics".into());
    }
    let mut reading = Reading::default();
    reading.version("stress-ng", &version);
    reading.count("stress.failures", failures.len());
    for metric in &report.metrics {
        reading.add_of("stress.bogo_ops", &metric.stressor, metric.rate);
    }
    Ok(reading)
}
