//! Parser for the file of perftest's `--out_json`. The file does not state its unit, so the parser
//! checks the unit. The message rate times the message size must equal the bandwidth in Gb/s.

use serde::Deserialize;

use crate::gates::parsers::{Answer, Reading, json, scan};

/// Relative difference allowed between the stated bandwidth and the bandwidth computed from the
/// message rate. With the other unit, the values differ by two orders of magnitude.
const TOLERANCE: f64 = 0.05;

#[derive(Deserialize)]
struct Report {
    test_info: Test,
    results: Results,
}

#[derive(Deserialize)]
struct Test {
    test: String,
}

#[derive(Deserialize)]
struct Results {
    #[serde(rename = "MsgSize")]
    size: u64,
    n_iterations: u64,
    #[serde(rename = "BW_average")]
    bandwidth: Option<f64>,
    /// In millions of messages per second.
    #[serde(rename = "MsgRate")]
    rate: Option<f64>,
    t_max: Option<f64>,
    t_typical: Option<f64>,
    t_avg: Option<f64>,
    percentile_99: Option<f64>,
    #[serde(rename = "percentile_99.9")]
    percentile_999: Option<f64>,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("it failed: {}", answer.reason()));
    }
    let report: Report = json(answer.text)?;
    let results = report.results;
    if results.n_iterations == 0 || results.size == 0 {
        return Err("nothing was sent".into());
    }
    let entity = format!("{} B", results.size);
    let mut reading = Reading::default();
    reading.add_of("rdma.iterations", &entity, results.n_iterations as f64);
    match report.test_info.test.as_str() {
        test if test.ends_with("_BW_Test") || test.ends_with("_BW") => {
            let (Some(bandwidth), Some(rate)) = (results.bandwidth, results.rate) else {
                return Err("it tells no bandwidth, or no rate of messages".into());
            };
            let by_rate = rate * results.size as f64 * 8.0 / 1e3;
            // perftest prints both values with few digits.
            if (bandwidth - by_rate).abs() > by_rate * TOLERANCE + 0.02 {
                return Err(format!(
                    "{bandwidth} is not {by_rate:.2} Gb/s; ask for --report_gbits"
                ));
            }
            reading.add_of("rdma.bandwidth", &entity, bandwidth);
            reading.add_of("rdma.message_rate", &entity, rate);
        }
        test if test.ends_with("_Latency_Test") || test.ends_with("_Lat") => {
            let times = [
                ("rdma.latency_max", results.t_max),
                ("rdma.latency_typical", results.t_typical),
                ("rdma.latency_avg", results.t_avg),
                ("rdma.latency_p99", results.percentile_99),
                ("rdma.latency_p999", results.percentile_999),
            ];
            for (metric, value) in times {
                reading.add_of(
                    metric,
                    &entity,
                    value.ok_or_else(|| format!("it does not tell {metric}"))?,
                );
            }
        }
        other => return Err(format!("test {:?} is not known", scan::word(other))),
    }
    Ok(reading)
}
