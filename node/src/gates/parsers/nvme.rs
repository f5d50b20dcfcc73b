//! nvme-cli 2, `nvme smart-log --output-format=json`: large counters are strings, and the temperature is in kelvin. The document carries no version, so
//! every field must be there.

use serde::Deserialize;
use serde_json::Value;

use super::{Answer, Reading, json, scan};

#[derive(Deserialize)]
struct Log {
    critical_warning: u8,
    temperature: f64,
    avail_spare: u8,
    spare_thresh: u8,
    percent_used: u8,
    media_errors: Value,
}

const ZERO_CELSIUS_IN_KELVIN: f64 = 273.0;

pub(super) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("the disk was not read: {}", answer.reason()));
    }
    let log: Log = json(answer.text)?;
    let media_errors = match &log.media_errors {
        Value::Number(number) => number
            .as_f64()
            .filter(|count| count.fract() == 0.0 && (0.0..scan::LARGEST).contains(count)),
        Value::String(text) => scan::count(text),
        _ => None,
    }
    .ok_or_else(|| format!("media_errors {} is not a count", log.media_errors))?;
    let mut reading = Reading::default();
    reading.add("smart.critical_warning", log.critical_warning);
    reading.add("smart.media_errors", media_errors);
    reading.add("smart.percentage_used", log.percent_used);
    reading.add(
        "smart.spare_missing",
        log.spare_thresh.saturating_sub(log.avail_spare),
    );
    reading.add(
        "smart.temperature",
        log.temperature - ZERO_CELSIUS_IN_KELVIN,
    );
    if log.critical_warning != 0 {
        reading
            .notes
            .push(format!("it raises {}", warnings(log.critical_warning)));
    }
    Ok(reading)
}

/// The bits of Critical Warning (NVM Express Base Specification 2.0, figure 207).
pub(super) fn warnings(bits: u8) -> String {
    let names = [
        "spare below threshold",
        "temperature out of range",
        "reliability degraded",
        "media read-only",
        "volatile memory backup failed",
        "persistent memory region read-only or unreliable",
    ];
    let set = names
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits & (1 << bit) != 0)
        .map(|(_, name)| *name);
    let named: Vec<&str> = set.collect();
    format!("critical warning {bits}: {}", named.join(", "))
}
