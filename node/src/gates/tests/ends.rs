//! Ends of tools, judged by the shipped gates. A fault in the tool's own words is a failure, on
//! either stream and with any exit status. A missing answer is an error.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use muster_core::facts::{Disk, Facts, Gpu};
use muster_core::gates::{Gate, GateResult, PROFILES, Shipped, Verdict};
use muster_core::profiles::HardwareProfile;

use super::bench::{nvme, plan, run_in};
use super::dcgm::shipped;
use super::recordings::fixture;
use crate::gates::parsers::{Answer, Reading, parse};
use crate::gates::{Question, judge};

const LOST: &str = "nvidia-smi-gpu-lost-documented.txt";
const SENTENCE: &str = "Unable to determine the device handle for GPU 0000:1B:00.0: GPU is lost.";

fn profile() -> HardwareProfile {
    let profile = Shipped::find(PROFILES, "hgx-h100-80g").expect("a profile");
    toml::from_str(profile.text).expect("the shipped profile")
}

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

/// The verdict and the reason of a gate for a recorded answer, as of `muster gate try`.
fn judged(gate: &Gate, exit: i32, file: &str) -> (Verdict, String) {
    let question = Question {
        parser: gate.parser.clone(),
        file: format!("{}/fixtures/{file}", env!("CARGO_MANIFEST_DIR")),
        exit,
        messages: None,
    };
    let judged = judge(gate, &profile(), &question).expect("a verdict");
    (judged.verdict, judged.reason)
}

/// A tool of these lines.
fn script(folder: &Path, lines: &str) -> String {
    let tool = folder.join("tool");
    std::fs::write(&tool, format!("#!/bin/sh\n{lines}\n")).expect("a script");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    tool.to_string_lossy().into_owned()
}

/// Runs a gate on a node of the profile with these facts.
fn only(folder: &Path, gate: Gate, facts: &Facts) -> GateResult {
    let mut plan = plan(vec![gate]);
    plan.profile = profile();
    run_in(folder, &plan, facts).expect("results").remove(0)
}

#[test]
fn a_lost_gpu_fails_each_gate_that_asks_nvidia_smi() {
    for (suite, id) in [
        ("smoke", "gpu.inventory"),
        ("smoke", "gpu.memory"),
        ("smoke", "gpu.nvlink"),
        ("sweep", "gpu.inventory"),
        ("sweep", "gpu.memory"),
        ("admit", "gpu.inventory"),
    ] {
        for exit in [0, 15, 255] {
            let (verdict, reason) = judged(&shipped(suite, id), exit, LOST);
            assert_eq!(verdict, Verdict::Fail, "{suite} {id} {exit}: {reason}");
            assert!(reason.contains(SENTENCE), "{suite} {id} {exit}: {reason}");
        }
    }
    // Without a driver, no GPU was asked.
    let (verdict, reason) = judged(
        &shipped("smoke", "gpu.inventory"),
        9,
        "nvidia-smi-550.163.01-no-module.txt",
    );
    assert_eq!(verdict, Verdict::Error, "{reason}");
}

#[test]
fn a_run_with_a_lost_gpu_fails_with_the_sentence_and_the_status() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = script(folder.path(), &format!("echo '{SENTENCE}'\nexit 15"));
    let gate = Gate {
        argv: vec![tool],
        ..shipped("smoke", "gpu.inventory")
    };
    let facts = Facts {
        gpus: vec![Gpu::default(); 8],
        ..Facts::default()
    };
    let lost = only(folder.path(), gate.clone(), &facts);
    assert_eq!(
        (lost.verdict, lost.reason.as_str(), lost.evidence.exit),
        (Verdict::Fail, SENTENCE, Some(15))
    );
    // The PCI bus lists no GPU, so the missing GPUs are the reason.
    let missing = only(folder.path(), gate, &Facts::default());
    assert_eq!(missing.verdict, Verdict::Fail);
    assert!(
        missing.reason.starts_with("no GPU was found"),
        "{}",
        missing.reason
    );
}

#[test]
fn a_cut_sentence_is_a_fault_or_no_answer() {
    let line = format!("{SENTENCE}\n");
    for parser in [
        "nvidia-smi-xml",
        "nvidia-smi-text",
        "nvidia-smi-csv",
        "nvidia-smi-nvlink",
        "nvidia-smi-topo",
    ] {
        for at in 0..=line.len() {
            for exit in [0, 255] {
                let found = read(parser, exit, &line[..at], "");
                let is_fault =
                    |reading: Reading| reading.samples.is_empty() && reading.faults.len() == 1;
                assert!(found.is_err() || found.is_ok_and(is_fault), "{parser} {at}");
            }
        }
    }
}

#[test]
fn links_without_an_active_one_are_a_fault() {
    let sentence = "NVML: Unable to retrieve NVLink information as all links are inActive";
    let reading = read("nvidia-smi-nvlink", 0, &format!("{sentence}\n"), "").expect("a fault");
    assert_eq!(reading.faults, [sentence]);
    let links = fixture("nvidia-smi-a100-nvlink.txt");
    let (first, rest) = links.split_once('\n').expect("a GPU");
    let text = format!("{first}\n{sentence}\n{rest}");
    let reading = read("nvidia-smi-nvlink", 0, &text, "").expect("a fault");
    assert_eq!(reading.faults, [format!("GPU 7: {sentence}")]);
}

#[test]
fn answers_of_the_field_are_judged_by_their_meaning() {
    let (verdict, reason) = judged(
        &shipped("admit", "bmc.sensors"),
        0,
        "ipmitool-sdr-drive-fault-documented.txt",
    );
    assert_eq!(verdict, Verdict::Fail, "{reason}");
    assert!(reason.contains("bmc.critical is 1 sensors"), "{reason}");
    let (verdict, reason) = judged(
        &shipped("admit", "dcgm.r3"),
        0,
        "dcgmi-4.5.0-memory-alloc-documented.json",
    );
    assert_eq!(verdict, Verdict::Error, "{reason}");
    assert!(reason.contains("memory: error 56: "), "{reason}");
    let (verdict, reason) = judged(
        &shipped("admit", "nccl.all_reduce"),
        1,
        "nccl-tests-many-wrong-documented.txt",
    );
    assert_eq!(verdict, Verdict::Fail, "{reason}");
    // The table is the same with and without a line of NCCL's log.
    let warned = fixture("nccl-tests-warn-documented.txt");
    let plain: String = warned
        .split_inclusive('\n')
        .filter(|line| !line.contains("NCCL WARN"))
        .collect();
    let [warned, plain] =
        [warned, plain].map(|text| read("nccl-tests", 0, &text, "").expect("a table"));
    assert_eq!(warned.samples, plain.samples);
    assert_eq!((warned.notes.len(), plain.notes.len()), (1, 0));
}

/// The forms of `ncclDebugLog`, with and without a time.
#[test]
fn each_level_of_the_log_of_nccl_is_a_note() {
    let table = fixture("nccl-tests-warn-documented.txt");
    let log = table
        .lines()
        .find(|line| line.contains("NCCL WARN"))
        .expect("a line");
    for line in [
        "node-7:4242:4301 [1] NCCL INFO Channel 00/24",
        "node-7:4242:4301 [1] net_ib.cc:120 (ncclIbAsync) NCCL WARN NET/IB : a port",
        "node-7:4242:4301 NCCL CALL ncclAllReduce(1, 2)",
        "node-7:4242:4301 [1] 1234.5 init.cc:12 NCCL TRACE a",
    ] {
        let text = table.replacen(log, line, 1);
        let reading = read("nccl-tests", 0, &text, "").expect("a table");
        assert_eq!(reading.notes, [line]);
    }
    for line in [
        "a NCCL WARN b",
        "node-7:4242 NCCL WARN b",
        "node-7:4242:4301 [1] b",
    ] {
        let text = table.replacen(log, line, 1);
        assert!(read("nccl-tests", 0, &text, "").is_err(), "{line}");
    }
}

/// A line of the log inside of a row takes the row away.
#[test]
fn a_row_with_a_part_of_a_log_is_no_row() {
    let table = fixture("nccl-tests-warn-documented.txt");
    let log = table
        .lines()
        .find(|line| line.contains("NCCL WARN"))
        .expect("a line");
    for (from, to) in [
        (
            " 17179869184    4294967296",
            format!(" 17179869184{log}\n    4294967296"),
        ),
        ("[2026-01-09", " 8589934592 [2026-01-09".to_owned()),
        (" NCCL WARN ", " ".to_owned()),
    ] {
        let broken = table.replacen(from, &to, 1);
        assert_ne!(broken, table, "{from}");
        assert!(read("nccl-tests", 0, &broken, "").is_err(), "{from}");
    }
}

#[test]
fn a_disk_without_an_answer_does_not_hide_a_failing_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = script(
        folder.path(),
        "case $1 in *nvme0n1) cat $0.text; exit 8;; *) echo no device; exit 1;; esac",
    );
    let text = fixture("smartctl-7.3-nvme-failing.json");
    std::fs::write(folder.path().join("tool.text"), text).expect("a text");
    let gate = Gate {
        argv: vec![tool, "${each}".into()],
        ..shipped("sweep", "disk.smart")
    };
    let failing = nvme("nvme0n1", Some("NVBAD001"));
    let silent = nvme("nvme1n1", Some("S2"));
    let nameless = nvme("nvme2n1", None);
    let with = |disks: &[Disk]| {
        let facts = Facts {
            disks: disks.to_vec(),
            ..Facts::default()
        };
        only(folder.path(), gate.clone(), &facts)
    };
    for disks in [
        [failing.clone(), silent.clone(), nameless.clone()],
        [nameless.clone(), silent.clone(), failing],
    ] {
        let result = with(&disks);
        assert_eq!(result.verdict, Verdict::Fail, "{}", result.reason);
        for part in ["smart.failing", "S2: ", "nvme2n1 has no serial"] {
            assert!(result.reason.contains(part), "{part}: {}", result.reason);
        }
    }
    let unread = with(&[silent, nameless]);
    assert_eq!(unread.verdict, Verdict::Error, "{}", unread.reason);
    assert!(unread.reason.starts_with("S2: "), "{}", unread.reason);
}

/// One disk refuses its health log, and the other disk is well.
#[test]
fn an_unread_value_names_its_disk_beside_other_disks() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = script(
        folder.path(),
        "case $1 in *nvme0n1) cat $0.text; exit 4;; *) cat $0.good;; esac",
    );
    let log = "\"nvme_smart_health_information_log\"";
    let text = fixture("smartctl-7.4-nvme-no-selftest-log.json");
    assert!(text.contains(log));
    let refused = text.replacen(log, "\"nvme_log\"", 1);
    std::fs::write(folder.path().join("tool.text"), refused).expect("a text");
    let good = text
        .replacen("\"exit_status\": 4", "\"exit_status\": 0", 1)
        .replacen("SN-EXAMPLE-1", "GOOD0001", 1);
    std::fs::write(folder.path().join("tool.good"), good).expect("a text");
    let gate = Gate {
        argv: vec![tool, "${each}".into()],
        ..shipped("sweep", "disk.smart")
    };
    let facts = Facts {
        disks: vec![
            nvme("nvme0n1", Some("SN-EXAMPLE-1")),
            nvme("nvme1n1", Some("GOOD0001")),
        ],
        ..Facts::default()
    };
    let unread = only(folder.path(), gate, &facts);
    assert_eq!(unread.verdict, Verdict::Error, "{}", unread.reason);
    assert!(
        unread
            .reason
            .contains("SN-EXAMPLE-1: the health log is missing"),
        "{}",
        unread.reason
    );
}

#[test]
fn a_failed_stressor_is_a_fault_without_a_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let sentence = "stress-ng: fail:  [7] cpu: matrixprod error detected";
    let tool = script(folder.path(), &format!("echo '{sentence}' >&2\nexit 2"));
    let gate = Gate {
        argv: vec![tool, "-Y".into(), "${scratch}/stress.yaml".into()],
        ..shipped("admit", "host.cpu")
    };
    let failed = only(folder.path(), gate.clone(), &Facts::default());
    assert_eq!(
        (failed.verdict, failed.reason.as_str()),
        (Verdict::Fail, sentence)
    );
    let silent = Gate {
        argv: vec![
            script(folder.path(), "exit 2"),
            "${scratch}/stress.yaml".into(),
        ],
        ..gate
    };
    let silent = only(folder.path(), silent, &Facts::default());
    assert_eq!(silent.verdict, Verdict::Error, "{}", silent.reason);
    assert!(
        silent.reason.contains("left no readable stress.yaml"),
        "{}",
        silent.reason
    );
}

#[test]
fn errors_of_cuda_for_broken_hardware_are_faults() {
    let failure =
        |text: &str| format!("# nThread 1\nnode: Test CUDA failure all_reduce.cu:70 '{text}'\n");
    let ecc = "uncorrectable ECC error encountered";
    let nvlink = "uncorrectable NVLink error detected during the execution";
    for text in [ecc, nvlink] {
        let reading = read("nccl-tests", 2, &failure(text), "").expect("a fault");
        assert!(reading.faults[0].contains(text), "{:?}", reading.faults);
    }
    let json = "{\"nvbandwidth\": {\"error\": \"[CUDA_ERROR_ECC_UNCORRECTABLE] in cuMemcpy\"}}";
    assert!(read("nvbandwidth", 1, json, "").is_ok_and(|reading| reading.faults.len() == 1));
    let burn = format!("Couldn't init a GPU test: Error in compute: {ecc}\n");
    assert!(read("gpu-burn", 1, "", &burn).is_ok_and(|reading| reading.faults.len() == 1));
    // Software, another process, and another tool.
    for text in [
        "out of memory",
        "no CUDA-capable device is detected",
        "invalid argument",
    ] {
        assert!(read("nccl-tests", 2, &failure(text), "").is_err(), "{text}");
    }
    assert!(read("df", 1, "", &format!("{ecc}\n")).is_err());
}

#[test]
fn a_faulty_gpu_of_gpu_burn_is_a_fault_with_any_status() {
    let faulty = fixture("gpu-burn-t4-faulty.txt");
    let reading = read("gpu-burn", 1, &faulty, "").expect("a fault");
    assert!(!reading.faults.is_empty());
    let well = faulty.replace("FAULTY", "OK");
    assert!(read("gpu-burn", 1, &well, "").is_err());
}

/// The bits of smartctl(8), EXIT STATUS.
#[test]
fn each_bit_of_smartctl_counts_by_its_meaning() {
    let good = fixture("smartctl-7.3-ata-good.json");
    let with = |exit: i32| {
        let text = good.replacen("\"exit_status\":0", &format!("\"exit_status\":{exit}"), 1);
        read("smartctl", exit, &text, "").map(|reading| reading.number("smart.failing", ""))
    };
    // The disk fails, alone, beside a refused command, or with logs of errors.
    for exit in [8, 8 | 4, 8 | 64, 8 | 128] {
        assert_eq!(with(exit), Ok(Some(1.0)), "{exit}");
    }
    // A refused command, a value that was low in the past, and logs with errors.
    for exit in [0, 4, 32, 64, 128] {
        assert_eq!(with(exit), Ok(Some(0.0)), "{exit}");
    }
    // The command line, and a disk that does not open.
    for exit in [1, 2] {
        assert!(with(exit).is_err(), "{exit}");
    }
}

/// Counts beyond 32 bits, and numbers of cJSON from 10^15 on.
#[test]
fn large_numbers_are_read_in_every_form() {
    let failed = fixture("stressapptest-1.0.6-miscompare.txt");
    let many = failed.replacen(
        "with 1 hardware incidents",
        "with 5000000000 hardware incidents",
        1,
    );
    assert_ne!(many, failed);
    let reading = read("stressapptest", 1, &many, "").expect("a failure");
    assert_eq!(reading.number("memory.incidents", ""), Some(5e9));
    let network = fixture("iperf3-3.12.json");
    let long = network.replace("\"bytes\":\t3477340160", "\"bytes\":\t3.47734016e+15");
    assert_ne!(long, network);
    assert!(read("iperf3", 0, &long, "").is_ok());
    let table = fixture("nvbandwidth-0.5-1gpu.json").replace("12.3964", "1.23964e+01");
    let reading = read("nvbandwidth", 0, &table, "").expect("a table");
    assert_eq!(
        reading.number("nvbandwidth.host_to_device", "GPU 0"),
        Some(12.3964)
    );
}
