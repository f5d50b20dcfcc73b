//! Parser for iperf3 3 with `--json`, over TCP. Reports the rate at the receiver, because only
//! received data crossed the network. Gb/s are 10^9 bits per second.

use serde::Deserialize;

use super::scan::plain;
use super::{Answer, Reading, json};

#[derive(Deserialize)]
struct Report {
    start: Start,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    end: End,
}

#[derive(Deserialize)]
struct Start {
    version: String,
}

#[derive(Default, Deserialize)]
struct End {
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    /// cJSON prints a number from 10^15 on with an exponent.
    #[serde(deserialize_with = "plain")]
    bytes: f64,
    #[serde(deserialize_with = "plain")]
    bits_per_second: f64,
    retransmits: Option<u32>,
}

pub(super) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    let report: Report = json(answer.text)?;
    if !report.start.version.starts_with("iperf 3.") {
        return Err(format!("version {:?} is not known", report.start.version));
    }
    // A busy or absent iperf3 server is no evidence against the node's network card.
    if let Some(error) = report.error {
        return Err(error);
    }
    let (Some(sent), Some(received)) = (report.end.sum_sent, report.end.sum_received) else {
        return Err("it ended without a sum over a TCP test".into());
    };
    if answer.exit != 0 || received.bytes == 0.0 {
        return Err(format!("{} bytes were received", received.bytes));
    }
    let mut reading = Reading::default();
    reading.version("iperf3", &report.start.version);
    reading.add("network.received", received.bits_per_second / 1e9);
    if let Some(retransmits) = sent.retransmits {
        reading.add("network.retransmits", retransmits);
    }
    Ok(reading)
}
