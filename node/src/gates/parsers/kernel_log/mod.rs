//! The kernel's log: what drivers say of GPUs, links, memory and disks. That nothing is found is only an answer when lines were read: an empty log, or
//! one that is no kernel's log, is an error. Where a log was cut at the end of a line cannot be told from it; the runner refuses output that was cut.

mod line; // What stands before a message
mod signs; // Messages of faults other than NVIDIA's
mod xid; // Xid, SXid and what the driver recommends

use std::collections::BTreeMap;

use muster_core::gates::xid::{Action, XidOverrides};
use muster_core::gates::{Limit, Sample};

use crate::gates::cursor::{self, Since};
use crate::gates::parsers::{Answer, Bench, Reading, scan};

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

pub(in crate::gates::parsers) fn parse(
    answer: &Answer<'_>,
    overrides: Option<&XidOverrides>,
) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("the log was not read: {}", scan::word(answer.messages)));
    }
    scan::whole(answer.text)?;
    let reading = counted(answer.text, overrides)?;
    match reading.number("kernel.lines", "") {
        Some(lines) if lines > 0.0 => Ok(reading),
        _ => Err("it has no line of a kernel's log".into()),
    }
}

/// What was said since the last look of the plan's suite. Where some of it was lost, a count of nothing says nothing, and is not told.
pub(in crate::gates::parsers) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let look = cursor::look(&bench.machine, &bench.plan.suite.name).map_err(|failure| failure.message)?;
    let mut reading = counted(&look.text, bench.plan.xid.as_ref())?;
    if !look.since.is_whole() {
        let none = |sample: &Sample| match &sample.value {
            Limit::Number(count) => sample.metric != "kernel.lines" && *count == 0.0,
            Limit::Text(word) => word == Action::Ignore.as_str(),
        };
        reading.samples.retain(|sample| !none(sample));
    }
    reading.add_word("kernel.since", "", look.since.as_str());
    let lost = match look.since {
        Since::LastLook | Since::FirstLook => None,
        Since::Boot => Some("booted since the last look: the end of the boot before is not known"),
        Since::Overwritten => Some("records were overwritten since the last look, before they were read"),
        Since::CutShort => Some("more was said than one look reads: the next one goes on"),
    };
    reading.notes.extend(lost.map(str::to_owned));
    bench.shared.looked(look.kept);
    Ok(reading)
}

/// Everything that is counted in a text; of one without a line, that there was nothing.
fn counted(text: &str, overrides: Option<&XidOverrides>) -> Result<Reading, String> {
    let mut counts: BTreeMap<&'static str, usize> = METRICS.iter().map(|metric| (*metric, 0)).collect();
    let mut events = xid::Events::default();
    let mut notes = Vec::new();
    let mut lines = 0;
    for text in text.lines().filter(|text| !line::is_remark(text)) {
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
    let found = events.judge(overrides);
    counts.extend(found.counts);
    let mut reading = Reading::default();
    reading.count("kernel.lines", lines);
    for (metric, count) in counts {
        reading.count(metric, count);
    }
    reading.add_word("kernel.recovery_action", "", found.action.as_str());
    if let Some(overrides) = overrides {
        reading.version("xid-overrides", &overrides.version);
    }
    reading.notes = found.notes.into_iter().chain(notes).take(NOTES_MAX).collect();
    Ok(reading)
}

#[cfg(test)]
mod tests {
    use muster_core::gates::xid::{Action, Row, XidOverrides};

    use super::*;

    #[test]
    fn a_sites_own_row_decides_and_its_version_is_told() {
        let text = "[   12.345678] NVRM: Xid (PCI:0000:9b:00): 63, pid=1, name=x, Row Remapper\n";
        let answer = Answer { exit: 0, text, messages: "", serial: None };
        let fatal = |overrides: Option<&XidOverrides>| {
            let reading = parse(&answer, overrides).unwrap();
            (reading.number("kernel.xid_fatal", ""), reading.versions.get("xid-overrides").cloned())
        };
        let row = Row {
            code: 63,
            name: "row remapped".into(),
            meaning: String::new(),
            action: Action::Diagnose,
            stated: false,
            source: "our maker".into(),
        };
        let ours = XidOverrides { version: "site-3".into(), xid: vec![row], sxid: vec![] };
        let (shipped, told) = fatal(None);
        assert_eq!(told, None);
        assert_eq!(fatal(Some(&ours)), (Some(1.0), Some("site-3".into())));
        let harmless = XidOverrides { xid: vec![Row { action: Action::Ignore, ..ours.xid[0].clone() }], ..ours };
        assert_eq!(fatal(Some(&harmless)).0, Some(0.0), "shipped: {shipped:?}");
    }
}
