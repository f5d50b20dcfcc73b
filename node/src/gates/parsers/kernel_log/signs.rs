//! Messages about faults of links, memory, disks and the machine, including NVIDIA messages without
//! a code.

/// Returns the metric for a message, or `None` for a message without a known fault.
pub(super) fn of(message: &str) -> Option<&'static str> {
    if let known @ Some(_) = process(message) {
        return known;
    }
    if names_a_process(message) {
        return None;
    }
    gpu(message)
        .or_else(|| amdgpu(message))
        .or_else(|| pcie(message))
        .or_else(|| memory(message))
        .or_else(|| adapter(message))
        .or_else(|| disk(message))
        .or_else(|| machine(message))
}

/// Returns whether a message contains the name of a process, or other words chosen by its user.
pub(super) fn is_of_a_process(message: &str) -> bool {
    process(message).is_some() || names_a_process(message)
}

/// Recognizes a lost GPU. The driver reports the loss in separate lines, with or without an Xid.
fn gpu(message: &str) -> Option<&'static str> {
    let lost = ["fallen off the bus", "GPU is lost"];
    (message.starts_with("NVRM:") && any(message, &lost)).then_some("kernel.gpu_lost")
}

/// Recognizes faults reported by AMD's driver: errors not corrected by RAS, GPU resets, and command
/// rings with a timeout (drivers/gpu/drm/amd/amdgpu: amdgpu_ras.c, amdgpu_device.c, amdgpu_job.c).
fn amdgpu(message: &str) -> Option<&'static str> {
    const UNCORRECTED: &str = " uncorrectable hardware errors detected in ";
    if !message.starts_with("amdgpu ") && !message.starts_with("[drm:amdgpu_") {
        return None;
    }
    if let Some((before, of)) = message.split_once(UNCORRECTED) {
        // The count is in `1 new …`. A line with the total of earlier errors is skipped. A count
        // other than a number, such as `no`, is zero.
        let count = before
            .trim_end_matches(" new")
            .rsplit(' ')
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(0u64);
        return (count > 0 && !of.starts_with("total ")).then_some("kernel.amdgpu_fatal");
    }
    let timeout = message
        .split_once("ring ")
        .is_some_and(|(_, rest)| rest.contains(" timeout"));
    (timeout || message.contains("GPU reset begin!")).then_some("kernel.amdgpu_resets")
}

/// Recognizes PCI Express Advanced Error Reporting in both spellings of the kernel, and a port with
/// a disabled link (drivers/pci/pcie/dpc.c).
fn pcie(message: &str) -> Option<&'static str> {
    if message.contains("DPC: containment event") {
        return Some("kernel.aer_uncorrected");
    }
    if !any(message, &["AER: ", "PCIe Bus Error: "]) {
        return None;
    }
    let uncorrected = any(
        message,
        &[
            "Uncorrected",
            "Uncorrectable",
            "severity=Fatal",
            "device recovery failed",
        ],
    );
    if uncorrected {
        return Some("kernel.aer_uncorrected");
    }
    // The kernel writes two lines per error. Only the line reporting the arrival is counted.
    let arrived =
        any(message, &["Corrected error", "Correctable error"]) && message.contains("received");
    arrived.then_some("kernel.aer_corrected")
}

/// Recognizes machine checks and memory errors reported by EDAC.
fn memory(message: &str) -> Option<&'static str> {
    /// Bit UC of MCi_STATUS (AMD64 Architecture Programmer's Manual, volume 2; Intel SDM, volume
    /// 3B).
    const UNCORRECTED: u64 = 1 << 61;
    if any(
        message,
        &[
            "[Hardware Error]: Uncorrected",
            "[Hardware Error]: Deferred error",
            "Uncorrected hardware memory error",
        ],
    ) || message.starts_with("Memory failure: ")
        || (message.starts_with("EDAC MC") && message.contains(" UE "))
        || any(
            message,
            &["event severity: fatal", "event severity: recoverable"],
        )
    {
        return Some("kernel.mce_uncorrected");
    }
    if any(message, &["Machine Check: ", "Machine Check Exception: "]) {
        let status = message
            .split_once(" Bank ")
            .and_then(|(_, rest)| rest.split_once(": "))
            .map(|(_, status)| status.trim());
        let status = status.and_then(|status| {
            u64::from_str_radix(status.split(' ').next().unwrap_or_default(), 16).ok()
        });
        // An unreadable status counts as uncorrected, the worse case.
        let corrected = status.is_some_and(|status| status & UNCORRECTED == 0);
        return Some(if corrected {
            "kernel.mce_corrected"
        } else {
            "kernel.mce_uncorrected"
        });
    }
    let corrected = any(
        message,
        &[
            "[Hardware Error]: Corrected error",
            "Machine check events logged",
            "event severity: corrected",
        ],
    ) || (message.starts_with("EDAC MC") && message.contains(" CE "));
    corrected.then_some("kernel.mce_corrected")
}

/// Recognizes faults of NVIDIA's network adapters, and the loss of any link.
fn adapter(message: &str) -> Option<&'static str> {
    let fatal = [
        "device's health compromised",
        "unrecoverable hardware error",
        "Will cause a leak of a command resource",
        "health recovery failed",
    ];
    let warning = [
        "insufficient power",
        "igh temperature",
        "ACCESS_REG",
        "available PCIe bandwidth, limited by",
    ];
    if message.starts_with("mlx5_core") {
        if let known @ Some(_) = mlx5_health(message) {
            return known;
        }
        if any(message, &fatal) {
            return Some("kernel.mlx5_fatal");
        }
        if any(message, &warning) {
            return Some("kernel.mlx5_warnings");
        }
    }
    let lower = message.to_ascii_lowercase();
    let down = any(&lower, &["link down", "link is down", "lost carrier"])
        && !lower.contains("sata link down");
    down.then_some("kernel.link_downs")
}

/// Recognizes health reports of the adapter's firmware
/// (drivers/net/ethernet/mellanox/mlx5/core/health.c).
fn mlx5_health(message: &str) -> Option<&'static str> {
    /// `MLX5_SENSOR_NIC_DISABLED`: logged by every virtual function on its removal (SR-IOV is
    /// disabled).
    const DISABLED: &str = "Fatal error 3 detected";
    if message.contains("Fatal error ") && message.ends_with(" detected") {
        return Some(if message.ends_with(DISABLED) {
            "kernel.mlx5_warnings"
        } else {
            "kernel.mlx5_fatal"
        });
    }
    // The numbers are the kernel's levels: 0 is an emergency, 3 an error, 4 a warning. An
    // unreadable level counts as fatal, the worse case.
    let (_, rest) = message.split_once("Health issue observed, ")?;
    let severity = rest
        .rsplit_once("severity(")
        .and_then(|(_, rest)| rest.split_once(')')?.0.parse::<u8>().ok());
    Some(if severity.is_some_and(|severity| severity > 3) {
        "kernel.mlx5_warnings"
    } else {
        "kernel.mlx5_fatal"
    })
}

/// Returns whether a message is about a drive with removable media. The virtual media of a BMC are
/// often unplugged while mounted, which logs I/O errors.
fn is_removable(message: &str) -> bool {
    let device = message.split_once("dev ").map_or("", |(_, rest)| rest);
    let number = device
        .strip_prefix("sr")
        .or_else(|| device.strip_prefix("fd"));
    number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// Recognizes faults of disks and file systems.
fn disk(message: &str) -> Option<&'static str> {
    let readonly = [
        "Remounting filesystem read-only",
        "forced readonly",
        "Corruption of in-memory data",
        "EXT4-fs error",
    ];
    if any(message, &readonly) {
        return Some("kernel.fs_readonly");
    }
    if is_removable(message) {
        return None;
    }
    let io = [
        "I/O error",
        "critical medium error",
        "critical target error",
    ];
    let nvme = [
        "timeout, ",
        "controller is down",
        "Device not ready",
        "Removing after probe failure",
    ];
    (any(message, &io) || (message.starts_with("nvme ") && any(message, &nvme)))
        .then_some("kernel.io_errors")
}

/// Recognizes lockups of the machine. A stalled workqueue and a processor late for an expedited
/// grace period count as `kernel.stalls`. Both also occur in a guest waiting for its virtual
/// processors (kernel/workqueue.c, wq_watchdog_timer_fn; kernel/rcu/tree_exp.h,
/// synchronize_rcu_expedited_wait).
fn machine(message: &str) -> Option<&'static str> {
    if message.starts_with("BUG: workqueue lockup")
        || message.contains("detected expedited stalls on")
    {
        return Some("kernel.stalls");
    }
    any(
        message,
        &[
            "soft lockup",
            "hard LOCKUP",
            "detected stall",
            "Hard LOCKUP",
        ],
    )
    .then_some("kernel.lockups")
}

/// Returns the metric for a message about a process. A job killed at its own memory limit is not
/// counted.
fn process(message: &str) -> Option<&'static str> {
    // Slow storage also blocks tasks, so a blocked task has its own metric beside the lockup of a
    // processor.
    let stands = message.starts_with("INFO: task ") && message.contains("blocked for more than");
    let stuck = message.starts_with("watchdog: BUG: soft lockup");
    let killed = message.starts_with("Out of memory: Killed process");
    match (stands, stuck, killed) {
        (true, ..) => Some("kernel.hung_tasks"),
        (_, true, _) => Some("kernel.lockups"),
        (.., true) => Some("kernel.oom_kills"),
        (false, false, false) => None,
    }
}

/// Returns whether a message contains words chosen by an unprivileged user and reports no fault of
/// the machine. Examples are the name of a process or cgroup, and the version of a driver's client.
/// Mount options are another example, because any user namespace may mount some file systems
/// (fs/fs_parser.c, fs/overlayfs/params.c, mm/shmem.c, fs/fuse/inode.c).
fn names_a_process(message: &str) -> bool {
    let begins = [
        "traps: ",
        "Memory cgroup out of memory",
        "oom-kill:",
        "audit: ",
        "CPU: ",
        "process '",
        "NVRM: API mismatch",
        "overlayfs: ",
        "tmpfs: ",
        "fuse: ",
        "cgroup: ",
        "netlink: ",
        "ptrace attach of ",
    ];
    let holds = [
        ": Unknown parameter '",
        ": Bad value for '",
        "]: segfault at ",
        "potentially unexpected fatal signal",
        "invoked oom-killer",
        " Comm: ",
        "): drop_caches: ",
        "rocess information: process ",
        "amdgpu:  Process ",
    ];
    begins.iter().any(|word| message.starts_with(word)) || any(message, &holds)
}

fn any(message: &str, signs: &[&str]) -> bool {
    signs.iter().any(|sign| message.contains(sign))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::too_many_lines, reason = "a table reads in one piece")]

    use super::of;

    #[test]
    fn messages_are_counted_for_what_they_are() {
        let table = [
            (
                "NVRM: fallen off the bus and is not responding to commands.",
                Some("kernel.gpu_lost"),
            ),
            (
                "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
                Some("kernel.aer_corrected"),
            ),
            (
                "pcieport 0000:00:01.0: AER: Correctable error message received from 0000:01:00.0",
                Some("kernel.aer_corrected"),
            ),
            (
                "nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
                None,
            ),
            (
                "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0",
                Some("kernel.aer_uncorrected"),
            ),
            (
                "pcieport 0000:00:01.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:01:00.0",
                Some("kernel.aer_uncorrected"),
            ),
            ("pcieport 0000:00:01.0: AER: enabled with IRQ 24", None),
            (
                "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: 8c00004000010090",
                Some("kernel.mce_corrected"),
            ),
            (
                "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 5: be00000000800400",
                Some("kernel.mce_uncorrected"),
            ),
            (
                "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 5: ?",
                Some("kernel.mce_uncorrected"),
            ),
            (
                "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0",
                Some("kernel.mce_corrected"),
            ),
            (
                "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0",
                Some("kernel.mce_uncorrected"),
            ),
            (
                "mlx5_core 0000:97:00.0: poll_health:800: device's health compromised - reached miss count",
                Some("kernel.mlx5_fatal"),
            ),
            (
                "mlx5_core 0000:97:00.0: 252.056 Gb/s available PCIe bandwidth, limited by 32.0 GT/s PCIe x8 link at 0000:97:01.0",
                Some("kernel.mlx5_warnings"),
            ),
            (
                "mlx5_core 0000:97:00.0 enp151s0np0: Link down",
                Some("kernel.link_downs"),
            ),
            ("ata3: SATA link down (SStatus 4 SControl 300)", None),
            (
                "Buffer I/O error on dev sda1, logical block 0, async page read",
                Some("kernel.io_errors"),
            ),
            (
                "nvme nvme0: I/O 8 QID 1 timeout, aborting",
                Some("kernel.io_errors"),
            ),
            (
                "EXT4-fs (dm-0): Remounting filesystem read-only",
                Some("kernel.fs_readonly"),
            ),
            (
                "watchdog: BUG: soft lockup - CPU#7 stuck for 22s! [python:4242]",
                Some("kernel.lockups"),
            ),
            (
                "INFO: task nvidia-smi:2310 blocked for more than 120 seconds.",
                Some("kernel.hung_tasks"),
            ),
            (
                "Out of memory: Killed process 4242 (python)",
                Some("kernel.oom_kills"),
            ),
            (
                "Memory cgroup out of memory: Killed process 4242 (python)",
                None,
            ),
            (
                "Memory cgroup out of memory: Killed process 4242 (I/O error)",
                None,
            ),
            (
                "I/O error, dev [4242]: segfault at 0 ip 0000000000000000 sp 00007ffd error 14 in python3",
                None,
            ),
            (
                "traps: I/O error[4242] general protection fault ip:401136 sp:7ffd error:0 in a[401000+1000]",
                None,
            ),
            (
                "AER: Uncorrec invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
                None,
            ),
            (
                "CPU: 3 PID: 4242 Comm: EXT4-fs error Not tainted 6.1.0-56-amd64 #1",
                None,
            ),
            (
                "INFO: task I/O error:4242 blocked for more than 120 seconds.",
                Some("kernel.hung_tasks"),
            ),
            (
                "Out of memory: Killed process 4242 (I/O error) total-vm:1048576kB",
                Some("kernel.oom_kills"),
            ),
            (
                "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
                None,
            ),
            // A partial match is not counted.
            ("EDAC MC0: Giving out device to module skx_edac", None),
            ("usb 1-1: Product: CE UE CE reader", None),
            ("usb 1-1: GPU is lost", None),
            ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module", None),
            ("pcieport 0000:00:01.0: AER: Corrected error", None),
            ("usb 1-1: Corrected error received", None),
            ("nvme nvme0: 8/0/0 default/read/poll queues", None),
            ("usb 1-1: controller is down", None),
            ("mlx5_core 0000:97:00.0: firmware version: 28.39.1002", None),
            ("usb 1-1: insufficient power", None),
            ("INFO: task a:1 runs", None),
            ("usb 1-1: blocked for more than 120 seconds.", None),
        ];
        hold(&table);
    }

    #[test]
    fn drivers_are_counted_by_what_their_source_prints() {
        let table = [
            // drivers/pci/pcie/dpc.c, dpc_process_error
            (
                "pcieport 0000:30:03.0: DPC: containment event, status:0x1f01 source:0x0000",
                Some("kernel.aer_uncorrected"),
            ),
            // mlx5/core/health.c, poll_health; the third is from a removed virtual function
            (
                "mlx5_core 0000:97:00.0: poll_health:800:(pid 0): Fatal error 1 detected",
                Some("kernel.mlx5_fatal"),
            ),
            (
                "mlx5_core 0000:97:00.0: poll_health:800:(pid 0): Fatal error 5 detected",
                Some("kernel.mlx5_fatal"),
            ),
            (
                "mlx5_core 0000:97:00.2: poll_health:800:(pid 0): Fatal error 3 detected",
                Some("kernel.mlx5_warnings"),
            ),
            // mlx5/core/health.c, print_health_info
            (
                "mlx5_core 0000:97:00.0: print_health_info:430:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:",
                Some("kernel.mlx5_fatal"),
            ),
            (
                "mlx5_core 0000:97:00.0: print_health_info:430:(pid 0): Health issue observed, High temperature, severity(4) WARNING:",
                Some("kernel.mlx5_warnings"),
            ),
            (
                "mlx5_core 0000:97:00.0: Health issue observed, unrecognized error",
                Some("kernel.mlx5_fatal"),
            ),
            // amdgpu_ras.c, amdgpu_ras_error_generate_report, older and newer
            (
                "amdgpu 0000:03:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
                Some("kernel.amdgpu_fatal"),
            ),
            (
                "amdgpu 0000:03:00.0: amdgpu: socket: 0, die: 0, 1 new uncorrectable hardware errors detected in umc block",
                Some("kernel.amdgpu_fatal"),
            ),
            (
                "amdgpu 0000:03:00.0: amdgpu: socket: 0, die: 0, 1 uncorrectable hardware errors detected in total in umc block",
                None,
            ),
            (
                "amdgpu 0000:03:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
                None,
            ),
            (
                "amdgpu 0000:03:00.0: amdgpu: 7 correctable hardware errors detected in umc block",
                None,
            ),
            // amdgpu_device.c, amdgpu_device_gpu_recover; amdgpu_job.c, amdgpu_job_timedout
            (
                "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
                Some("kernel.amdgpu_resets"),
            ),
            (
                "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=7, emitted seq=9",
                Some("kernel.amdgpu_resets"),
            ),
            (
                "amdgpu 0000:03:00.0: amdgpu: ring gfx timeout, signaled seq=7, emitted seq=9",
                Some("kernel.amdgpu_resets"),
            ),
            (
                "amdgpu 0000:03:00.0: amdgpu: Process information: process ring a timeout pid 7 thread x pid 7",
                None,
            ),
            (
                "amdgpu 0000:03:00.0: amdgpu:  Process ring a timeout pid 7 thread x pid 7",
                None,
            ),
            (
                "amdgpu 0000:03:00.0: ring gfx_0.0.0 uses VM inv eng 0 on hub 0",
                None,
            ),
            // Unplugged virtual media of a BMC; block/blk-core.c and fs/buffer.c
            (
                "blk_update_request: I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1",
                None,
            ),
            (
                "I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
                None,
            ),
            (
                "Buffer I/O error on dev sr0, logical block 0, async page read",
                None,
            ),
            (
                "I/O error, dev sda, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
                Some("kernel.io_errors"),
            ),
        ];
        hold(&table);
    }

    #[test]
    fn a_processor_that_stands_still_is_told_from_work_that_does() {
        let table = [
            (
                "rcu: INFO: rcu_sched self-detected stall on CPU",
                Some("kernel.lockups"),
            ),
            (
                "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 3-...D } 21 jiffies s: 1101 root: 0x8/.",
                Some("kernel.stalls"),
            ),
            (
                "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 33s!",
                Some("kernel.stalls"),
            ),
            ("usb 1-1: Product: BUG: workqueue lockup", None),
        ];
        hold(&table);
    }

    fn hold(table: &[(&str, Option<&str>)]) {
        for (message, wanted) in table {
            assert_eq!(of(message), *wanted, "{message}");
        }
    }
}
