//! Kernel modules: flavour and kernel.

use serde_json::{Value, json};

use super::{Level, Tuple, level, locked, refused, stack};

const DRIVER: &str = "580.126.20-1";

/// The complete stack without the open modules, and with these packages instead.
fn instead(packages: &[&str]) -> Value {
    let mut changed = json!({ "nvidia-open": null, "nvidia-kernel-open-dkms": null, "nvlsm": "1", "infiniband-diags": "1" });
    packages
        .iter()
        .for_each(|name| changed[*name] = json!(DRIVER));
    changed
}

/// Further rows for the table in `mod.rs`.
pub(super) fn wrong_tuples() -> Vec<Tuple> {
    let blackwell = || json!({ "selector": { "gpu": "blackwell", "nvswitch": true, "nvlink5": true }, "modules_load": ["ib_umad", "mlx5_core"] });
    let volta = || json!({ "selector": { "gpu": "volta" } });
    vec![
        (
            "R6",
            instead(&["nvidia-dkms-580"]),
            blackwell(),
            &["nvidia-dkms-580 580.126.20-1", "open kernel modules only"],
            // Dependencies of Debian's open metapackage: programs and libraries.
            instead(&[
                "nvidia-open",
                "nvidia-kernel-open-dkms",
                "nvidia-driver",
                "nvidia-driver-cuda",
                "nvidia-driver-libs",
            ]),
            blackwell(),
        ),
        (
            "R6",
            instead(&["nvidia-driver-580-server"]),
            blackwell(),
            &["nvidia-driver-580-server 580.126.20-1"],
            instead(&[
                "nvidia-open",
                "nvidia-driver-open",
                "nvidia-dkms-open",
                "nvidia-kernel-source-open",
            ]),
            blackwell(),
        ),
        (
            "R6",
            instead(&["nvidia-dkms-open"]),
            volta(),
            &[
                "nvidia-dkms-open 580.126.20-1",
                "proprietary kernel modules only",
            ],
            instead(&["nvidia-dkms-580"]),
            volta(),
        ),
        (
            "R7",
            // Built for two kernels, and under another name only for the running kernel.
            json!({ "gpfs.base": "6.0.0-2", "gpfs.gplbin-6.1.0-40-amd64": "6.0.0-2", "lustre-client-modules-6.1.0-39-amd64": "2.15.8-1" }),
            json!({}),
            &[
                "lustre-client-modules-6.1.0-39-amd64",
                "build for 6.1.0-40-amd64",
            ],
            json!({ "lustre-client-modules-6.1.0-39-amd64": "2.15.8-1", "lustre-client-modules-6.1.0-40-amd64": "2.15.8-1" }),
            json!({}),
        ),
    ]
}

#[test]
fn a_metapackage_beside_the_modules_of_the_kernel_is_no_module() {
    let (built, meta) = (
        "linux-modules-nvidia-580-server-open-6.1.0-40-amd64",
        "linux-modules-nvidia-580-server-open-generic-hwe-24.04",
    );
    let with = |names: &[&str]| stack(&instead(names), &json!({}));
    assert_eq!(
        refused(&locked(&with(&[built, meta]))),
        [],
        "the right build, and what asks for it"
    );
    // Before the lock, a metapackage may bring the missing package; after the lock, the package is
    // known to be missing.
    assert_eq!(level(&with(&[meta]), "R7"), [Level::Unknown]);
    assert_eq!(level(&locked(&with(&[meta])), "R7"), [Level::Refused]);
    let other = "linux-modules-nvidia-580-server-open-6.1.0-39-amd64";
    assert_eq!(
        level(&with(&[meta, other]), "R7"),
        [Level::Refused],
        "what names another kernel is for none that runs"
    );
}
