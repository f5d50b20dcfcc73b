//! Metrics of the software of NVIDIA's driver, measured also on a machine without a GPU.

use super::{Metric, Parser, TEXT, builtin, each, metric};

/// The file that modprobe inserts for the module `nvidia`. Without a file, only `module.missing` is
/// reported. `other_kernel` is a file built for another release than the running release. The
/// signer of a file without a signature is `unsigned`, and of a signature without a name `unknown`.
const MODULE: &[Metric] = &[
    metric("module.missing", "modules"),
    metric("module.other_kernel", "modules"),
    metric("module.kernel", TEXT),
    metric("module.version", TEXT),
    metric("module.signer", TEXT),
];

/// Versions of the module's file, of nvidia-smi, and of the file behind `libcuda.so.1`. `versions`
/// counts different versions, and `missing` counts absent parts.
const VERSIONS: &[Metric] = &[
    metric("driver.missing", "parts"),
    metric("driver.versions", "versions"),
    metric("driver.module", TEXT),
    metric("driver.tool", TEXT),
    metric("driver.libcuda", TEXT),
];

/// The kernel's answer to the module: `loaded`, `accepted by the kernel, no GPU`, or `refused`. A
/// loaded module of another version than the file on the disk has no answer.
/// `unbound` counts the NVIDIA GPUs on the PCI bus where the accepted module finds no GPU.
const LOAD: &[Metric] = &[
    metric("driver.answer", TEXT),
    metric("driver.unbound", "GPUs"),
];

/// Files of a library for the node's architecture. Entities: the libraries named by `of`.
const LIBRARIES: &[Metric] = &[each("library", "library.files", "files")];

const CONTAINERS: &[Metric] = &[
    metric("containers.runtimes", "programs"),
    metric("containers.stopped", "services"),
];

/// Specifications of NVIDIA devices for containers. `other_version` counts files whose name has
/// another driver version than the module. Device nodes exist only beside a GPU.
const CDI: &[Metric] = &[
    metric("cdi.specifications", "files"),
    metric("cdi.files", "files"),
    metric("cdi.missing", "files"),
    metric("cdi.other_version", "files"),
    metric("cdi.devices_missing", "devices"),
];

/// The kernel's own driver for NVIDIA GPUs. `allowed` means installed, and loaded by the kernel for
/// a GPU.
const NOUVEAU: &[Metric] = &[
    metric("nouveau.loaded", "modules"),
    metric("nouveau.allowed", "modules"),
];

pub(super) const PARSERS: &[Parser] = &[
    builtin("driver-module", "modprobe and modinfo", MODULE),
    builtin(
        "driver-versions",
        "modinfo, `nvidia-smi -h`, and the file behind libcuda.so.1",
        VERSIONS,
    ),
    builtin(
        "driver-load",
        "`modprobe nvidia`, modinfo and /sys/module",
        LOAD,
    ),
    builtin(
        "libraries",
        "`ldconfig -p`, for the libraries that the criteria name with `of`",
        LIBRARIES,
    ),
    builtin("containers", "dpkg's record and systemd", CONTAINERS),
    builtin(
        "cdi",
        "/etc/cdi and /var/run/cdi, JSON and YAML of NVIDIA devices",
        CDI,
    ),
    builtin(
        "nouveau",
        "/sys/module, `modprobe --showconfig` and `modprobe --show-depends`",
        NOUVEAU,
    ),
];
