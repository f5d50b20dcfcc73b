//! Health log of an NVMe disk (smartmontools 7.1 to 7.5, nvmeprint.cpp, print_smart_log).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::gates::parsers::{Reading, members, nvme, scan};

#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Log(#[serde(deserialize_with = "members")] BTreeMap<String, Value>);

/// Metrics of the log, for a disk without the log.
const METRICS: [&str; 5] = [
    "smart.critical_warning",
    "smart.media_errors",
    "smart.percentage_used",
    "smart.spare_missing",
    "smart.temperature",
];

/// Adds the values of the log. A missing value is an error for the gates that ask for the value.
pub(super) fn add_log(reading: &mut Reading, serial: &str, log: Option<&Log>) {
    let Some(log) = log else {
        for metric in METRICS {
            reading.leave(metric, "the health log is missing".to_owned());
        }
        return;
    };
    let [warning, media, used, spare, temperature] = METRICS;
    let warnings = log.byte("critical_warning");
    add_number(reading, warning, warnings.clone().map(f64::from));
    add_number(reading, media, log.count("media_errors"));
    add_number(reading, used, log.byte("percentage_used").map(f64::from));
    let missing = log
        .byte("available_spare_threshold")
        .and_then(|least| Ok(least.saturating_sub(log.byte("available_spare")?)));
    add_number(reading, spare, missing.map(f64::from));
    add_number(reading, temperature, log.number("temperature"));
    if let Ok(bits) = warnings
        && bits != 0
    {
        let note = format!("{serial} raises {}", nvme::warnings(bits));
        reading.notes.push(note);
    }
}

fn add_number(reading: &mut Reading, metric: &'static str, number: Result<f64, String>) {
    match number {
        Ok(number) => reading.add(metric, number),
        Err(why) => reading.leave(metric, why),
    }
}

impl Log {
    fn value(&self, key: &str) -> Result<&Value, String> {
        let value = self.0.get(key);
        value.ok_or_else(|| format!("the health log has no {key}"))
    }

    fn number(&self, key: &str) -> Result<f64, String> {
        let value = self.value(key)?;
        let number = value.as_f64();
        number.ok_or_else(|| format!("{key} is {}", scan::word(&value.to_string())))
    }

    fn count(&self, key: &str) -> Result<f64, String> {
        let value = self.value(key)?;
        let count = value.as_u64().map(|count| count as f64);
        count.ok_or_else(|| format!("{key} is {}", scan::word(&value.to_string())))
    }

    fn byte(&self, key: &str) -> Result<u8, String> {
        let value = self.value(key)?;
        let byte = value.as_u64().and_then(|byte| u8::try_from(byte).ok());
        byte.ok_or_else(|| format!("{key} is {}", scan::word(&value.to_string())))
    }
}
