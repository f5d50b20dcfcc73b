//! Values of a SAS disk (smartmontools 7.1 to 7.5, scsiprint.cpp: scsiGetSmartData,
//! scsiPrintErrorCounterLog, scsiPrintSSMedia, scsiPrintTemp).

use serde::Deserialize;

use crate::gates::parsers::{Reading, scan};

/// Additional sense code of a predicted failure (SPC-5, annex F: FAILURE PREDICTION THRESHOLD
/// EXCEEDED and the codes below).
const PREDICTED: u8 = 0x5d;

/// The reason of a disk that does not call itself healthy.
#[derive(Deserialize)]
pub(super) struct Exception {
    asc: u8,
    ascq: u8,
    ie_string: String,
}

/// Error counters. `verify` is written only with errors.
#[derive(Deserialize)]
pub(super) struct Counters {
    read: Option<Counter>,
    write: Option<Counter>,
    verify: Option<Counter>,
}

#[derive(Deserialize)]
struct Counter {
    total_uncorrected_errors: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Temperature {
    current: Option<f64>,
}

/// The members of a report about a SAS disk.
pub(super) struct Values<'a> {
    pub(super) exception: Option<&'a Exception>,
    pub(super) failing: bool,
    pub(super) counters: Option<&'a Counters>,
    /// SSDs only, in percent.
    pub(super) endurance: Option<u32>,
    pub(super) temperature: Option<&'a Temperature>,
}

/// Adds the values of the disk. A disk predicts its failure by an exception, and has no attributes.
pub(super) fn add_values(reading: &mut Reading, serial: &str, values: &Values<'_>) {
    match (values.exception, values.failing) {
        (Some(exception), _) => {
            let Exception {
                asc,
                ascq,
                ie_string,
            } = exception;
            let said = scan::word(ie_string);
            reading.count("smart.prefail", usize::from(*asc == PREDICTED));
            let note = format!("{serial}: {said} (asc {asc:#04x}, ascq {ascq:#04x})");
            reading.notes.push(note);
        }
        (None, false) => reading.count("smart.prefail", 0),
        (None, true) => {
            let reason = "the disk is failing without an exception".to_owned();
            reading.leave("smart.prefail", reason);
        }
    }
    match values.counters.map(sum_uncorrected) {
        Some(Ok(errors)) => reading.add("smart.media_errors", errors),
        Some(Err(missing)) => {
            let reason = format!("the error counters have no {missing}");
            reading.leave("smart.media_errors", reason);
        }
        None => {}
    }
    if let Some(percent) = values.endurance {
        reading.add("smart.percentage_used", percent);
    }
    if let Some(current) = values
        .temperature
        .and_then(|temperature| temperature.current)
    {
        reading.add("smart.temperature", current);
    }
}

/// Adds up the uncorrected errors of all directions.
///
/// # Errors
/// Returns the name of a missing counter.
fn sum_uncorrected(counters: &Counters) -> Result<f64, &'static str> {
    let errors = |counter: Option<&Counter>, missing: &'static str| {
        counter
            .and_then(|counter| counter.total_uncorrected_errors)
            .map(|errors| errors as f64)
            .ok_or(missing)
    };
    let read = errors(counters.read.as_ref(), "read")?;
    let write = errors(counters.write.as_ref(), "write")?;
    let verify = match &counters.verify {
        Some(counter) => errors(Some(counter), "verify")?,
        None => 0.0,
    };
    Ok(read + write + verify)
}
