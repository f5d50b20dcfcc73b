//! The kernel's log: what drivers say of GPUs, links, memory and disks. That nothing is found is only an answer when lines were read: an empty log, or
//! one that is no kernel's log, is an error. Where a log was cut at the end of a line cannot be told from it; the runner refuses output that was cut.

mod line; // What stands before a message
mod signs; // Messages of faults other than NVIDIA's
mod xid; // Xid, SXid and what the driver recommends

use std::collections::BTreeMap;

use crate::gates::parsers::{Answer, Reading, scan};

const NOTES_MAX: usize = 10;
/// Counted even where there are none.
const METRICS: [&str; 12] = [
    "kernel.gpu_lost",
    "kernel.aer_corrected",
    "kernel.aer_uncorrected",
    "kernel.mce_corrected",
    "kernel.mce_uncorrected",
    "kernel.mlx5_fatal",
    "kernel.mlx5_warnings",
    "kernel.link_downs",
    "kernel.io_errors",
    "kernel.fs_readonly",
    "kernel.lockups",
    "kernel.oom_kills",
];

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("the log was not read: {}", scan::word(answer.messages)));
    }
    scan::whole(answer.text)?;
    let mut counts: BTreeMap<&'static str, usize> = METRICS.iter().map(|metric| (*metric, 0)).collect();
    let mut events = xid::Events::default();
    let mut notes = Vec::new();
    let mut lines = 0;
    for text in answer.text.lines().filter(|text| !line::is_remark(text)) {
        let Some(message) = line::message(text) else {
            // A message of several lines goes on without a time.
            if lines > 0 && (text.is_empty() || text.starts_with([' ', '\t'])) {
                continue;
            }
            return Err(format!("{:?} is no line of a kernel's log", scan::word(text)));
        };
        lines += 1;
        let sign = match events.note(message) {
            true => None,
            false => signs::of(message),
        };
        if let Some(metric) = sign {
            *counts.entry(metric).or_default() += 1;
            if metric != "kernel.link_downs" && notes.len() < NOTES_MAX {
                notes.push(scan::word(message));
            }
        }
    }
    if lines == 0 {
        return Err("it has no line of a kernel's log".into());
    }
    let found = events.judge();
    counts.extend(found.counts);
    let mut reading = Reading::default();
    reading.count("kernel.lines", lines);
    for (metric, count) in counts {
        reading.count(metric, count);
    }
    reading.add_word("kernel.recovery_action", "", found.action.as_str());
    reading.notes = found.notes.into_iter().chain(notes).take(NOTES_MAX).collect();
    Ok(reading)
}
