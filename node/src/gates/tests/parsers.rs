//! Compares the parsers' numbers with a person's reading of the recordings. Then parses the same
//! text, broken in every way.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

use muster_core::gates::{Limit, Parser, Reference, Verdict, assess};
use proptest::prelude::*;

use super::bench::{nvme, plan, profile, shipped};
use crate::gates::parsers::{Answer, Reading, parse_whole as parse};

const FIO: &str = include_str!("../../../fixtures/fio-3.33-write-verify.json");
const FIO_RANDOM: &str = include_str!("../../../fixtures/fio-3.33-randwrite.json");
const FIO_FAILED: &str = include_str!("../../../fixtures/fio-3.33-verify-failed.json");
const SAT: &str = include_str!("../../../fixtures/stressapptest-1.0.6.txt");
const SAT_FAILED: &str = include_str!("../../../fixtures/stressapptest-1.0.6-miscompare.txt");
const STRESS: &str = include_str!("../../../fixtures/stress-ng-0.15.06.yaml");
const STRESS_SAID: &str = include_str!("../../../fixtures/stress-ng-0.15.06.txt");
const IPERF: &str = include_str!("../../../fixtures/iperf3-3.12.json");
const IPERF_REFUSED: &str = include_str!("../../../fixtures/iperf3-3.12-refused.json");
const SMART: &str = include_str!("../../../fixtures/smartctl-7.1-nvme-good.json");
const SMART_FAILING: &str = include_str!("../../../fixtures/smartctl-7.3-nvme-failing.json");
const SMART_ATA: &str = include_str!("../../../fixtures/smartctl-7.3-ata-good.json");
const SMART_NONE: &str = include_str!("../../../fixtures/smartctl-7.3-no-device.json");
const NVME_FAILING: &str = include_str!("../../../fixtures/nvme-smart-log-2.3-failing.json");

fn read(parser: &str, exit: i32, text: &str, messages: &str) -> Result<Reading, String> {
    parse(
        parser,
        &Answer {
            exit,
            text,
            messages,
            serial: None,
        },
    )
}

/// Metrics and values to three digits, `metric@entity=value`.
fn shown(reading: &Reading) -> Vec<String> {
    let one = |sample: &muster_core::gates::Sample| {
        let Limit::Number(value) = sample.value else {
            panic!("{sample:?} is a number")
        };
        let entity = if sample.entity.is_empty() {
            String::new()
        } else {
            format!("@{}", sample.entity)
        };
        format!("{}{entity}={}", sample.metric, (value * 1e3).round() / 1e3)
    };
    reading.samples.iter().map(one).collect()
}

#[test]
fn recordings_read_as_a_person_reads_them() {
    let table: [(&str, i32, &str, &str, &[&str]); 7] = [
        (
            "fio",
            0,
            FIO,
            "",
            &[
                "fio.error@v=0",
                "fio.written@v=67108864",
                "fio.unverified@v=0",
                "fio.write_bandwidth@v=699.051",
                "fio.read_bandwidth@v=406.72",
            ],
        ),
        ("fio", 1, FIO_FAILED, "", &["fio.error@write=84"]),
        (
            "stressapptest",
            0,
            SAT,
            "",
            &[
                "memory.incidents=0",
                "memory.errors=0",
                "memory.copied=65124",
                "memory.bandwidth=13006.95",
            ],
        ),
        (
            "stressapptest",
            1,
            SAT_FAILED,
            "",
            &["memory.incidents=1", "memory.errors=0"],
        ),
        (
            "stress-ng",
            0,
            STRESS,
            STRESS_SAID,
            &[
                "stress.failures=0",
                "stress.bogo_ops@cpu=977.663",
                "stress.bogo_ops@vm=1834.583",
            ],
        ),
        (
            "iperf3",
            0,
            IPERF,
            "",
            &["network.received=13.878", "network.retransmits=19"],
        ),
        (
            "nvme-smart-log",
            0,
            NVME_FAILING,
            "",
            &[
                "smart.critical_warning=4",
                "smart.media_errors=0",
                "smart.temperature=50",
            ],
        ),
    ];
    for (parser, exit, text, messages, wanted) in table {
        let reading =
            read(parser, exit, text, messages).unwrap_or_else(|why| panic!("{parser}: {why}"));
        let found = shown(&reading);
        wanted.iter().for_each(|wanted| {
            assert!(
                found.iter().any(|found| found == wanted),
                "{wanted} in {found:?}"
            )
        });
        // `Parser` lists every returned metric, for the criteria of gates.
        let listed = Parser::find(parser).expect("a listed parser");
        reading
            .samples
            .iter()
            .for_each(|sample| assert!(listed.unit(sample.metric).is_some(), "{}", sample.metric));
    }
    let smart = |exit, text| shown(&read("smartctl", exit, text, "").expect("a reading"));
    assert_eq!(
        smart(0, SMART)[..3],
        [
            "smart.failing=0",
            "smart.critical_warning=0",
            "smart.media_errors=0"
        ]
    );
    assert_eq!(
        smart(8, SMART_FAILING)[..2],
        ["smart.failing=1", "smart.critical_warning=4"]
    );
    assert!(
        shown(&read("fio", 0, FIO_RANDOM, "").expect("random writes"))
            .iter()
            .any(|found| found.starts_with("fio.write_iops"))
    );
}

#[test]
fn contradictions_and_strangers_are_errors() {
    let newer = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    let table = [
        ("fio", 1, FIO.to_owned()),
        ("fio", 0, FIO_FAILED.to_owned()),
        ("fio", 0, newer(FIO, "fio-3.33", "fio-4.0")),
        ("fio", 0, newer(FIO, "\"jobs\"", "\"tasks\"")),
        ("stressapptest", 1, SAT.to_owned()),
        ("stressapptest", 0, SAT_FAILED.to_owned()),
        ("stressapptest", 0, newer(SAT, "0 errors", "3 errors")),
        (
            "stressapptest",
            0,
            newer(SAT, "Status: PASS", "Status: MAYBE"),
        ),
        (
            "stressapptest",
            0,
            newer(SAT, "revision 1.0", "revision 2.0"),
        ),
        ("iperf3", 1, IPERF.to_owned()),
        ("iperf3", 0, IPERF_REFUSED.to_owned()),
        ("iperf3", 0, newer(IPERF, "iperf 3.12", "iperf 4.0")),
        ("smartctl", 1, SMART_NONE.to_owned()),
        ("smartctl", 0, SMART_FAILING.to_owned()),
        ("smartctl", 0, newer(SMART, "smart_status", "smart_state")),
        (
            "smartctl",
            0,
            newer(SMART, "nvme_smart_health_information_log", "log"),
        ),
        ("nvme-smart-log", 1, NVME_FAILING.to_owned()),
        (
            "nvme-smart-log",
            0,
            newer(
                NVME_FAILING,
                "\"media_errors\":\"0\"",
                "\"media_errors\":\"N/A\"",
            ),
        ),
        (
            "nvme-smart-log",
            0,
            newer(NVME_FAILING, "avail_spare", "spare"),
        ),
    ];
    for (parser, exit, text) in table {
        assert!(
            read(parser, exit, &text, "").is_err(),
            "{parser} {exit}: {}",
            &text[..200.min(text.len())]
        );
    }
    assert!(
        read("stress-ng", 0, STRESS, "").is_err(),
        "it never said that it completed"
    );
    assert!(
        read("stress-ng", 2, STRESS, STRESS_SAID).is_err(),
        "an exit status without a failure"
    );
    let failed = "stress-ng: fail:  [7] cpu: matrixprod error detected\nstress-ng: info:  [7] unsuccessful run completed in 5.04s\n";
    assert_eq!(
        shown(&read("stress-ng", 2, STRESS, failed).expect("a failure"))[0],
        "stress.failures=1"
    );
    assert!(
        read(
            "stress-ng",
            0,
            STRESS,
            &failed[failed.find('\n').expect("a line")..]
        )
        .is_err(),
        "unsuccessful, and well"
    );
    let other = Answer {
        exit: 0,
        text: SMART,
        messages: "",
        serial: Some("ANOTHER"),
    };
    assert!(
        parse("smartctl", &other).is_err(),
        "the wrong disk answered"
    );
}

#[test]
fn a_note_before_fios_document_is_none_of_it() {
    let bare = read("fio", 0, FIO, "").expect("a reading");
    let note = "note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1\n";
    assert_eq!(read("fio", 0, &format!("{note}{note}{FIO}"), ""), Ok(bare));
    for text in [
        format!("{note}word\n{FIO}"),
        format!("{FIO}{note}"),
        note.to_owned(),
    ] {
        assert!(read("fio", 0, &text, "").is_err(), "{text:.120}");
    }
}

/// stressapptest 1.0.7 and newer write a time before every line (`src/logger.cc`).
#[test]
fn a_time_before_each_line_of_stressapptest_is_none_of_its_words() {
    let timed = |text: &str, time: &str| {
        text.lines()
            .map(|line| format!("{time}{line}\n"))
            .collect::<String>()
    };
    for (exit, text) in [(0, SAT), (1, SAT_FAILED)] {
        let bare = read("stressapptest", exit, text, "").expect("a reading");
        for time in ["2025/11/13-04:34:22(UTC) ", "2025/11/13-04:34:22(+03) "] {
            assert_eq!(
                read("stressapptest", exit, &timed(text, time), "").as_ref(),
                Ok(&bare),
                "{time}"
            );
        }
        for time in [
            "2025/11/13-04:34:22 ",
            "2025/11/13-04:34:22() ",
            "2025-11-13 04:34:22(UTC) ",
            "x",
            "(UTC) ",
        ] {
            assert!(
                read("stressapptest", exit, &timed(text, time), "").is_err(),
                "{time}"
            );
        }
    }
    assert!(SAT_FAILED.contains("\nReport Error"), "it has a note");
}

/// A SATA disk with a good status and an attribute at the threshold: smartctl exits with only bit 4
/// set (smartctl(8), EXIT STATUS).
#[test]
fn a_sata_disk_at_a_makers_threshold_is_told() {
    let smart = |exit, text: &str| read("smartctl", exit, text, "");
    let told = |text: &str, exit| shown(&smart(exit, text).expect("a reading"));
    assert_eq!(told(SMART_ATA, 0), ["smart.failing=0", "smart.prefail=0"]);
    let (name, exit) = (
        "\"name\":\"Reallocated_Sector_Ct\",\"value\":",
        "\"exit_status\":0",
    );
    assert!(SMART_ATA.contains(name) && SMART_ATA.contains(exit));
    let standing = |when: &str| {
        let (before, after) = SMART_ATA.split_once(name).expect("the attribute");
        let after = after.replacen(
            "\"when_failed\":\"\"",
            &format!("\"when_failed\":\"{when}\""),
            1,
        );
        format!("{before}{name}{after}").replacen(exit, "\"exit_status\":16", 1)
    };
    let now = smart(16, &standing("now")).expect("a reading");
    assert_eq!(shown(&now), ["smart.failing=0", "smart.prefail=1"]);
    assert!(
        now.notes[0].contains("5 Reallocated_Sector_Ct is at its threshold"),
        "{:?}",
        now.notes
    );
    assert_eq!(
        told(&standing("past"), 16),
        ["smart.failing=0", "smart.prefail=0"],
        "it recovered"
    );
    // An attribute of age at the threshold predicts no failure.
    let old = standing("now").replace("\"prefailure\":true", "\"prefailure\":false");
    assert_eq!(told(&old, 16), ["smart.failing=0", "smart.prefail=0"]);
    assert!(
        smart(16, &standing("soon")).is_err(),
        "a word that is not known"
    );
    // A disk without attributes has no count of attributes at the threshold.
    assert_eq!(
        told(
            &SMART_ATA.replace("ata_smart_attributes", "ata_attributes"),
            0
        ),
        ["smart.failing=0"]
    );
}

/// Returns the verdict over an answer by the shipped suite's gate with the parser.
fn verdict(parser: &str, exit: i32, text: &str, messages: &str) -> Verdict {
    let suite = shipped();
    let gate = suite
        .gates
        .iter()
        .find(|gate| gate.parser == parser)
        .expect("a shipped gate");
    let facts = muster_core::facts::Facts {
        disks: vec![nvme("nvme0n1", Some("A"))],
        ..Default::default()
    };
    let (plan, profile) = (plan(vec![]), profile());
    let reference = Reference {
        profile: &profile,
        facts: &facts,
        stack: None,
        variables: &plan.variables,
    };
    match read(parser, exit, text, messages) {
        Ok(reading) => assess(gate, &reading.samples, &reference).verdict,
        Err(_) => Verdict::Error,
    }
}

/// Returns good answers of the tools in the shipped suite. The answer of stress-ng holds only the
/// gate's stressor.
fn good() -> [(&'static str, String, &'static str); 5] {
    let cpu_only = STRESS.replace(
        &STRESS[STRESS.find("    - stressor: vm").expect("vm")
            ..STRESS.find("thermal-zones").expect("end")],
        "",
    );
    [
        ("fio", FIO.to_owned(), ""),
        ("stressapptest", SAT.to_owned(), ""),
        ("stress-ng", cpu_only, STRESS_SAID),
        ("iperf3", IPERF.to_owned(), ""),
        ("smartctl", SMART.to_owned(), ""),
    ]
}

#[test]
fn good_answers_pass_and_nothing_does_not() {
    for (parser, text, messages) in good() {
        assert_eq!(
            verdict(parser, 0, &text, messages),
            Verdict::Pass,
            "{parser}"
        );
        for nothing in [
            "",
            "\n",
            "null",
            "{}",
            "[]",
            "[{}]",
            "{\"jobs\":[]}",
            "---\n...\n",
            "N/A",
            "\u{0}",
        ] {
            assert_eq!(
                verdict(parser, 0, nothing, messages),
                Verdict::Error,
                "{parser}: {nothing:?}"
            );
        }
    }
    assert_eq!(verdict("fio", 1, FIO_FAILED, ""), Verdict::Fail);
    assert_eq!(verdict("stressapptest", 1, SAT_FAILED, ""), Verdict::Fail);
    assert_eq!(verdict("smartctl", 8, SMART_FAILING, ""), Verdict::Fail);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Output cut before the last word never passes.
    #[test]
    fn truncated_answers_never_pass(which in 0..5_usize, cut in 0.0..1.0_f64) {
        let (parser, text, messages) = good()[which].clone();
        let end = text.trim_end_matches(['\n', '.', '}', ' ', '-']).len();
        let mut at = (end as f64 * cut) as usize;
        // stressapptest prints a remark after the verdict. The file of stress-ng ends in
        // sections unread by gates.
        if parser == "stressapptest" { at = at.min(text.find("Status: PASS").unwrap_or(0)); }
        if parser == "stress-ng" { at = at.min(text.find("bogo-ops-per-second-real-time").unwrap_or(0)); }
        while !text.is_char_boundary(at) { at -= 1; }
        prop_assert_ne!(verdict(parser, 0, &text[..at], messages), Verdict::Pass);
    }

    /// An answer never passes with a number replaced by a word, `null`, a negative number, NaN or
    /// infinity.
    #[test]
    fn numbers_that_are_none_never_pass(which in 0..5_usize, odd in prop::sample::select(vec!["NaN", "-1", "\"N/A\"", "null", "1e999"])) {
        let (parser, text, messages) = good()[which].clone();
        let keys = [("fio", "\"bw_bytes\" : "), ("iperf3", "\"sum_received\":\t{\n\t\t\t\"start\":\t0,\n\t\t\t\"end\":\t2.004467,\n\t\t\t\"seconds\":\t2.004467,\n\t\t\t\"bytes\":\t3477340160,\n\t\t\t\"bits_per_second\":\t"), ("smartctl", "\"critical_warning\": "), ("stress-ng", "bogo-ops-per-second-real-time: "), ("stressapptest", "s 13006.95MB/s, with ")];
        let key = keys.iter().find(|(name, _)| *name == parser).map(|(_, key)| *key).unwrap_or_default();
        let start = text.find(key).expect("the number's place") + key.len();
        let end = start + text[start..].find([',', '\n', ' ']).expect("its end");
        let broken = format!("{}{odd}{}", &text[..start], &text[end..]);
        prop_assert_ne!(verdict(parser, 0, &broken, messages), Verdict::Pass, "{}", parser);
    }
}
