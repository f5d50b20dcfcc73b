//! Tests required of the levels of DCGM's diagnostics. The shipped gates judge a recording, edited
//! to answers of eight GPUs.

use muster_core::facts::Facts;
use muster_core::gates::{Gate, PROFILES, Reference, SUITES, Shipped, Suite, Verdict, assess};
use muster_core::profiles::HardwareProfile;
use serde_json::{Value, json};

use super::recordings::fixture;
use crate::gates::parsers::{Answer, Reading, parse};
use crate::gates::verdict::{weigh_report, weigh_unread};

const GPUS: u64 = 8;
/// Tests of a level on every GPU (NVIDIA/DCGM, `NvidiaValidationSuite.cpp`), without tests for only
/// some models.
const LEVEL_2: [&str; 3] = ["software", "memory", "pcie"];
const LEVEL_3: [&str; 4] = [
    "diagnostic",
    "memory_bandwidth",
    "targeted_stress",
    "targeted_power",
];
const LEVEL_4: [&str; 2] = ["memtest", "pulse_test"];

/// Returns a gate of a shipped suite.
pub(super) fn shipped(suite: &str, id: &str) -> Gate {
    let suite: Suite = toml::from_str(Shipped::find(SUITES, suite).expect("a suite").text)
        .expect("the shipped suite");
    suite
        .gates
        .into_iter()
        .find(|gate| gate.id == id)
        .expect("the shipped gate")
}

/// Returns an answer with a result of every test on all eight GPUs.
fn answer(tests: &[(&str, &str)]) -> String {
    let mut document: Value =
        serde_json::from_str(&fixture("dcgmi-4.2.3-gb10-r2-skips.json")).expect("the recording");
    let recorded = document["DCGM Diagnostic"]["test_categories"][1]["tests"][0].clone();
    let told = tests.iter().map(|(name, status)| {
        let mut test = recorded.clone();
        let of = |gpu: u64| {
            let mut result = recorded["results"][0].clone();
            (result["entity_id"], result["status"]) = (json!(gpu), json!(status));
            result
        };
        (test["name"], test["results"]) = (json!(name), (0..GPUS).map(of).collect());
        test["test_summary"]["status"] = json!(status);
        test
    });
    document["DCGM Diagnostic"]["test_categories"] =
        json!([{ "category": "Hardware", "tests": told.collect::<Value>() }]);
    let entity = document["entity_groups"][0]["entities"][0].clone();
    let entities = (0..GPUS).map(|gpu| {
        let mut entity = entity.clone();
        entity["entity_id"] = json!(gpu);
        entity
    });
    document["entity_groups"][0]["entities"] = entities.collect();
    document.to_string()
}

/// Returns a gate's verdict over an answer, on a node of eight H100s. An unreadable answer is an
/// error, as in a real run.
pub(super) fn verdict(gate: &Gate, exit: i32, text: &str) -> Verdict {
    let profile = Shipped::find(PROFILES, "hgx-h100-80g")
        .expect("a profile")
        .text;
    let profile: HardwareProfile = toml::from_str(profile).expect("the shipped profile");
    let (facts, variables) = (Facts::default(), [].into());
    let reference = Reference {
        profile: &profile,
        facts: &facts,
        stack: None,
        variables: &variables,
    };
    match parse(
        &gate.parser,
        &Answer {
            exit,
            text,
            messages: "",
            serial: None,
        },
    ) {
        Ok(reading) => {
            let assessment = assess(gate, &reading.samples, &reference);
            weigh_report(
                &reading.faults,
                &reading.gaps,
                weigh_unread(gate, &reading.unread, assessment),
            )
            .verdict
        }
        Err(_) => Verdict::Error,
    }
}

#[test]
fn a_level_passes_only_where_each_of_its_tests_passed_on_every_gpu() {
    let levels = [
        (
            shipped("admit", "dcgm.r3"),
            [&LEVEL_2[..], &LEVEL_3].concat(),
        ),
        (
            shipped("deep", "dcgm.r4"),
            [&LEVEL_2[..], &LEVEL_3, &LEVEL_4].concat(),
        ),
    ];
    for (gate, tests) in levels {
        // Every answer also skips nvbandwidth, as on some models.
        let with = |changed: &str, status: Option<&str>| {
            let told = tests
                .iter()
                .filter(|name| **name != changed)
                .map(|name| (*name, "Pass"));
            let changed = status.map(|status| (changed, status));
            answer(
                &told
                    .chain(changed)
                    .chain([("nvbandwidth", "Skip")])
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            verdict(&gate, 0, &with("", None)),
            Verdict::Pass,
            "{}",
            gate.id
        );
        for test in &tests {
            for status in [Some("Skip"), Some("Not Run"), None] {
                // A missing package is no fault of a GPU: the verdict is an error.
                assert_eq!(
                    verdict(&gate, 0, &with(test, status)),
                    Verdict::Error,
                    "{}: {test} {status:?}",
                    gate.id
                );
            }
            assert_eq!(
                verdict(&gate, 226, &with(test, Some("Fail"))),
                Verdict::Fail,
                "{}: {test}",
                gate.id
            );
        }
        let one = with("", None).replacen("\"status\":\"Pass\"", "\"status\":\"Skip\"", 1);
        assert_eq!(
            verdict(&gate, 0, &one),
            Verdict::Error,
            "{}: one GPU was skipped",
            gate.id
        );
        for recording in [
            "dcgmi-4.2.3-gb10-r1.json",
            "dcgmi-4.2.3-gb10-r2-skips.json",
            "nvvs-3.1.0-8gpus-documented.json",
        ] {
            for exit in [0, 226] {
                assert_ne!(
                    verdict(&gate, exit, &fixture(recording)),
                    Verdict::Pass,
                    "{}: {recording}",
                    gate.id
                );
            }
        }
    }
}

#[test]
fn a_warning_beside_a_pass_is_counted_and_told() {
    let mut document: Value =
        serde_json::from_str(&answer(&[("pcie", "Pass"), ("memory", "Pass")])).expect("the answer");
    let read = |document: &Value| {
        let text = document.to_string();
        parse(
            "dcgm-diag",
            &Answer {
                exit: 0,
                text: &text,
                messages: "",
                serial: None,
            },
        )
        .expect("an answer")
    };
    let before = read(&document)
        .number("dcgm.warnings", "")
        .expect("a count");
    let result = &mut document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"][3];
    result["warnings"] =
        json!([{ "error_id": 5, "warning": "single-bit errors are above their threshold" }]);
    let reading = read(&document);
    assert_eq!(reading.number("dcgm.warnings", ""), Some(before + 1.0));
    assert_eq!(
        reading.notes.last().map(String::as_str),
        Some("pcie: single-bit errors are above their threshold")
    );
    assert!(reading.faults.is_empty() && reading.gaps.is_empty());
}

/// An error inside a pass counts by id and severity, in a result and in a summary.
#[test]
fn a_pass_with_an_error_counts_by_the_error() {
    let whole: Value =
        serde_json::from_str(&answer(&[("pcie", "Pass"), ("memory", "Pass")])).expect("the answer");
    let counted = |error: Value, in_summary: bool| {
        let mut document = whole.clone();
        let test = &mut document["DCGM Diagnostic"]["test_categories"][0]["tests"][1];
        let place = match in_summary {
            true => &mut test["test_summary"],
            false => &mut test["results"][3],
        };
        place["warnings"] = json!([error]);
        let text = document.to_string();
        let answer = Answer {
            exit: 0,
            text: &text,
            messages: "",
            serial: None,
        };
        let reading = parse("dcgm-diag", &answer).expect("an answer");
        let count = |metric| reading.number(metric, "").expect("a count");
        let counts = ["dcgm.failed", "dcgm.warned", "dcgm.not_run"].map(count);
        (counts, reading.gaps)
    };
    for in_summary in [false, true] {
        for (error, counts, untested) in [
            // Faulty memory, persistence mode, single-bit errors, no memory to test.
            (json!({ "error_id": 52 }), [1.0, 0.0, 0.0], 0),
            (json!({ "error_id": 29 }), [0.0, 1.0, 0.0], 0),
            (json!({ "error_id": 5 }), [0.0, 0.0, 0.0], 0),
            (json!({ "error_id": 0 }), [0.0, 0.0, 0.0], 0),
            (
                json!({ "error_id": 56, "error_severity": 1 }),
                [0.0, 0.0, 1.0],
                1,
            ),
            // An error of a later version.
            (json!({ "error_id": 900 }), [0.0, 0.0, 1.0], 1),
            (
                json!({ "error_id": 900, "error_severity": 2 }),
                [1.0, 0.0, 0.0],
                0,
            ),
        ] {
            let (found, gaps) = counted(error.clone(), in_summary);
            assert_eq!(
                (found, gaps.len()),
                (counts, untested),
                "{error} {in_summary}"
            );
        }
    }
}

/// DCGM's return values for a GPU that must leave the node, in a byte.
#[test]
fn dcgmi_that_ends_for_a_broken_gpu_is_a_fault_without_a_document() {
    let read = |exit, parser| {
        let answer = Answer {
            exit,
            text: "Error: the diagnostic ended\n",
            messages: "",
            serial: None,
        };
        parse(parser, &answer)
    };
    for parser in ["dcgm-diag", "dcgm-diag-v3"] {
        for exit in [205, 237, 238] {
            let faults = read(exit, parser).expect("a fault").faults;
            assert!(
                faults.len() == 1 && faults[0].ends_with(": Error: the diagnostic ended"),
                "{faults:?}"
            );
        }
        // An error of the diagnostic, a diagnostic already running, a killed program.
        for exit in [1, 203, 217, 226, 255] {
            assert!(read(exit, parser).is_err(), "{exit}");
        }
    }
}

/// dcgmi writes a failed test without a particular GPU as a summary with warnings, without results.
/// A test that did not run has no summary.
#[test]
fn a_test_that_only_its_summary_tells_of_is_read() {
    let gate = shipped("admit", "dcgm.r3");
    let tests: Vec<(&str, &str)> = LEVEL_2
        .iter()
        .chain(&LEVEL_3)
        .map(|test| (*test, "Pass"))
        .collect();
    let whole: Value = serde_json::from_str(&answer(&tests)).expect("the answer");
    let with = |summary: Option<Value>, results: bool| {
        let mut document = whole.clone();
        let software = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]
            .as_object_mut()
            .expect("a test");
        software.remove("test_summary");
        software.extend(summary.map(|summary| ("test_summary".to_owned(), summary)));
        software.retain(|key, _| results || key != "results");
        document.to_string()
    };
    let sentence = "GPU 0 is detached.";
    let failed = with(
        Some(json!({ "status": "Fail", "warnings": [{ "error_id": 1, "warning": sentence }] })),
        false,
    );
    assert_eq!(verdict(&gate, 226, &failed), Verdict::Fail);
    let answer = Answer {
        exit: 226,
        text: &failed,
        messages: "",
        serial: None,
    };
    let reading = parse("dcgm-diag", &answer).expect("an answer");
    assert_eq!(
        (reading.number("dcgm.failed", ""), reading.notes.len()),
        (Some(1.0), 1)
    );
    assert!(reading.notes[0].ends_with(sentence), "{:?}", reading.notes);
    assert_eq!(
        verdict(&gate, 0, &with(Some(json!({ "status": "Pass" })), true)),
        Verdict::Pass
    );
    for (summary, results) in [
        (Some(json!({ "status": "Pass" })), false),
        (None, true),
        (None, false),
    ] {
        assert_eq!(
            verdict(&gate, 0, &with(summary.clone(), results)),
            Verdict::Error,
            "{summary:?} {results}"
        );
    }
}

/// dcgmi 3 (NVIDIA/DCGM, `dcgmi/Diag.cpp`) prints the version beside the diagnostic. Results from
/// before the tests of GPUs name a GPU only on failure.
#[test]
fn what_dcgmi_3_prints_is_read() {
    let printed = |deployment: &str, pcie: &str| {
        format!(
            "{{\"DCGM GPU Diagnostic\":{{\"test_categories\":[{{\"category\":\"Deployment\",\"tests\":[{{\"name\":\"Inforom\",\"results\":[{deployment}]}}]}},\
             {{\"category\":\"Integration\",\"tests\":[{{\"name\":\"PCIe\",\"results\":[{pcie}]}}]}}]}},\"version\":\"3.3.8\"}}"
        )
    };
    let read = |exit, text: &str| {
        parse(
            "dcgm-diag-v3",
            &Answer {
                exit,
                text,
                messages: "",
                serial: None,
            },
        )
    };
    let on = |gpu: u64, status: &str| format!("{{\"gpu_id\":\"{gpu}\",\"status\":\"{status}\"}}");
    let both = format!("{},{}", on(0, "Pass"), on(1, "Pass"));
    let well = printed("{\"status\":\"Pass\"}", &both);
    let reading = read(0, &well).expect("an answer");
    let of = |reading: &Reading, metric| reading.number(metric, "");
    assert_eq!(
        (of(&reading, "dcgm.gpus"), of(&reading, "dcgm.passed")),
        (Some(2.0), Some(3.0))
    );
    assert_eq!(reading.versions["dcgm"], "3.3.8");
    let failed = read(226, &printed(&on(1, "Fail"), &both)).expect("an answer");
    assert_eq!(
        (of(&failed, "dcgm.failed"), of(&failed, "dcgm.gpus_failed")),
        (Some(1.0), Some(1.0))
    );
    assert!(
        read(0, &printed(&on(1, "Pass"), &both)).is_err(),
        "and of the other nothing"
    );
    assert!(
        read(0, &well.replace("\"version\"", "\"release\"")).is_err(),
        "of no known version"
    );
    assert!(
        read(0, &well.replace("3.3.8", "4.3.8")).is_err(),
        "of another version"
    );
}
