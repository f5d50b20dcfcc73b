//! Parser for fio 3 with `--output-format=json`. Notes of fio may precede the document. Bandwidth
//! is in MB/s (10^6 bytes), from fio's `bw_bytes`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::scan::{LARGEST, plain};
use super::{Answer, Reading, json};

#[derive(Deserialize)]
struct Report {
    #[serde(rename = "fio version")]
    version: String,
    jobs: Vec<Job>,
    #[serde(rename = "global options", default)]
    options: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Job {
    jobname: String,
    /// errno of the job. 84 (EILSEQ) when the data read differ from the data written.
    error: u32,
    #[serde(rename = "job options", default)]
    options: BTreeMap<String, String>,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    #[serde(deserialize_with = "plain")]
    io_bytes: f64,
    #[serde(deserialize_with = "plain")]
    bw_bytes: f64,
    #[serde(deserialize_with = "plain")]
    iops: f64,
    clat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

pub(super) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    let mut text = answer.text;
    // `note: both iodepth >= 1 and synchronous I/O engine are selected, …`, from 3.33 on.
    while let Some((_, rest)) = text
        .split_once('\n')
        .filter(|(line, _)| line.starts_with("note: "))
    {
        text = rest;
    }
    let report: Report = json(text)?;
    if !report.version.starts_with("fio-3.") {
        return Err(format!("version {:?} is not known", report.version));
    }
    let failed = report.jobs.iter().any(|job| job.error != 0);
    if report.jobs.is_empty() || (answer.exit != 0) != failed {
        return Err(format!(
            "{} jobs, of which {} failed, do not go with its exit status",
            report.jobs.len(),
            u8::from(failed)
        ));
    }
    let mut reading = Reading::default();
    reading.version("fio", &report.version);
    for job in &report.jobs {
        let name = job.jobname.as_str();
        reading.add_of("fio.error", name, job.error);
        reading.add_of("fio.written", name, job.write.io_bytes);
        if job.options.contains_key("verify") || report.options.contains_key("verify") {
            // Verification reads back every written block.
            reading.add_of(
                "fio.unverified",
                name,
                (job.write.io_bytes - job.read.io_bytes).abs(),
            );
        }
        let metrics = [
            (
                &job.write,
                "fio.write_bandwidth",
                "fio.write_iops",
                "fio.write_p99",
            ),
            (
                &job.read,
                "fio.read_bandwidth",
                "fio.read_iops",
                "fio.read_p99",
            ),
        ];
        for (direction, bandwidth, iops, p99) in metrics {
            if direction.io_bytes == 0.0 {
                continue;
            }
            reading.add_of(bandwidth, name, direction.bw_bytes / 1e6);
            reading.add_of(iops, name, direction.iops);
            if let Some(nanoseconds) = direction.clat_ns.percentile.get("99.000000") {
                if !(0.0..LARGEST).contains(nanoseconds) {
                    return Err(format!("a latency of {nanoseconds} ns"));
                }
                reading.add_of(p99, name, nanoseconds / 1e6);
            }
        }
    }
    if failed {
        reading
            .notes
            .extend(answer.messages.lines().map(str::to_owned).take(10));
    }
    Ok(reading)
}
