//! Recordings of a real H200, judged by the shipped gates. Some tests change one value.

use muster_core::facts::Facts;
use muster_core::gates::{
    Assessment, Gate, Mode, PROFILES, Reference, SUITES, Shipped, Suite, Verdict, assess,
};
use muster_core::profiles::HardwareProfile;

use super::dcgm::shipped;
use super::recordings::fixture;
use crate::gates::parsers::{Answer, parse};

const XML: &str = "nvidia-smi-580.159.04-h200-v13.xml";
const NCCL: &str = "nccl-tests-2.19.6-h200.txt";

/// The shipped profile for H200, with one GPU: the machine of the recordings.
fn profile() -> HardwareProfile {
    let text = Shipped::find(PROFILES, "hgx-h200-141g")
        .expect("a profile")
        .text;
    let mut profile: HardwareProfile = toml::from_str(text).expect("the shipped profile");
    profile.gpus.as_mut().expect("GPUs").count = 1;
    profile
}

/// The gate's result for an answer of its tool. An unreadable answer is an error with the reason.
fn judge(gate: &Gate, exit: i32, text: &str) -> Result<Assessment, String> {
    let (profile, facts, variables) = (profile(), Facts::default(), [].into());
    let reference = Reference {
        profile: &profile,
        facts: &facts,
        stack: None,
        variables: &variables,
    };
    let answer = Answer {
        exit,
        text,
        messages: "",
        serial: None,
    };
    let reading = parse(&gate.parser, &answer)?;
    Ok(assess(gate, &reading.samples, &reference))
}

#[test]
fn the_shipped_gates_pass_a_healthy_h200() {
    let (text, profile) = (fixture(XML), profile());
    let mut judged = 0;
    for name in ["admit", "sweep", "deep"] {
        let suite = Shipped::find(SUITES, name).expect("a suite").text;
        let suite: Suite = toml::from_str(suite).expect("the shipped suite");
        let required = |gate: &&Gate| {
            gate.parser == "nvidia-smi-xml" && gate.mode(Some(&profile)) == Mode::Required
        };
        for gate in suite.gates.iter().filter(required) {
            let assessed = judge(gate, 0, &text).expect("a reading");
            // Passed through to a virtual machine, the GPU reports no fabric: N/A.
            let wanted = match gate.id.as_str() {
                "gpu.fabric" => Verdict::Error,
                _ => Verdict::Pass,
            };
            let Assessment {
                verdict, reason, ..
            } = assessed;
            assert_eq!(verdict, wanted, "{name}: {}: {reason}", gate.id);
            judged += 1;
        }
    }
    assert!(judged >= 20, "{judged} gates");
}

#[test]
fn a_number_too_long_for_its_column_is_read() {
    let gate = shipped("admit", "nccl.all_reduce");
    let speed = |text: &str| {
        let assessed = judge(&gate, 0, text).expect("a reading");
        let mut measured = assessed.measured.iter();
        let last = measured
            .rfind(|value| value.metric == "nccl.bus_bandwidth_last")
            .expect("a value");
        (assessed.verdict, format!("{:?}", last.value))
    };
    let text = fixture(NCCL);
    // One rank moves no bytes over a bus.
    assert_eq!(speed(&text).0, Verdict::Fail);
    // A slow node takes longer than ten seconds.
    let slow = text.replace(
        "8000.61  2147.3    0.00       0     1.38   1e+07    0.00",
        "1.2e+07    1.43    2.68       0  1.2e+07    1.43    2.68",
    );
    assert_ne!(slow, text);
    let (verdict, value) = speed(&slow);
    assert!(
        verdict == Verdict::Fail && value.contains("2.68"),
        "{value}"
    );
    for wrong in [
        "1e7", "1e+7", "e+07", "1e+", "1e+007", "0x1p+07", "-1e+07", "1e+17",
    ] {
        let broken = text.replace("  1e+07", &format!("  {wrong}"));
        assert!(judge(&gate, 0, &broken).is_err(), "{wrong}");
    }
}

#[test]
fn a_million_wrong_values_are_a_fault_of_the_node() {
    let gate = shipped("admit", "nccl.all_reduce");
    let text = fixture(NCCL);
    let wrong = text
        .replace("0.00       0     1.38", "0.00 1.23457e+06     1.38")
        .replace("values : 0 OK", "values : 2 FAILED");
    let assessed = judge(&gate, 1, &wrong).expect("a reading");
    assert_eq!(assessed.verdict, Verdict::Fail);
    assert!(
        assessed.reason.contains("nccl.wrong is 1234570 values"),
        "{}",
        assessed.reason
    );
}

#[test]
fn a_machine_whose_gpu_is_hidden_gets_the_reason_of_the_tool() {
    let message = "[CUDA_ERROR_NO_DEVICE] no CUDA-capable device is detected";
    let told = format!(
        "{{\"nvbandwidth\": {{\"error\": \"{message} in expression cuInit(0)\\n\", \"git_version\": \"\", \"version\": \"v0.8\"}}}}\n"
    );
    let why = judge(&shipped("admit", "gpu.nvbandwidth"), 1, &told).unwrap_err();
    assert!(why.contains("no CUDA-capable device"), "{why}");
    let told = "# Using devices\nvm: Test CUDA failure util.cu:674 'no CUDA-capable device is detected'\n .. vm pid 2907: Test failure common.cu:1454\n";
    let why = judge(&shipped("admit", "nccl.all_reduce"), 2, told).unwrap_err();
    assert!(why.contains("no CUDA-capable device"), "{why}");
}
