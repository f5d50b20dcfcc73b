//! Logs of machines with a fault, and of machines that only look faulty, judged by the shipped
//! gates. Sources: node/fixtures/SOURCES.md.

use muster_core::gates::Verdict;

use super::dcgm::{shipped, verdict};
use super::recordings::fixture;

#[test]
fn the_shipped_gates_hold_back_each_fault_and_pass_the_rest() {
    for (file, wanted) in [
        ("kernel-log-amdgpu-errevent-documented.txt", Verdict::Fail),
        ("kernel-log-nvrm-reset-documented.txt", Verdict::Fail),
        ("kernel-log-oops-documented.txt", Verdict::Fail),
        ("kernel-log-xfs-shutdown-documented.txt", Verdict::Fail),
        ("kernel-log-journal-documented.txt", Verdict::Fail),
        ("kernel-log-loop-documented.txt", Verdict::Pass),
    ] {
        for suite in ["admit", "admit-amd", "deep"] {
            let gate = shipped(suite, "kernel.log");
            let found = verdict(&gate, 0, &fixture(file));
            assert_eq!(found, wanted, "{suite}: {file}");
        }
    }
}

/// A fault in a metric that no gate holds at zero would pass.
#[test]
fn a_shipped_gate_holds_every_metric_of_a_fault_at_zero() {
    let faults = [
        "kernel.gpu_lost",
        "kernel.amdgpu_fatal",
        "kernel.aer_uncorrected",
        "kernel.mce_uncorrected",
        "kernel.mlx5_fatal",
        "kernel.io_errors",
        "kernel.fs_readonly",
        "kernel.lockups",
        "kernel.stalls",
    ];
    for (suite, id) in [
        ("admit", "kernel.log"),
        ("admit-amd", "kernel.log"),
        ("deep", "kernel.log"),
        ("smoke", "kernel.new"),
        ("smoke-amd", "kernel.new"),
        ("sweep", "kernel.new"),
        ("sweep-amd", "kernel.new"),
    ] {
        let gate = shipped(suite, id);
        for metric in faults {
            let held = gate.criteria.iter().any(|one| one.metric == metric);
            assert!(held, "{suite} holds {metric}");
        }
    }
}
