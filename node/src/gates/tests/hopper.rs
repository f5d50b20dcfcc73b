//! Recordings of a real H100 and H200, judged by the shipped gates. A test may change one value.

use muster_core::facts::Facts;
use muster_core::gates::{
    Assessment, Gate, Mode, PROFILES, Reference, SUITES, Shipped, Suite, Verdict, assess,
};
use muster_core::profiles::HardwareProfile;

use super::dcgm::shipped;
use super::recordings::fixture;
use crate::gates::parsers::{Answer, parse};
use crate::gates::verdict::{weigh_report, weigh_unread};

const H100: &str = "hgx-h100-80g";
const H200: &str = "hgx-h200-141g";
const NCCL: &str = "nccl-tests-2.19.6-h200.txt";
const FRYER_H100: &str = "gpu-fryer-1.2.0-h100.txt";
const FRYER_H200: &str = "gpu-fryer-1.2.0-h200.txt";

/// The shipped profile with one GPU, as in the machines of the recordings.
fn one_gpu(name: &str) -> HardwareProfile {
    let text = Shipped::find(PROFILES, name).expect("a profile").text;
    let mut profile: HardwareProfile = toml::from_str(text).expect("the shipped profile");
    profile.gpus.as_mut().expect("GPUs").count = 1;
    profile
}

/// Judges an answer of the gate's tool on an H200. An unreadable answer is an error with the reason.
fn judge(gate: &Gate, exit: i32, text: &str) -> Result<Assessment, String> {
    judge_by(&one_gpu(H200), gate, exit, text)
}

fn judge_by(
    profile: &HardwareProfile,
    gate: &Gate,
    exit: i32,
    text: &str,
) -> Result<Assessment, String> {
    let (facts, variables) = (Facts::default(), [].into());
    let reference = Reference {
        profile,
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
    let assessment = assess(gate, &reading.samples, &reference);
    Ok(weigh_report(
        &reading.faults,
        &reading.gaps,
        weigh_unread(gate, &reading.unread, assessment),
    ))
}

#[test]
fn the_shipped_gates_pass_a_healthy_gpu() {
    for (name, xml) in [
        (H100, "nvidia-smi-580.159.04-h100-v13.xml"),
        (H200, "nvidia-smi-580.159.04-h200-v13.xml"),
    ] {
        passes(&one_gpu(name), &fixture(xml));
    }
}

#[test]
fn a_gpu_of_another_model_is_told_apart() {
    let gate = shipped("admit", "gpu.inventory");
    let text = fixture("nvidia-smi-580.159.04-h100-v13.xml");
    let Assessment {
        verdict, reason, ..
    } = judge(&gate, 0, &text).expect("a reading");
    assert_eq!(verdict, Verdict::Fail);
    assert!(
        reason.contains("NVIDIA H100 80GB HBM3, expected == NVIDIA H200"),
        "{reason}"
    );
}

/// Every required gate of `nvidia-smi -q -x` passes, but for the fabric.
fn passes(profile: &HardwareProfile, text: &str) {
    let mut judged = 0;
    for name in ["admit", "sweep", "deep"] {
        let suite = Shipped::find(SUITES, name).expect("a suite").text;
        let suite: Suite = toml::from_str(suite).expect("the shipped suite");
        let required = |gate: &&Gate| {
            gate.parser == "nvidia-smi-xml" && gate.mode(Some(profile)) == Mode::Required
        };
        for gate in suite.gates.iter().filter(required) {
            let assessed = judge_by(profile, gate, 0, text).expect("a reading");
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

#[test]
fn the_speed_of_gpu_fryer_is_held_against_the_profile() {
    let gate = shipped("deep", "gpu.fryer");
    let (h100, h200) = (fixture(FRYER_H100), fixture(FRYER_H200));
    for (name, text, speed) in [(H100, &h100, "721280"), (H200, &h200, "707697")] {
        let assessed = judge_by(&one_gpu(name), &gate, 0, text).expect("a reading");
        assert_eq!(assessed.verdict, Verdict::Pass, "{}", assessed.reason);
        assert!(assessed.reason.contains(speed), "{}", assessed.reason);
    }
    // Printed with another load on the GPU, as the result of a healthy GPU.
    let shared = h100.replace(
        "721280 Gflops/s (min: 558551.91, max: 728976.21, dev: 28778.88)",
        "320178 Gflops/s (min: 247390.12, max: 328753.98, dev: 25580.82)",
    );
    assert_ne!(shared, h100);
    let assessed = judge_by(&one_gpu(H100), &gate, 0, &shared).expect("a reading");
    assert_eq!(assessed.verdict, Verdict::Fail);
    assert!(
        assessed.reason.contains("fryer.speed of GPU 0 is 320178"),
        "{}",
        assessed.reason
    );
}

#[test]
fn an_average_outside_of_its_extremes_is_no_answer() {
    let gate = shipped("deep", "gpu.fryer");
    let text = fixture(FRYER_H200);
    let line = "707697 Gflops/s (min: 704786.95, max: 709185.00, dev: 933.06)";
    assert!(text.contains(line));
    for wrong in [
        "704000 Gflops/s (min: 704786.95, max: 709185.00, dev: 933.06)",
        "709999 Gflops/s (min: 704786.95, max: 709185.00, dev: 933.06)",
        "707697 Gflops/s (min: 704786.95, max: 709185.00, dev: 9330.60)",
    ] {
        let why = judge(&gate, 0, &text.replace(line, wrong)).unwrap_err();
        assert!(why.contains("contradicts itself"), "{wrong}: {why}");
    }
}
