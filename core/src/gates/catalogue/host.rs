//! Metrics measured by muster-node itself, and metrics from tools for disks, memory, processors,
//! networks and the kernel log.

use super::{Disks, Metric, Network, Parser, TEXT, builtin, each, metric, tool};

const FACTS: &[Metric] = &[
    metric("profile.misses", "misses"),
    metric("cpu.sockets", "sockets"),
    metric("cpu.cores_per_socket", "cores"),
    metric("memory.total", "MiB"),
    metric("numa.nodes", "nodes"),
    metric("disks.found", "disks"),
    metric("nics.linked", "NICs"),
];

const PACKAGES: &[Metric] = &[
    metric("packages.checked", "packages"),
    metric("packages.differing", "packages"),
    metric("packages.unfinished", "packages"),
    metric("packages.forbidden", "packages"),
];

const FIRMWARE: &[Metric] = &[
    metric("firmware.checked", "items"),
    metric("firmware.differing", "items"),
];

const KERNEL: &[Metric] = &[
    metric("kernel.release", TEXT),
    metric("kernel.unexpected", "kernels"),
    metric("kernel.arguments_missing", "arguments"),
    metric("kernel.taint", "flags"),
];

const SERVICES: &[Metric] = &[
    metric("services.checked", "services"),
    metric("services.wrong", "services"),
];

/// File systems named by the stack's mount units. `differing` has another type. `readonly` is not
/// writable although its unit does not ask for read-only.
const MOUNTS: &[Metric] = &[
    metric("mounts.wanted", "file systems"),
    metric("mounts.missing", "file systems"),
    metric("mounts.differing", "file systems"),
    metric("mounts.readonly", "file systems"),
];

/// Modules by name, for the running kernel. `missing` means added or built but not installed.
const DKMS: &[Metric] = &[
    metric("dkms.modules", "modules"),
    metric("dkms.missing", "modules"),
    metric("dkms.changed", "modules"),
];

const PCIE: &[Metric] = &[
    each("function", "pcie.width", "lanes"),
    each("function", "pcie.width_lost", "lanes"),
    each("function", "pcie.speed", "GT/s"),
    // Network cards only, InfiniBand and others. Network cards keep their link speed when idle.
    each("function", "pcie.nic_speed", "GT/s"),
];

const FIO: &[Metric] = &[
    each("job", "fio.error", "errno"),
    each("job", "fio.written", "bytes"),
    each("job", "fio.unverified", "bytes"),
    each("job", "fio.write_bandwidth", "MB/s"),
    each("job", "fio.read_bandwidth", "MB/s"),
    each("job", "fio.write_iops", "IOPS"),
    each("job", "fio.read_iops", "IOPS"),
    each("job", "fio.write_p99", "ms"),
    each("job", "fio.read_p99", "ms"),
];

const STRESSAPPTEST: &[Metric] = &[
    metric("memory.incidents", "incidents"),
    metric("memory.errors", "errors"),
    metric("memory.copied", "MB"),
    metric("memory.bandwidth", "MB/s"),
];

const STRESS_NG: &[Metric] = &[
    metric("stress.failures", "failures"),
    each("stressor", "stress.bogo_ops", "bogo ops/s"),
];

const IPERF3: &[Metric] = &[
    metric("network.received", "Gb/s"),
    metric("network.retransmits", "segments"),
];

/// A single disk is queried per run; the runner names the disk.
const SMART_LOG: &[Metric] = &[
    metric("smart.critical_warning", "flags"),
    metric("smart.media_errors", "errors"),
    metric("smart.percentage_used", "%"),
    metric("smart.spare_missing", "%"),
    metric("smart.temperature", "°C"),
];

const SMARTCTL: &[Metric] = &[
    metric("smart.failing", "flags"),
    // ATA disks: attributes that predict a failure and have reached the vendor's threshold. SAS
    // disks: 1 for the exception of a predicted failure.
    metric("smart.prefail", "attributes"),
    metric("smart.critical_warning", "flags"),
    metric("smart.media_errors", "errors"),
    metric("smart.percentage_used", "%"),
    metric("smart.spare_missing", "%"),
    metric("smart.temperature", "°C"),
];

const LSHW: &[Metric] = &[
    metric("host.product", TEXT),
    metric("host.processors", "processors"),
    metric("host.memory", "MiB"),
    metric("host.memory_modules", "modules"),
    metric("host.memory_slots_empty", "slots"),
    metric("host.disks", "disks"),
    metric("host.nics", "NICs"),
    metric("host.displays", "devices"),
    metric("host.unclaimed", "devices"),
];

/// Kernel log lines, grouped by meaning.
const KERNEL_LOG: &[Metric] = &[
    metric("kernel.lines", "lines"),
    metric("kernel.xid", "events"),
    metric("kernel.xid_fatal", "events"),
    metric("kernel.xid_unknown", "events"),
    metric("kernel.sxid", "events"),
    metric("kernel.sxid_fatal", "events"),
    // NVIDIA GPUs and NVSwitches: lost, in need of a reset, or not started.
    metric("kernel.gpu_lost", "events"),
    // AMD GPUs: uncorrected errors, lost, not started, too many retired pages; resets and ring
    // timeouts, which a user program may have caused.
    metric("kernel.amdgpu_fatal", "events"),
    metric("kernel.amdgpu_resets", "events"),
    // `none`, `restart app`, `reset gpu`, `reboot node`, …: the most severe action requested by any
    // event of the log.
    metric("kernel.recovery_action", TEXT),
    metric("kernel.aer_corrected", "events"),
    // Also devices without an answer, and accesses that an IOMMU refused.
    metric("kernel.aer_uncorrected", "events"),
    metric("kernel.mce_corrected", "events"),
    metric("kernel.mce_uncorrected", "events"),
    // Errors stored by the firmware before a reset and reported by the kernel at the next boot.
    metric("kernel.previous_boot_errors", "events"),
    metric("kernel.mlx5_fatal", "events"),
    metric("kernel.mlx5_warnings", "events"),
    metric("kernel.link_downs", "events"),
    // Disks, arrays of md, and their controllers.
    metric("kernel.io_errors", "events"),
    metric("kernel.fs_readonly", "events"),
    // Processors that stand still, and a kernel that died in part: BUG, oops, panic.
    metric("kernel.lockups", "events"),
    // Stalls in the kernel's own work: workqueue lockups, and expedited grace periods without an
    // end.
    metric("kernel.stalls", "events"),
    // Tasks blocked for minutes, because of slow storage or a hung driver.
    metric("kernel.hung_tasks", "events"),
    metric("kernel.oom_kills", "events"),
];

/// Same metrics as [`KERNEL_LOG`], for a log that should begin at boot. `beginning_lost` is set if
/// the buffer was overwritten or cleared for dmesg. A count of 0 then proves nothing about the lost
/// part. Only a reboot restores the beginning.
const KERNEL_LOG_WHOLE: &[Metric] = &kernel_log_and(metric("kernel.beginning_lost", "flags"));

/// Same metrics as [`KERNEL_LOG`], for lines since the last read. If lines were lost, only nonzero
/// counts are reported, because a zero would be unproven. `since` is `last look`, `first look`,
/// `boot` (rebooted meanwhile: the end of the previous boot is unknown), `overwritten`, or `cut
/// short`.
const KERNEL_LOG_NEW: &[Metric] = &kernel_log_and(metric("kernel.since", TEXT));

const fn kernel_log_and(first: Metric) -> [Metric; KERNEL_LOG.len() + 1] {
    let mut all = [first; KERNEL_LOG.len() + 1];
    let mut at = 0;
    while at < KERNEL_LOG.len() {
        all[at + 1] = KERNEL_LOG[at];
        at += 1;
    }
    all
}

/// Entity: the mount point. Space from `df -P -k`, inodes from `df -P -i`; percent of the usable
/// amount, rounded up.
const DF: &[Metric] = &[
    metric("fs.count", "file systems"),
    metric("fs.fullest", "%"),
    each("mount", "fs.used", "%"),
    each("mount", "fs.available", "MiB"),
    metric("fs.inodes_fullest", "%"),
    each("mount", "fs.inodes_used", "%"),
    each("mount", "fs.inodes_available", "inodes"),
];

/// Entity: the array, `md0`. For an inactive array the missing devices are unknown and not
/// reported.
const RAID: &[Metric] = &[
    metric("raid.arrays", "arrays"),
    each("array", "raid.level", TEXT),
    each("array", "raid.inactive", "flags"),
    each("array", "raid.devices", "devices"),
    each("array", "raid.devices_missing", "devices"),
    each("array", "raid.devices_failed", "devices"),
    each("array", "raid.rebuilding", "flags"),
];

/// Readings of the node's own BMC: sensors with a reading, sensors beyond a threshold, failing and
/// present power supplies, and incomplete redundancies. A bay that is empty by design looks like a
/// bay with a dead supply. Only an operator with the expected count can decide.
const SDR: &[Metric] = &[
    metric("bmc.sensors", "sensors"),
    metric("bmc.warning", "sensors"),
    metric("bmc.critical", "sensors"),
    metric("psu.failing", "sensors"),
    metric("psu.present", "power supplies"),
    metric("bmc.not_redundant", "sensors"),
];

pub(super) const PARSERS: &[Parser] = &[
    builtin("facts", "inventory", FACTS),
    builtin("packages", "dpkg's record", PACKAGES),
    builtin(
        "firmware",
        "the latest report of the node's BMC, kept by the server",
        FIRMWARE,
    ),
    builtin("kernel", "/proc", KERNEL),
    builtin("services", "systemd", SERVICES),
    builtin(
        "mounts",
        "the stack's mount units, and /proc/self/mounts",
        MOUNTS,
    ),
    builtin("dkms", "`dkms status`, dkms 2 and 3", DKMS),
    builtin("clock", "the site's agent", &[metric("clock.offset", "ms")]),
    builtin("pcie", "sysfs", PCIE),
    builtin(
        "kernel-log-new",
        "/dev/kmsg, since the last run of this suite",
        KERNEL_LOG_NEW,
    ),
    tool("df", "`df -P -k` and `df -P -i`", DF).run_by(&["df"]),
    tool("mdstat", "/proc/mdstat", RAID).run_by(&["cat"]),
    tool("mdadm-detail", "`mdadm --detail ARRAY…`", RAID)
        .run_by(&["mdadm"])
        .with_disks(Disks::Query),
    tool("fio", "`fio --output-format=json`, fio 3", FIO).run_by(&["fio"]),
    tool("stressapptest", "stressapptest 1.0", STRESSAPPTEST).run_by(&["stressapptest"]),
    tool(
        "stress-ng",
        "`stress-ng --verify --metrics -Y FILE`, 0.15 and newer",
        STRESS_NG,
    )
    .run_by(&["stress-ng"]),
    tool("iperf3", "`iperf3 --json`, TCP", IPERF3)
        .run_by(&["iperf3"])
        .on_network(Network::Host),
    tool(
        "smartctl",
        "`smartctl --json -a`, smartctl 7: NVMe, ATA and SAS",
        SMARTCTL,
    )
    .run_by(&["smartctl"])
    .with_disks(Disks::Query),
    tool(
        "nvme-smart-log",
        "`nvme smart-log --output-format=json`, nvme-cli 2",
        SMART_LOG,
    )
    .run_by(&["nvme"])
    .with_disks(Disks::Query),
    tool("ipmitool-sdr", "`ipmitool sdr elist`, ipmitool 1.8", SDR).run_by(&["ipmitool"]),
    // Lists the interfaces of its own network, and asks disks by commands of SCSI.
    tool("lshw", "`lshw -json`, lshw 02.19", LSHW)
        .run_by(&["lshw"])
        .on_network(Network::Host)
        .with_disks(Disks::Query),
    tool(
        "kernel-log",
        "`dmesg`, with any of its time formats, `journalctl -k` in the short formats, and rsyslog's lines of the kernel",
        KERNEL_LOG_WHOLE,
    )
    .run_by(&["dmesg", "journalctl"]),
];
