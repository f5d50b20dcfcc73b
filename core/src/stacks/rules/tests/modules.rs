//! Kernel modules: of which flavour.

use serde_json::{Value, json};

use super::Tuple;

const DRIVER: &str = "580.126.20-1";

/// Without the open modules of the whole stack, and with these.
fn instead(packages: &[&str]) -> Value {
    let mut changed =
        json!({ "nvidia-open": null, "nvidia-kernel-open-dkms": null, "nvlsm": "1", "infiniband-diags": "1" });
    packages.iter().for_each(|name| changed[*name] = json!(DRIVER));
    changed
}

/// As the table beside it.
pub(super) fn wrong_tuples() -> Vec<Tuple> {
    let blackwell = || json!({ "selector": { "gpu": "blackwell", "nvswitch": true, "nvlink5": true }, "modules_load": ["ib_umad", "mlx5_core"] });
    let volta = || json!({ "selector": { "gpu": "volta" } });
    vec![
        (
            "R6",
            instead(&["nvidia-dkms-580"]),
            blackwell(),
            &["nvidia-dkms-580 580.126.20-1", "open kernel modules only"],
            // What Debian's open metapackage brings with it: programs and libraries.
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
            instead(&["nvidia-open", "nvidia-driver-open", "nvidia-dkms-open", "nvidia-kernel-source-open"]),
            blackwell(),
        ),
        (
            "R6",
            instead(&["nvidia-dkms-open"]),
            volta(),
            &["nvidia-dkms-open 580.126.20-1", "proprietary kernel modules only"],
            instead(&["nvidia-dkms-580"]),
            volta(),
        ),
    ]
}
