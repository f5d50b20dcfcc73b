//! Every driver branch can be locked with its original CUDA version and DCGM, and with no newer
//! CUDA version.

use serde_json::{Value, json};

use super::{refused, stack};

/// For each branch: a driver, the newest supported toolkit, the next toolkit, and the major number
/// of the branch's CUDA.
const BRANCHES: [(&str, &str, &str, u32); 14] = [
    ("525.60.13", "12.0", "12.1", 12),
    ("530.30.02", "12.1", "12.2", 12),
    ("535.54.03", "12.2", "12.3", 12),
    ("545.23.06", "12.3", "12.4", 12),
    ("550.54.14", "12.4", "12.5", 12),
    ("555.42.02", "12.5", "12.6", 12),
    // A toolkit 12.7 does not exist.
    ("560.28.03", "12.6", "12.8", 12),
    ("565.57.01", "12.6", "12.8", 12),
    ("570.26", "12.8", "12.9", 12),
    ("575.51.03", "12.9", "13.0", 12),
    ("580.65.06", "13.0", "13.1", 13),
    ("590.44.01", "13.1", "13.2", 13),
    ("595.91.07", "13.2", "13.3", 13),
    ("610.57.04", "13.3", "13.4", 13),
];

/// The complete Hopper stack with another driver, toolkit and DCGM.
fn packages(driver: &str, toolkit: &str, dcgm: u32) -> Value {
    let mut packages =
        json!({ "cuda-toolkit-12-8": null, "datacenter-gpu-manager-4-cuda13": null });
    let parts = [
        "nvidia-open",
        "nvidia-kernel-open-dkms",
        "libcuda1",
        "nvidia-modprobe",
    ];
    for part in parts
        .into_iter()
        .chain(["nvidia-fabricmanager", "libnvidia-nscq", "libnvsdm"])
    {
        packages[part] = json!(format!("{driver}-1"));
    }
    packages[format!("cuda-toolkit-{}", toolkit.replace('.', "-"))] =
        json!(format!("{toolkit}.0-1"));
    packages[format!("datacenter-gpu-manager-4-cuda{dcgm}")] = json!("1:4.6.0-1");
    packages
}

#[test]
fn every_branch_goes_with_its_cuda_and_dcgm_and_with_nothing_newer() {
    for (driver, toolkit, newer, major) in BRANCHES {
        let whole = stack(&packages(driver, toolkit, major), &json!({}));
        assert_eq!(refused(&whole), Vec::new(), "{driver} with CUDA {toolkit}");
        let step = refused(&stack(&packages(driver, newer, major), &json!({})));
        assert!(
            step.iter().any(|(rule, _)| rule == "R2"),
            "{driver} with CUDA {newer}: {step:?}"
        );
        let other = refused(&stack(
            &packages(driver, toolkit, if major == 12 { 13 } else { 12 }),
            &json!({}),
        ));
        assert!(
            other.iter().any(|(rule, _)| rule == "R11"),
            "{driver} with DCGM of another CUDA: {other:?}"
        );
    }
}
