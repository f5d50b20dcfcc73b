//! Clients of shared file systems: modules, kernels, and stack parts.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

use serde_json::json;

use super::Tuple;

/// Further rows for the table in `mod.rs`.
pub(super) fn wrong_tuples() -> Vec<Tuple> {
    let none = || json!({});
    vec![
        (
            "R7",
            json!({ "lustre-client-modules-dkms": "2.15.8-1", "lustre-client-utils": "2.15.8-1", "nvidia-kernel-open-dkms": null,
                    "linux-headers-6.1.0-40-amd64": null }),
            none(),
            &[
                "lustre-client-modules-dkms 2.15.8-1",
                "linux-headers-6.1.0-40-amd64",
            ],
            json!({ "lustre-client-modules-dkms": "2.15.8-1", "lustre-client-utils": "2.15.8-1" }),
            none(),
        ),
        (
            "R7",
            json!({ "lustre-client-modules-dkms-2.16.1-22-g584eedc": "2.16.1-22-g584eedc-1~noble", "nvidia-kernel-open-dkms": null,
                    "linux-headers-6.1.0-40-amd64": null }),
            none(),
            &[
                "lustre-client-modules-dkms-2.16.1-22-g584eedc",
                "linux-headers-6.1.0-40-amd64",
            ],
            json!({ "lustre-client-modules-dkms-2.16.1-22-g584eedc": "2.16.1-22-g584eedc-1~noble" }),
            none(),
        ),
        (
            "R7",
            json!({ "gpfs.base": "6.0.0-2", "gpfs.gplbin-6.1.0-39-amd64": "6.0.0-2" }),
            none(),
            &[
                "gpfs.gplbin-6.1.0-39-amd64 6.0.0-2",
                "build for 6.1.0-40-amd64",
                "shared file system",
            ],
            json!({ "gpfs.base": "6.0.0-2", "gpfs.gplbin-6.1.0-40-amd64": "6.0.0-2" }),
            none(),
        ),
        (
            "R7",
            json!({ "gpfs.base": "6.0.0-2", "gpfs.gpl": "6.0.0-2", "nvidia-kernel-open-dkms": null, "linux-headers-6.1.0-40-amd64": null }),
            none(),
            &["gpfs.gpl 6.0.0-2", "linux-headers-6.1.0-40-amd64"],
            json!({ "gpfs.base": "6.0.0-2", "gpfs.gpl": "6.0.0-2" }),
            none(),
        ),
        (
            "lustre",
            json!({ "lustre-client-modules-dkms": "2.15.8-1", "lustre-client-utils": "2.15.7-1" }),
            none(),
            &[
                "lustre-client-modules-dkms 2.15.8-1",
                "lustre-client-utils 2.15.7-1",
            ],
            json!({ "lustre-client-modules-dkms": "2.15.8-1", "lustre-client-utils": "2.15.8-1" }),
            none(),
        ),
        (
            "lustre",
            json!({ "lustre-client-utils": "2.15.8-1" }),
            none(),
            &["lustre modules"],
            json!({ "lustre-client-modules-6.1.0-40-amd64": "2.15.8-1", "lustre-client-utils": "2.15.8-1" }),
            none(),
        ),
        (
            "scale",
            json!({ "gpfs.base": "6.0.0-2", "gpfs.gplbin-6.1.0-40-amd64": "6.0.0-1" }),
            none(),
            &["gpfs.gplbin-6.1.0-40-amd64 6.0.0-1", "gpfs.base 6.0.0-2"],
            json!({ "gpfs.base": "6.0.0-2", "gpfs.gplbin-6.1.0-40-amd64": "6.0.0-2", "gpfs.license.dm": "6.0.0-2" }),
            none(),
        ),
        (
            "scale",
            json!({ "gpfs.base": "6.0.0-2" }),
            none(),
            &["scale layer", "gpfs.gplbin of the kernel"],
            json!({ "gpfs.base": "6.0.0-2", "gpfs.gpl": "6.0.0-2" }),
            none(),
        ),
    ]
}
