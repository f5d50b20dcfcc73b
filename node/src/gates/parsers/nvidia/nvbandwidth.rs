//! Parser for `nvbandwidth -j`. Matrix cells are strings, with `"N/A"` for a copy from a GPU to
//! itself. *Waived* tests did not run and have no numbers. The value of a GPU is the slowest cell
//! of its column, or of its row in a matrix of GPUs by GPUs.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::gates::parsers::{Answer, Reading, json, scan};

const GPUS_MAX: usize = 256;

/// Test, metric, unit required in the test's description, and whether the test copies between GPUs.
const TESTS: [(&str, &str, &str, bool); 9] = [
    (
        "host_to_device_memcpy_ce",
        "nvbandwidth.host_to_device",
        "(GB/s)",
        false,
    ),
    (
        "device_to_host_memcpy_ce",
        "nvbandwidth.device_to_host",
        "(GB/s)",
        false,
    ),
    (
        "host_to_device_bidirectional_memcpy_ce",
        "nvbandwidth.host_to_device_bidirectional",
        "(GB/s)",
        false,
    ),
    (
        "device_to_host_bidirectional_memcpy_ce",
        "nvbandwidth.device_to_host_bidirectional",
        "(GB/s)",
        false,
    ),
    (
        "device_to_device_memcpy_read_ce",
        "nvbandwidth.device_to_device_read",
        "(GB/s)",
        true,
    ),
    (
        "device_to_device_memcpy_write_ce",
        "nvbandwidth.device_to_device_write",
        "(GB/s)",
        true,
    ),
    (
        "device_local_copy",
        "nvbandwidth.device_local_copy",
        "(GB/s)",
        false,
    ),
    (
        "host_device_latency_sm",
        "nvbandwidth.host_device_latency",
        "(ns)",
        false,
    ),
    (
        "device_to_device_latency_sm",
        "nvbandwidth.device_to_device_latency",
        "(ns)",
        true,
    ),
];

#[derive(Deserialize)]
struct Report {
    nvbandwidth: Body,
}

/// The part of a failed run.
#[derive(Deserialize)]
struct Failed {
    nvbandwidth: Complaint,
}

#[derive(Deserialize)]
struct Complaint {
    error: String,
}

#[derive(Deserialize)]
struct Body {
    #[serde(rename = "CUDA Runtime Version")]
    cuda: u32,
    #[serde(rename = "Driver Version")]
    driver: String,
    version: String,
    testcases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    status: String,
    bandwidth_description: Option<String>,
    bandwidth_matrix: Option<Vec<Vec<String>>>,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    // A warning may precede the document.
    let no_document = || format!("there is no JSON in it: {}", answer.reason());
    let start = answer.text.find('{').ok_or_else(no_document)?;
    let text = answer.text.get(start..).unwrap_or_default();
    // Without a GPU the document has an error and no tests.
    if let Ok(failed) = json::<Failed>(text) {
        return Err(scan::word(&failed.nvbandwidth.error));
    }
    let body = json::<Report>(text)?.nvbandwidth;
    if !body.version.starts_with("v0.") {
        return Err(format!(
            "version {:?} is not known",
            scan::word(&body.version)
        ));
    }
    if body.testcases.is_empty() {
        return Err("it ran no test".into());
    }
    let mut reading = Reading::default();
    reading.version("nvbandwidth", &scan::word(&body.version));
    reading.version("driver", &scan::word(&body.driver));
    reading.version(
        "cuda",
        &format!("{}.{}", body.cuda / 1000, body.cuda % 1000 / 10),
    );
    let (mut passed, mut failed, mut waived, mut names) = (0, 0, 0, BTreeSet::new());
    for case in &body.testcases {
        if !names.insert(case.name.as_str()) {
            return Err(format!(
                "test {} stands there twice",
                scan::word(&case.name)
            ));
        }
        match case.status.as_str() {
            "Passed" => {
                passed += 1;
                measure(case, &mut reading)?;
            }
            "Failed" | "Error" => {
                failed += 1;
                reading
                    .notes
                    .push(format!("{} failed", scan::word(&case.name)));
            }
            "Waived" => waived += 1,
            other => return Err(format!("status {:?} is not known", scan::word(other))),
        }
    }
    if answer.exit != 0 && failed == 0 {
        return Err(format!(
            "no failure goes with its exit status: {}",
            scan::word(answer.messages)
        ));
    }
    reading.notes.truncate(10);
    reading.count("nvbandwidth.tests", body.testcases.len());
    reading.count("nvbandwidth.passed", passed);
    reading.count("nvbandwidth.failed", failed);
    reading.count("nvbandwidth.waived", waived);
    Ok(reading)
}

/// Parses the matrix of a passed test. A matrix of a test without a metric must be readable, too.
fn measure(case: &Case, reading: &mut Reading) -> Result<(), String> {
    let name = scan::word(&case.name);
    let matrix = case
        .bandwidth_matrix
        .as_deref()
        .ok_or_else(|| format!("{name} passed without a matrix"))?;
    let columns = matrix.first().map_or(0, Vec::len);
    if columns == 0
        || columns > GPUS_MAX
        || matrix.len() > GPUS_MAX
        || matrix.iter().any(|row| row.len() != columns)
    {
        return Err(format!("{name}: its matrix has no shape"));
    }
    let known = TESTS.iter().find(|(test, ..)| *test == case.name);
    let between = known.is_some_and(|(.., between)| *between);
    if between && matrix.len() != columns {
        return Err(format!("{name}: {} rows for {columns} GPUs", matrix.len()));
    }
    let mut slowest: Vec<Option<f64>> = vec![None; columns];
    let latency = known.is_some_and(|(_, _, unit, _)| *unit == "(ns)");
    for (row, cells) in matrix.iter().enumerate() {
        for (column, cell) in cells.iter().enumerate() {
            let itself = between && row == column;
            let value = match scan::number(cell) {
                Some(value) if !itself => value,
                // In an unknown test, also, only the diagonal may lack a number.
                None if cell == "N/A" && (itself || (known.is_none() && row == column)) => continue,
                _ => return Err(format!("{name}: {:?} is no value", scan::word(cell))),
            };
            let kept = &mut slowest[if between { row } else { column }];
            *kept = Some(kept.map_or(value, |kept| {
                if latency {
                    kept.max(value)
                } else {
                    kept.min(value)
                }
            }));
        }
    }
    let Some((_, metric, unit, _)) = known else {
        return Ok(());
    };
    let description = case.bandwidth_description.as_deref().unwrap_or_default();
    if !description.trim_end().ends_with(unit) {
        return Err(format!(
            "{name}: {:?} is not in {unit}",
            scan::word(description)
        ));
    }
    for (gpu, value) in slowest.into_iter().enumerate() {
        let value = value.ok_or_else(|| format!("{name}: GPU {gpu} has no value"))?;
        reading.add_of(metric, &format!("GPU {gpu}"), value);
    }
    Ok(())
}
