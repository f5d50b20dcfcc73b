//! Errors of each RDMA port, as counted by the kernel. Reads every port, including RoCE ports,
//! unlike `perfquery`. A port without the folder `counters` (Soft-RoCE) has no error counts. If all
//! ports lack the folder, the measurement fails.

use crate::gates::Bench;
use crate::gates::parsers::rdma::ports::{self, Port};
use crate::gates::parsers::{Reading, scan};

/// File, metric, and the value where the counter saturates (InfiniBand specification, 16.1.3.5).
const COUNTERS: [(&str, &str, f64); 5] = [
    ("symbol_error", "ib.symbol_errors", 65_535.0),
    ("link_error_recovery", "ib.link_recoveries", 255.0),
    ("link_downed", "ib.link_downed", 255.0),
    ("local_link_integrity_errors", "ib.integrity_errors", 15.0),
    (
        "excessive_buffer_overrun_errors",
        "ib.buffer_overruns",
        15.0,
    ),
];
/// Exhausted retries, because the peer was not ready to receive. Reported by mlx5.
const RETRIES: &str = "hw_counters/rnr_nak_retry_err";

pub(in crate::gates::parsers) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let mut reading = Reading::default();
    for port in ports::all(&bench.machine)? {
        match port.has("counters") {
            true => count(&port, &mut reading)?,
            false => reading
                .notes
                .push(format!("{} counts no errors", port.name)),
        }
    }
    match reading.samples.is_empty() {
        true => Err("no RDMA port counts errors".into()),
        false => Ok(reading),
    }
}

fn count(port: &Port<'_>, reading: &mut Reading) -> Result<(), String> {
    let number = |file: &str, text: &str| {
        scan::count(text).ok_or_else(|| format!("{}: {file} is {:?}", port.name, scan::word(text)))
    };
    for (file, metric, end) in COUNTERS {
        let text = port.read(&format!("counters/{file}"))?;
        let value = number(
            file,
            &text.ok_or_else(|| format!("{} does not tell {file}", port.name))?,
        )?;
        if value >= end {
            let name = &port.name;
            return Err(format!(
                "{name}: {file} stands at its end, {value}, and counts no more: clear it (perfquery -R)"
            ));
        }
        reading.add_of(metric, &port.name, value);
    }
    if let Some(text) = port.read(RETRIES)? {
        reading.add_of("ib.retries_spent", &port.name, number(RETRIES, &text)?);
    }
    Ok(())
}
