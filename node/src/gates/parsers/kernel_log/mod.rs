//! The kernel's log: messages of drivers about GPUs, links, memory and disks. Zero findings count
//! only if lines were read. An empty log, or a text of another format, is an error. A log cut at
//! the end of a line looks complete, so the runner rejects truncated output.

mod line; // Prefixes before a message
mod signs; // Faults by subsystem, without a code
mod xid; // Xid, SXid and the driver's recommendation

use std::collections::BTreeMap;

use muster_core::gates::xid::{Action, XidOverrides};
use muster_core::gates::{Gate, Limit, Sample};

use crate::gates::cursor::{self, Since};
use crate::gates::parsers::{Answer, Bench, Reading, scan};

const NOTES_MAX: usize = 10;
/// First message of each boot (`linux_banner`, printed by `start_kernel` of init/main.c). A log
/// without the banner has lost its beginning.
const BANNER: &str = "Linux version ";
/// Line end within a message, in the form of /dev/kmsg (Documentation/ABI/testing/dev-kmsg).
const LINE_END: &str = "\\x0a";
/// Prefix of the kernel's line before errors of the previous boot. The lines of such an error
/// follow and begin with `HARDWARE_ERROR`.
const BOOT_ERRORS: &str = "BERT: ";
const HARDWARE_ERROR: &str = "[Hardware Error]";
/// Metrics reported even with a count of zero.
const METRICS: [&str; 17] = [
    "kernel.gpu_lost",
    "kernel.amdgpu_fatal",
    "kernel.amdgpu_resets",
    "kernel.aer_corrected",
    "kernel.aer_uncorrected",
    "kernel.mce_corrected",
    "kernel.mce_uncorrected",
    "kernel.previous_boot_errors",
    "kernel.mlx5_fatal",
    "kernel.mlx5_warnings",
    "kernel.link_downs",
    "kernel.io_errors",
    "kernel.fs_readonly",
    "kernel.lockups",
    "kernel.stalls",
    "kernel.hung_tasks",
    "kernel.oom_kills",
];

pub(in crate::gates::parsers) fn parse(
    answer: &Answer<'_>,
    overrides: Option<&XidOverrides>,
) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("the log was not read: {}", answer.reason()));
    }
    scan::whole(answer.text)?;
    let mut reading = counted(answer.text, overrides)?;
    let begins = answer
        .text
        .lines()
        .filter_map(line::message)
        .any(|message| message.starts_with(BANNER));
    reading.count("kernel.beginning_lost", usize::from(!begins));
    match reading.number("kernel.lines", "") {
        Some(lines) if lines > 0.0 => Ok(reading),
        _ => Err("it has no line of a kernel's log".into()),
    }
}

/// Counts the messages since the previous reading for the plan's suite. If records were lost, a
/// zero count proves nothing, so zero counts and the recovery action `ignore` are removed.
pub(in crate::gates::parsers) fn measure(
    gate: &Gate,
    bench: &Bench<'_>,
) -> Result<Reading, String> {
    let look =
        cursor::look(&bench.machine, &bench.plan.suite.name).map_err(|failure| failure.message)?;
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
        Since::Overwritten => Some("records were overwritten before this look could read them"),
        Since::CutShort => Some("more was said than one look reads: the next one goes on"),
    };
    reading.notes.extend(lost.map(str::to_owned));
    bench.shared.looked(gate.stage, look.kept);
    Ok(reading)
}

/// Counts all known messages in a text. For a text without lines, every count is zero.
fn counted(text: &str, overrides: Option<&XidOverrides>) -> Result<Reading, String> {
    let mut counts: BTreeMap<&'static str, usize> =
        METRICS.iter().map(|metric| (*metric, 0)).collect();
    let mut events = xid::Events::default();
    let mut notes = Vec::new();
    let records = records(text)?;
    let mut of_previous_boot = false;
    for record in &records {
        // At boot, the firmware reports again the errors which caused the reset
        // (drivers/acpi/apei/bert.c).
        of_previous_boot = record.starts_with(BOOT_ERRORS)
            || of_previous_boot && record.starts_with(HARDWARE_ERROR);
        if events.note(record) {
            continue;
        }
        let (first, more) = lines(record);
        if more.iter().filter(|line| events.note(line)).count() > 0 {
            continue;
        }
        let sign = signs::of(first).or_else(|| more.iter().find_map(|line| signs::of(line)));
        if let Some(metric) = sign {
            let metric = if of_previous_boot {
                "kernel.previous_boot_errors"
            } else {
                metric
            };
            *counts.entry(metric).or_default() += 1;
            if metric != "kernel.link_downs" && notes.len() < NOTES_MAX {
                notes.push(scan::word(record));
            }
        }
    }
    let found = events.judge(overrides);
    counts.extend(found.counts);
    let mut reading = Reading::default();
    reading.count("kernel.lines", records.len());
    for (metric, count) in counts {
        reading.count(metric, count);
    }
    reading.add_word("kernel.recovery_action", "", found.action.as_str());
    if let Some(overrides) = overrides {
        reading.version("xid-overrides", &overrides.version);
    }
    reading.notes = found
        .notes
        .into_iter()
        .chain(notes)
        .take(NOTES_MAX)
        .collect();
    Ok(reading)
}

/// Returns the first line of a message, which names its source, and the continuation lines. A user
/// can put an escaped line end and any words into the name of a process, mount or file.
/// Continuation lines are therefore returned only for NVIDIA's driver, the only driver known to
/// write several lines.
fn lines(record: &str) -> (&str, Vec<&str>) {
    if signs::is_of_a_process(record) {
        return (record, Vec::new());
    }
    let mut lines = record.split(LINE_END);
    let first = lines.next().unwrap_or(record);
    (
        first,
        if first.starts_with("NVRM:") {
            lines.collect()
        } else {
            Vec::new()
        },
    )
}

/// Splits a log into messages. A continuation line has no time: dmesg and journalctl indent such a
/// line, and /dev/kmsg writes [`LINE_END`]. The returned messages use [`LINE_END`].
fn records(text: &str) -> Result<Vec<String>, String> {
    let mut records: Vec<String> = Vec::new();
    for text in text.lines().filter(|text| !line::is_remark(text)) {
        match (line::message(text), records.last_mut()) {
            (Some(message), _) if is_prefixed_twice(message) => {
                return Err(format!(
                    "{:?} has a second prefix of an unknown form: give the output of dmesg, or of \
                     journalctl -k",
                    scan::word(text)
                ));
            }
            (Some(message), _) => records.push(message.to_owned()),
            (None, Some(last)) if text.is_empty() || text.starts_with([' ', '\t']) => {
                last.push_str(LINE_END);
                last.push_str(text.trim());
            }
            (None, _) => {
                return Err(format!(
                    "{:?} is no line of a kernel's log",
                    scan::word(text)
                ));
            }
        }
    }
    Ok(records)
}

/// Returns whether a prefix is left before the first line of a message. A user can put any words
/// into the name of a process, and behind an escaped line end.
fn is_prefixed_twice(message: &str) -> bool {
    let first = message.split(LINE_END).next().unwrap_or(message);
    line::is_prefixed(first) && !signs::is_of_a_process(first)
}

#[cfg(test)]
mod tests {
    use muster_core::gates::xid::{Action, Row, XidOverrides};

    use super::*;

    fn read(text: &str) -> Reading {
        parse(
            &Answer {
                exit: 0,
                text,
                messages: "",
                serial: None,
            },
            None,
        )
        .unwrap()
    }

    #[test]
    fn a_message_of_several_lines_is_read_to_its_end() {
        // The words are from NVSentinel's issue 155. dmesg indents the next lines, and the kernel
        // escapes the line ends.
        let [first, second, third] = [
            "NVRM: The NVIDIA GPU 0000:b3:00.0",
            "NVRM: (PCI ID: 10de:26b5) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ];
        for text in [
            format!(
                "[   12.345678] {first}\n               {second}\n               {third}\n[   12.4] quiet\n"
            ),
            format!(
                "[   12.345678] [ T3919] {first}\n                       {second}\n                       {third}\n"
            ),
            format!("3,339,5140900,-;{first}\\x0a{second}\\x0a{third}\n SUBSYSTEM=pci\n"),
        ] {
            assert_eq!(
                read(&text).number("kernel.gpu_lost", ""),
                Some(1.0),
                "{text}"
            );
        }
        let xid = "NVRM: Xid (PCI:0000:b3:00): 79, pid=1, name=x, GPU has fallen off the bus.";
        let reading = read(&format!("[   12.345678] {first}\n               {xid}\n"));
        assert_eq!(reading.number("kernel.xid_fatal", ""), Some(1.0));
    }

    /// One log in the forms of dmesg, journalctl and rsyslog: the prefix of each line.
    const FORMS: [fn(&str) -> String; 16] = [
        |at| format!("[{at}] "),
        |at| format!("<4>[{at}] "),
        |at| format!("[{at} <    0.000002>] "),
        |at| format!("kern  :err   : [{at}] "),
        |at| format!("[{at}] [ T3919] "),
        |_| "[Sun Feb 23 16:24:18 2025] ".into(),
        |_| "2025-02-23T16:24:18,123456+01:00 ".into(),
        |_| "3,339,5140900,-;".into(),
        |at| format!("[{at}] node-7 kernel: "),
        |at| format!("[{at}] kernel: "),
        |_| "Feb 23 16:24:18 node-7 kernel: ".into(),
        |_| "Feb 23 16:24:18.123456 node-7 kernel: ".into(),
        |_| "2025-02-23T16:24:18+0100 node-7 kernel: ".into(),
        |_| "Sun 2025-02-23 16:24:18 CET node-7 kernel: ".into(),
        |at| format!("Feb 23 16:24:18 node-7 kernel: [{at}] "),
        |at| format!("2025-02-23T16:24:18.123456+01:00 node-7 kernel: [{at}] "),
    ];
    const LOST: [&str; 3] = [
        "Linux version 6.8.0-60-generic (buildd@host) #63-Ubuntu SMP",
        "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.",
    ];

    /// Writes the log of a lost GPU with a prefix before each line.
    fn write_log(prefix: impl Fn(&str) -> String) -> String {
        let lines = LOST
            .iter()
            .zip(["    0.000000", "367813.574818", "367813.574820"]);
        lines
            .map(|(message, at)| format!("{}{message}\n", prefix(at)))
            .collect()
    }

    #[test]
    fn one_log_has_the_same_counts_in_every_form() {
        let plain = read(&write_log(FORMS[0]));
        let wanted = [3.0, 1.0, 1.0, 1.0, 0.0].map(Some);
        let metrics = [
            "kernel.lines",
            "kernel.xid",
            "kernel.xid_fatal",
            "kernel.gpu_lost",
            "kernel.beginning_lost",
        ];
        assert_eq!(
            metrics.map(|metric| plain.number(metric, "")),
            wanted,
            "dmesg"
        );
        for form in FORMS {
            let text = write_log(form);
            assert_eq!(read(&text).samples, plain.samples, "{text}");
        }
    }

    /// A log cut at any byte is an error, or ends with a line: then the whole lines count.
    #[test]
    fn a_cut_log_is_an_error_or_has_fewer_lines() {
        for form in FORMS {
            let text = write_log(form);
            for at in 0..text.len() {
                let answer = Answer {
                    exit: 0,
                    text: &text[..at],
                    messages: "",
                    serial: None,
                };
                let lines = text[..at].lines().count();
                let whole = at > 0 && text[..at].ends_with('\n');
                match parse(&answer, None) {
                    Ok(reading) => {
                        assert!(whole, "{}", answer.text);
                        let found = reading
                            .number("kernel.lines", "")
                            .map(|found| found as usize);
                        assert_eq!(found, Some(lines), "{}", answer.text);
                    }
                    Err(_) => assert!(!whole, "{}", answer.text),
                }
            }
        }
    }

    #[test]
    fn an_unknown_prefix_is_an_error_and_never_a_zero() {
        let prefixes: [fn(&str) -> String; 10] = [
            |_| String::new(),
            |at| format!("{{{at}}} "),
            |at| format!("{at}: "),
            |at| format!("[{at}] 16:24:18 node-7 kernel: "),
            |at| format!("[{at}] node-7 klogd kernel: "),
            |at| format!("[{at}] (0) [x] "),
            |_| "<4>1 2025-02-23T16:24:18.123456+01:00 node-7 kernel - - - ".into(),
            |_| "2025-02-23 16:24:18 node-7 kernel: ".into(),
            |_| "Feb 23 2025 16:24:18 node-7 kernel: ".into(),
            |at| format!("Feb 23 16:24:18 node-7 kernel: ({at}) node-7 kernel: "),
        ];
        for prefix in prefixes {
            let text = write_log(prefix);
            let answer = Answer {
                exit: 0,
                text: &text,
                messages: "",
                serial: None,
            };
            assert!(parse(&answer, None).is_err(), "{text}");
        }
        // One line of another form in a good log.
        let [first, second, _] = LOST;
        for wrong in ["node-7 kernel: ", "(12.3) ", "[12] "] {
            let text = format!("[    0.000000] {first}\n{wrong}{second}\n");
            let answer = Answer {
                exit: 0,
                text: &text,
                messages: "",
                serial: None,
            };
            assert!(parse(&answer, None).is_err(), "{text}");
        }
    }

    #[test]
    fn a_log_without_its_beginning_says_so() {
        let lost = |text: &str| read(text).number("kernel.beginning_lost", "");
        let banner =
            "[    0.000000] Linux version 6.1.0-31-amd64 (debian-kernel@lists.debian.org)\n";
        assert_eq!(
            (lost(banner), lost("[   12.3] quiet\n")),
            (Some(0.0), Some(1.0))
        );
        // A mention of the banner's words is not the banner.
        assert_eq!(
            lost("[   12.3] loadable module for Linux version 6.1.0\n"),
            Some(1.0)
        );
    }

    #[test]
    fn the_name_of_a_process_is_no_line_of_the_kernels() {
        for text in [
            "[   12.3] traps: a\n           I/O error[4242] general protection fault ip:401136\n",
            "[   12.3] NVRM: Xid (PCI:0000:b3:00): 13, pid=1, name=a\n           I/O error, Graphics SM Warp Exception\n",
            "6,339,514,-;traps: a\\x0aI/O error[4242] general protection fault ip:401136\n",
        ] {
            assert_eq!(
                read(text).number("kernel.io_errors", ""),
                Some(0.0),
                "{text}"
            );
        }
    }

    #[test]
    fn only_the_driver_goes_on_as_the_driver() {
        let lost = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus.";
        let words =
            "NVRM: Xid (PCI:0000:9b:00): 154, changed from 0x1 (GPU Reset Required) to 0x0 (None)'";
        for said in [
            "overlayfs: failed to resolve 'X",
            "NVRM: API mismatch: the client has the version X",
            "usb 1-1: Product: X",
            "EXT4-fs (loop0): Unrecognized mount option \"X",
        ] {
            for text in [
                format!("[   12.3] {lost}\n[   12.4] {said}\n           {words}\n"),
                format!(
                    "kern  :err   : [   12.3] {lost}\nkern  :err   : [   12.4] {said}\n               kern  :err   : [   12.4] {words}\n"
                ),
                format!("3,1,514,-;{lost}\n3,2,515,-;{said}\\x0a{words}\n"),
            ] {
                let reading = read(&text);
                let found =
                    ["kernel.xid", "kernel.xid_fatal"].map(|metric| reading.number(metric, ""));
                assert_eq!(found, [Some(1.0), Some(1.0)], "{text}");
            }
            let forged = read(&format!(
                "[   12.4] {said}\n           {lost}\n           I/O error\n"
            ));
            let found = ["kernel.xid", "kernel.io_errors"].map(|metric| forged.number(metric, ""));
            assert_eq!(found, [Some(0.0), Some(0.0)], "{said}");
        }
        // The indented properties in /dev/kmsg are not part of the message.
        let fatal = "3,1,514,-;mlx5_core 0000:97:00.0: poll_health:800:(pid 0): Fatal error 1 detected\n SUBSYSTEM=pci\n";
        assert_eq!(read(fatal).number("kernel.mlx5_fatal", ""), Some(1.0));
    }

    #[test]
    fn errors_of_the_boot_before_are_told_apart() {
        let of = |lines: &[&str]| {
            let reading = read(
                &lines
                    .iter()
                    .map(|line| format!("[    1.2] {line}\n"))
                    .collect::<String>(),
            );
            ["kernel.previous_boot_errors", "kernel.mce_uncorrected"]
                .map(|metric| reading.number(metric, ""))
        };
        let bert = "BERT: Error records from previous boot:";
        let block = [
            "[Hardware Error]: event severity: fatal",
            "[Hardware Error]:  Error 0, type: fatal",
        ];
        assert_eq!(of(&[bert, block[0], block[1]]), [Some(1.0), Some(0.0)]);
        assert_eq!(
            of(&[bert, block[0], block[1], "quiet", block[0]]),
            [Some(1.0), Some(1.0)],
            "one of now"
        );
        let now = "{1}[Hardware Error]: event severity: fatal";
        assert_eq!(
            of(&[bert, block[0], now]),
            [Some(1.0), Some(1.0)],
            "told as it happens"
        );
    }

    #[test]
    fn an_xid_that_is_not_known_in_full_is_counted() {
        let xid = |rest: &str| read(&format!("[   12.3] NVRM: Xid (PCI:0000:b3:00): {rest}\n"));
        for rest in [
            "79 pid=1, GPU has fallen off the bus.",
            "?, pid=1",
            "4242, pid=1, name=x, words",
            "79",
            "",
        ] {
            let (unknown, fatal) = (
                xid(rest).number("kernel.xid_unknown", ""),
                xid(rest).number("kernel.xid_fatal", ""),
            );
            assert_eq!(
                unknown.zip(fatal).map(|(unknown, fatal)| unknown + fatal),
                Some(1.0),
                "{rest:?}"
            );
        }
    }

    #[test]
    fn a_sites_own_row_decides_and_its_version_is_told() {
        let text = "[   12.345678] NVRM: Xid (PCI:0000:9b:00): 63, pid=1, name=x, Row Remapper\n";
        let answer = Answer {
            exit: 0,
            text,
            messages: "",
            serial: None,
        };
        let fatal = |overrides: Option<&XidOverrides>| {
            let reading = parse(&answer, overrides).unwrap();
            (
                reading.number("kernel.xid_fatal", ""),
                reading.versions.get("xid-overrides").cloned(),
            )
        };
        let row = Row {
            code: 63,
            name: "row remapped".into(),
            meaning: String::new(),
            action: Action::Diagnose,
            stated: false,
            source: "our maker".into(),
        };
        let ours = XidOverrides {
            version: "site-3".into(),
            xid: vec![row],
            sxid: vec![],
        };
        let (shipped, told) = fatal(None);
        assert_eq!(told, None);
        assert_eq!(fatal(Some(&ours)), (Some(1.0), Some("site-3".into())));
        let harmless = XidOverrides {
            xid: vec![Row {
                action: Action::Ignore,
                ..ours.xid[0].clone()
            }],
            ..ours
        };
        assert_eq!(fatal(Some(&harmless)).0, Some(0.0), "shipped: {shipped:?}");
    }
}
