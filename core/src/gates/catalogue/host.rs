//! What muster-node measures by itself, and what the tools for disks, memory, processors and networks tell, with the kernel's log.

use super::{Metric, Parser, TEXT, builtin, each, metric, tool};

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

/// Of what the stack's mount units name. `differing` is of another type, `readonly` cannot be written although its unit does not say so.
const MOUNTS: &[Metric] = &[
    metric("mounts.wanted", "file systems"),
    metric("mounts.missing", "file systems"),
    metric("mounts.differing", "file systems"),
    metric("mounts.readonly", "file systems"),
];

/// By the module's name, for the kernel that runs: `missing` was added or built, and not installed.
const DKMS: &[Metric] = &[
    metric("dkms.modules", "modules"),
    metric("dkms.missing", "modules"),
    metric("dkms.changed", "modules"),
];

const PCIE: &[Metric] = &[
    each("function", "pcie.width", "lanes"),
    each("function", "pcie.width_lost", "lanes"),
    each("function", "pcie.speed", "GT/s"),
    // Of network cards alone, InfiniBand's and others: idle, they keep it.
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

/// One disk is asked at a time; the runner names it.
const SMART_LOG: &[Metric] = &[
    metric("smart.critical_warning", "flags"),
    metric("smart.media_errors", "errors"),
    metric("smart.percentage_used", "%"),
    metric("smart.spare_missing", "%"),
    metric("smart.temperature", "°C"),
];

const SMARTCTL: &[Metric] = &[
    metric("smart.failing", "flags"),
    // Of ATA disks: what announces a failure, and stands at its maker's threshold.
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

/// Lines of the kernel's log, by what they say.
const KERNEL_LOG: &[Metric] = &[
    metric("kernel.lines", "lines"),
    metric("kernel.xid", "events"),
    metric("kernel.xid_fatal", "events"),
    metric("kernel.xid_unknown", "events"),
    metric("kernel.sxid", "events"),
    metric("kernel.sxid_fatal", "events"),
    metric("kernel.gpu_lost", "events"),
    // Of AMD's GPUs: errors that were not corrected; resets, and rings whose work did not end, which a program may have caused.
    metric("kernel.amdgpu_fatal", "events"),
    metric("kernel.amdgpu_resets", "events"),
    // `none`, `restart app`, `reset gpu`, `reboot node`, …: the hardest that any event of the log asks for.
    metric("kernel.recovery_action", TEXT),
    metric("kernel.aer_corrected", "events"),
    metric("kernel.aer_uncorrected", "events"),
    metric("kernel.mce_corrected", "events"),
    metric("kernel.mce_uncorrected", "events"),
    // That the firmware kept, and told at the boot: of what the machine was reset from.
    metric("kernel.previous_boot_errors", "events"),
    metric("kernel.mlx5_fatal", "events"),
    metric("kernel.mlx5_warnings", "events"),
    metric("kernel.link_downs", "events"),
    metric("kernel.io_errors", "events"),
    metric("kernel.fs_readonly", "events"),
    metric("kernel.lockups", "events"),
    // Of the kernel's own work: workqueue lockups, and expedited grace periods that do not end.
    metric("kernel.stalls", "events"),
    // Tasks that waited for minutes: of storage that is slow, or of a driver that hangs.
    metric("kernel.hung_tasks", "events"),
    metric("kernel.oom_kills", "events"),
];

/// As [`KERNEL_LOG`], of a log that should begin with the boot. `beginning_lost` where it does not: the buffer was overwritten, or cleared for dmesg, and
/// that nothing is counted says nothing of what was lost. Only a reboot brings the beginning back.
const KERNEL_LOG_WHOLE: &[Metric] = &kernel_log_and(metric("kernel.beginning_lost", "flags"));

/// As [`KERNEL_LOG`], of what was said since the last look. Where some of it was lost, only what was found is told: that there was nothing is not known.
/// `since` is `last look`, `first look`, `boot` (it was booted meanwhile: the end of the boot before is not known), `overwritten`, or `cut short`.
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

/// By where it is mounted. Space by `df -P -k`, inodes by `df -P -i`; percent of what may be used, rounded up.
const DF: &[Metric] = &[
    metric("fs.count", "file systems"),
    metric("fs.fullest", "%"),
    each("mount", "fs.used", "%"),
    each("mount", "fs.available", "MiB"),
    metric("fs.inodes_fullest", "%"),
    each("mount", "fs.inodes_used", "%"),
    each("mount", "fs.inodes_available", "inodes"),
];

/// By the array, `md0`. Of one that does not run, what is missing is not told.
const RAID: &[Metric] = &[
    metric("raid.arrays", "arrays"),
    each("array", "raid.level", TEXT),
    each("array", "raid.inactive", "flags"),
    each("array", "raid.devices", "devices"),
    each("array", "raid.devices_missing", "devices"),
    each("array", "raid.devices_failed", "devices"),
    each("array", "raid.rebuilding", "flags"),
];

/// What the node's own BMC measures: sensors that read something, those beyond a threshold, power supplies that fail and that are there, redundancies that
/// are not full. A bay that is empty by design looks as one whose supply is dead: only who knows how many there are can tell.
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
        "what the node's BMC said, as the server has it",
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
        "/dev/kmsg, since the last look of this suite",
        KERNEL_LOG_NEW,
    ),
    tool("df", "`df -P -k` and `df -P -i`", DF),
    tool("mdstat", "/proc/mdstat", RAID),
    tool("mdadm-detail", "`mdadm --detail ARRAY…`", RAID),
    tool("fio", "`fio --output-format=json`, fio 3", FIO),
    tool("stressapptest", "stressapptest 1.0", STRESSAPPTEST),
    tool(
        "stress-ng",
        "`stress-ng --verify --metrics -Y FILE`, 0.15 and newer",
        STRESS_NG,
    ),
    tool("iperf3", "`iperf3 --json`, TCP", IPERF3),
    tool(
        "smartctl",
        "`smartctl --json -a`, smartctl 7: NVMe and ATA",
        SMARTCTL,
    ),
    tool(
        "nvme-smart-log",
        "`nvme smart-log --output-format=json`, nvme-cli 2",
        SMART_LOG,
    ),
    tool("ipmitool-sdr", "`ipmitool sdr elist`, ipmitool 1.8", SDR),
    tool("lshw", "`lshw -json`, lshw 02.19", LSHW),
    tool(
        "kernel-log",
        "`dmesg`, with any of its time formats, and `journalctl -k`",
        KERNEL_LOG_WHOLE,
    ),
];
