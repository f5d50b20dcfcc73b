//! A machine without a GPU: the reasons of the tools, and the results of a suite.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use muster_core::facts::{Cpu, Facts, Gpu, Memory};
use muster_core::gates::{Gate, GateResult, PROFILES, SUITES, Shipped, Suite, Verdict};
use muster_core::profiles::HardwareProfile;

use super::bench::{gate, plan, run_in};
use super::dcgm::shipped;
use super::recordings::fixture;
use crate::gates::parsers::{Answer, parse};

const NO_MODULE: &str = "nvidia-smi-550.163.01-no-module.txt";
const NO_LIBRARY: &str = "nvidia-smi-550.163.01-no-library.txt";
const BURN: &str = "gpu-burn-20240115-no-gpu.txt";
const BANDWIDTH: &str = "nvbandwidth-0.8-no-gpu.txt";
const ROCM: &str = "rocm-6.1.2-no-gpu.txt";
const NO_GPU: &str = "no GPU was found";
const SENTENCE: &str =
    "no GPU was found: the profile hgx-h100-80g has 8, and the PCI bus lists none";
const SAT: &str = include_str!("../../../fixtures/stressapptest-1.0.6.txt");

/// A call in a recording.
struct Called {
    exit: i32,
    stdout: String,
    stderr: String,
}

/// Returns a call from a recording of several calls, with the exit status and both streams.
fn called(file: &str, command: &str) -> Called {
    let recording = fixture(file);
    let head = format!("$ {command}\nexit: ");
    let (_, rest) = recording.split_once(&head).expect(command);
    let (exit, rest) = rest.split_once("\nstdout:\n").expect("its stdout");
    let (stdout, rest) = rest.split_once("stderr:\n").expect("its stderr");
    let stderr = match rest.starts_with('\n') {
        true => "",
        false => rest.split_once("\n\n").map_or(rest, |(stderr, _)| stderr),
    };
    Called {
        exit: exit.parse().expect("a status"),
        stdout: stdout.to_owned(),
        stderr: stderr.to_owned(),
    }
}

fn reason(parser: &str, called: &Called) -> String {
    let answer = Answer {
        exit: called.exit,
        text: &called.stdout,
        messages: &called.stderr,
        serial: None,
    };
    parse(parser, &answer).expect_err("no answer")
}

#[test]
fn every_recorded_tool_without_a_gpu_has_the_reason_and_no_answer() {
    let driver = "nvidia-smi failed: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. \
                  Make sure that the latest NVIDIA driver is";
    let library = "nvidia-smi failed: NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. \
                   Please make sure that the NVIDIA Display Driver is prop";
    let cuda = "[CUDA_ERROR_NO_DEVICE] no CUDA-capable device is detected in expression cuInit(0) in int main(int, char**)() : \
                /src/nvba";
    let burn = "gpu_burn failed: Error (gpu_burn-drv.cpp:302): no CUDA-capable device is detected";
    let amd = "ERROR: Unable to get devices, driver not initialized (amdgpu not found in modules)";
    let rocm = "ERROR:root:Driver not initialized (amdgpu not found in modules)";
    let table: [(&str, &str, &str, String); 9] = [
        (
            "nvidia-smi-xml",
            NO_MODULE,
            "nvidia-smi -q -x",
            driver.into(),
        ),
        (
            "nvidia-smi-xml",
            NO_LIBRARY,
            "nvidia-smi -q -x",
            library.into(),
        ),
        (
            "nccl-tests",
            "nccl-tests-2.19.6-no-gpu.txt",
            "all_reduce_perf -b 8 -e 128M -f 2 -g 1",
            "host: Test CUDA failure util.cu:674 'no CUDA-capable device is detected'".into(),
        ),
        ("nvbandwidth", BANDWIDTH, "nvbandwidth -j", cuda.into()),
        (
            "nvbandwidth",
            BANDWIDTH,
            "nvbandwidth",
            format!("there is no JSON in it: {cuda}"),
        ),
        ("gpu-burn", BURN, "gpu-burn -l", burn.into()),
        (
            "gpu-burn",
            BURN,
            "gpu-burn -c /usr/share/gpu-burn/compare.ptx 10",
            burn.into(),
        ),
        (
            "rocm-smi",
            ROCM,
            "rocm-smi --json",
            format!("rocm-smi printed no document: {rocm}"),
        ),
        (
            "amd-smi",
            ROCM,
            "amd-smi static --json",
            format!("amd-smi failed: {amd}"),
        ),
    ];
    for (parser, file, command, wanted) in table {
        assert_eq!(reason(parser, &called(file, command)), wanted, "{command}");
    }
}

/// With amdgpu loaded, rocm-smi ends with 0 and a table without a card.
#[test]
fn a_table_of_rocm_smi_without_a_card_is_no_answer() {
    let recording = fixture(ROCM);
    let (_, loaded) = recording.split_once("## amdgpu is loaded").expect("a part");
    let said = |command: &str| {
        let (_, rest) = loaded.split_once(&format!("$ {command}\n")).expect(command);
        rest.split_once("exit: ").expect("its end").0.to_owned()
    };
    let table = Called {
        exit: 0,
        stdout: said("rocm-smi"),
        stderr: String::new(),
    };
    let why = reason("rocm-smi", &table);
    let start = "its answer is not what this parser knows: ";
    assert!(why.starts_with(start), "{why}");
    let json = Called {
        exit: 1,
        stdout: String::new(),
        stderr: said("rocm-smi --json"),
    };
    let wanted = "rocm-smi failed: ERROR: Cannot print JSON/CSV output for concise output";
    assert_eq!(reason("rocm-smi", &json), wanted);
}

/// The driver logs the missing GPU, and the machine has no fault.
#[test]
fn the_kernel_log_of_a_driver_without_a_gpu_has_no_fault() {
    let text = fixture("dmesg-550.163.01-no-gpu.txt");
    let answer = Answer {
        exit: 0,
        text: &text,
        messages: "",
        serial: None,
    };
    let reading = parse("kernel-log", &answer).expect("a reading");
    let gates = ["kernel.log", "kernel.unknown"].map(|id| shipped("admit", id));
    let criteria = gates.iter().flat_map(|gate| &gate.criteria);
    let counts = criteria.filter(|one| one.unit == "events");
    for metric in counts.map(|one| one.metric.as_str()) {
        assert_eq!(reading.number(metric, ""), Some(0.0), "{metric}");
    }
}

/// A tool with the answer of nvidia-smi without a module, and a count of the runs.
fn smi(folder: &Path) -> String {
    let said = called(NO_MODULE, "nvidia-smi -q -x").stdout;
    std::fs::write(folder.join("smi.text"), said).expect("a text");
    let tool = folder.join("smi");
    let script = "#!/bin/sh\necho run >> $0.runs\ncat $0.text\nexit 9\n";
    std::fs::write(&tool, script).expect("a script");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    tool.to_string_lossy().into_owned()
}

/// A passing gate of the host.
fn of_host(id: &str, stage: &str) -> Gate {
    let mut gate = gate(&format!(
        "id = \"{id}\"\nstage = \"{stage}\"\nparser = \"stressapptest\"\ntimeout_s = 5\nargv = [\"true\"]\n\
         criteria = [{{ metric = \"memory.incidents\", op = \"==\", limit = 0, unit = \"incidents\" }}]\n"
    ));
    gate.argv = ["printf", "%s", SAT].map(str::to_owned).to_vec();
    gate
}

fn profile() -> HardwareProfile {
    let profile = Shipped::find(PROFILES, "hgx-h100-80g").expect("a profile");
    toml::from_str(profile.text).expect("the shipped profile")
}

/// A machine of the profile without the GPUs.
fn without_gpus() -> Facts {
    let nic = r#"{"name": "e", "mac": "52:54:00:00:00:01", "driver": null, "pci_address": null,
        "speed_mbps": null, "link_up": true}"#;
    let cpu = Cpu {
        cores: 32,
        ..Cpu::default()
    };
    Facts {
        cpus: vec![cpu; 2],
        memory: Memory {
            total_bytes: 900_000 << 20,
            ..Memory::default()
        },
        nics: vec![serde_json::from_str(nic).expect("a NIC")],
        ..Facts::default()
    }
}

/// Runs a gate and gates of `admit` on a machine with the facts. nvidia-smi finds no module of the
/// driver.
fn admit(folder: &Path, facts: &Facts, first: Gate) -> Vec<GateResult> {
    let tool = smi(folder);
    let of_smi = |id: &str| Gate {
        argv: vec![tool.clone()],
        ..shipped("admit", id)
    };
    let mut plan = plan(vec![
        first,
        shipped("admit", "pcie.rails"),
        of_smi("gpu.spares"),
        of_smi("gpu.inventory"),
        of_smi("gpu.memory"),
        shipped("admit", "dcgm.r3"),
        of_host("host.later", "node"),
    ]);
    plan.profile = profile();
    run_in(folder, &plan, facts).expect("results")
}

#[test]
fn the_gate_of_the_inventory_reports_the_missing_gpus() {
    let suite = Shipped::find(SUITES, "admit").expect("a suite");
    let suite: Suite = toml::from_str(suite.text).expect("the shipped suite");
    let of_gpus = suite.gates.into_iter().filter(Gate::measures_gpus);
    let mut gates = vec![
        shipped("admit", "inventory.facts"),
        of_host("host.inventory", "inventory"),
    ];
    gates.extend(of_gpus);
    gates.push(of_host("host.later", "node"));
    let count = gates.len();
    assert!(count > 20, "{count}");
    let mut plan = plan(gates);
    plan.profile = profile();
    let folder = tempfile::tempdir().expect("a folder");
    let results = run_in(folder.path(), &plan, &without_gpus()).expect("results");
    assert_eq!(results.len(), count);
    let report = format!(
        "profile.misses is 1 misses, expected == 0: {SENTENCE}; GPUs (H100): wanted 8, found 0"
    );
    let blocked = "not run: gate inventory.facts of an earlier stage did not pass";
    for result in &results {
        let wanted = match result.gate.as_str() {
            "inventory.facts" => (Verdict::Fail, report.as_str()),
            "host.inventory" => (
                Verdict::Pass,
                "memory.incidents is 0 incidents, expected == 0",
            ),
            "host.later" => (Verdict::Skipped, blocked),
            _ => (Verdict::Skipped, NO_GPU),
        };
        let told = (result.verdict, result.reason.as_str());
        assert_eq!(told, wanted, "{}", result.gate);
    }
}

/// A shadow blocks no gate, so a required gate reports.
#[test]
fn beside_a_shadow_of_the_inventory_a_gate_of_gpus_reports() {
    let folder = tempfile::tempdir().expect("a folder");
    let shadow = Gate {
        shadow: true,
        ..shipped("admit", "inventory.facts")
    };
    let results = admit(folder.path(), &without_gpus(), shadow);
    assert_eq!(results[3].gate, "gpu.inventory");
    let told = (results[3].verdict, results[3].reason.as_str());
    assert_eq!(told, (Verdict::Fail, SENTENCE));
}

#[test]
fn one_gate_reports_missing_gpus_and_other_gates_of_gpus_are_skipped() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = of_host("host.inventory", "inventory");
    let results = admit(folder.path(), &Facts::default(), first);
    let told: Vec<(&str, Verdict, &str)> = results
        .iter()
        .map(|one| (one.gate.as_str(), one.verdict, one.reason.as_str()))
        .collect();
    let wanted = [
        ("pcie.rails", Verdict::Skipped, NO_GPU),
        ("gpu.spares", Verdict::Skipped, NO_GPU),
        ("gpu.inventory", Verdict::Fail, SENTENCE),
        ("gpu.memory", Verdict::Skipped, NO_GPU),
        ("dcgm.r3", Verdict::Skipped, NO_GPU),
        ("host.later", Verdict::Skipped, "not run: no GPU was found"),
    ];
    assert_eq!(told[1..], wanted);
    assert_eq!((told[0].0, told[0].1), ("host.inventory", Verdict::Pass));
    let runs = std::fs::read_to_string(folder.path().join("smi.runs")).expect("the runs");
    assert_eq!(runs.lines().count(), 1);
    let evidence = &results[3].evidence;
    assert_eq!(evidence.exit, Some(9));
    assert!(
        evidence.stdout.starts_with("NVIDIA-SMI has failed"),
        "{evidence:?}"
    );
}

#[test]
fn a_gpu_on_the_bus_without_a_driver_keeps_the_reason_of_the_tool() {
    let folder = tempfile::tempdir().expect("a folder");
    let facts = Facts {
        gpus: vec![Gpu::default()],
        ..Facts::default()
    };
    let first = of_host("host.inventory", "inventory");
    let results = admit(folder.path(), &facts, first);
    for result in &results[3..5] {
        let has_reason = result
            .reason
            .contains("couldn't communicate with the NVIDIA driver");
        assert!(has_reason, "{}: {}", result.gate, result.reason);
        assert_eq!(result.verdict, Verdict::Error);
    }
    assert!(results.iter().all(|one| !one.reason.contains(NO_GPU)));
}
