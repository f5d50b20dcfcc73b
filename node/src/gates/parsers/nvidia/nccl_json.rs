//! Parser for the file written by nccl-tests with `-J`, versions 2 and 3 of the format. Flags are
//! strings, NaN is the string `nan`, and an unchecked value is `null`.

use serde::Deserialize;
use serde_json::Value;

use super::nccl::Run;
use crate::gates::parsers::scan::plain;
use crate::gates::parsers::{Answer, Reading, json, scan};

#[derive(Deserialize)]
struct Report {
    version: u32,
    nccl_version: u32,
    config: Config,
    #[serde(default)]
    devices: Vec<Device>,
    results: Vec<Size>,
    out_of_bounds: Bounds,
    average_bus_bandwidth: Average,
    errors: Vec<String>,
}

#[derive(Deserialize)]
struct Config {
    /// Version 2 lists the devices here.
    #[serde(default)]
    devices: Vec<Device>,
    validation: u32,
}

#[derive(Deserialize)]
struct Device {
    rank: usize,
}

#[derive(Deserialize)]
struct Size {
    #[serde(deserialize_with = "plain")]
    size: f64,
    out_of_place: Half,
    in_place: Half,
}

#[derive(Deserialize)]
struct Half {
    #[serde(deserialize_with = "plain")]
    bus_bw: f64,
    #[serde(deserialize_with = "plain")]
    nwrong: f64,
}

#[derive(Deserialize)]
struct Bounds {
    #[serde(deserialize_with = "plain")]
    count: f64,
    okay: Value,
}

#[derive(Deserialize)]
struct Average {
    #[serde(deserialize_with = "plain")]
    bandwidth: f64,
    okay: Value,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    let report: Report = json(answer.text)?;
    if !(2..=3).contains(&report.version) {
        return Err(format!("version {} is not known", report.version));
    }
    if let Some(error) = report.errors.iter().find(|error| !error.is_empty()) {
        return Err(scan::word(error));
    }
    if report.config.validation == 0 {
        return Err("nothing was checked: run it without `-c 0`".into());
    }
    let devices = if report.devices.is_empty() {
        &report.config.devices
    } else {
        &report.devices
    };
    if devices
        .iter()
        .enumerate()
        .any(|(index, device)| device.rank != index)
    {
        return Err("its ranks are not numbered in order".into());
    }
    let good = flag(&report.out_of_bounds.okay);
    if good != Some(report.out_of_bounds.count == 0.0) {
        return Err(format!(
            "{} values out of bounds and okay {}",
            report.out_of_bounds.count, report.out_of_bounds.okay
        ));
    }
    if answer.exit != 0
        && good == Some(true)
        && flag(&report.average_bus_bandwidth.okay) != Some(false)
    {
        return Err("no failure goes with its exit status".into());
    }
    let rows = report.results.iter().map(|row| {
        (
            row.size,
            row.in_place.bus_bw,
            row.in_place.nwrong + row.out_of_place.nwrong,
        )
    });
    let run = Run {
        ranks: devices.len(),
        rows: rows.collect(),
        out_of_bounds: report.out_of_bounds.count,
        average: report.average_bus_bandwidth.bandwidth,
    };
    let mut reading = run.into_reading()?;
    let version = report.nccl_version;
    reading.version(
        "nccl",
        &format!(
            "{}.{}.{}",
            version / 10_000,
            version / 100 % 100,
            version % 100
        ),
    );
    Ok(reading)
}

/// Parses a boolean, or the string `"true"` or `"false"`.
fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) if text == "true" => Some(true),
        Value::String(text) if text == "false" => Some(false),
        _ => None,
    }
}
