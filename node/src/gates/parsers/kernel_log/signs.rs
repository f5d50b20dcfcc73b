//! Messages of faults of links, memory, disks and the machine, with NVIDIA's that carry no code.

/// The metric that counts a message, if any does.
pub(super) fn of(message: &str) -> Option<&'static str> {
    if let known @ Some(_) = process(message) {
        return known;
    }
    if names_a_process(message) {
        return None;
    }
    gpu(message)
        .or_else(|| pcie(message))
        .or_else(|| memory(message))
        .or_else(|| adapter(message))
        .or_else(|| disk(message))
        .or_else(|| machine(message))
}

/// A GPU that is gone says so in lines of its own, with or without an Xid.
fn gpu(message: &str) -> Option<&'static str> {
    let lost = ["fallen off the bus", "GPU is lost"];
    (message.starts_with("NVRM:") && any(message, &lost)).then_some("kernel.gpu_lost")
}

/// PCI Express Advanced Error Reporting; both spellings of the kernel.
fn pcie(message: &str) -> Option<&'static str> {
    if !any(message, &["AER: ", "PCIe Bus Error: "]) {
        return None;
    }
    let uncorrected = any(message, &["Uncorrected", "Uncorrectable", "severity=Fatal", "device recovery failed"]);
    if uncorrected {
        return Some("kernel.aer_uncorrected");
    }
    // Each has two lines; the one that tells of its arrival is counted.
    let arrived = any(message, &["Corrected error", "Correctable error"]) && message.contains("received");
    arrived.then_some("kernel.aer_corrected")
}

/// Machine checks and what EDAC says of memory.
fn memory(message: &str) -> Option<&'static str> {
    /// UC of MCi_STATUS (AMD64 Architecture Programmer's Manual, volume 2; Intel SDM, volume 3B).
    const UNCORRECTED: u64 = 1 << 61;
    if any(
        message,
        &["[Hardware Error]: Uncorrected", "[Hardware Error]: Deferred error", "Uncorrected hardware memory error"],
    ) || message.starts_with("Memory failure: ")
        || (message.starts_with("EDAC MC") && message.contains(" UE "))
        || any(message, &["event severity: fatal", "event severity: recoverable"])
    {
        return Some("kernel.mce_uncorrected");
    }
    if any(message, &["Machine Check: ", "Machine Check Exception: "]) {
        let status =
            message.split_once(" Bank ").and_then(|(_, rest)| rest.split_once(": ")).map(|(_, status)| status.trim());
        let status =
            status.and_then(|status| u64::from_str_radix(status.split(' ').next().unwrap_or_default(), 16).ok());
        // One that cannot be read is taken for the worse.
        let corrected = status.is_some_and(|status| status & UNCORRECTED == 0);
        return Some(if corrected { "kernel.mce_corrected" } else { "kernel.mce_uncorrected" });
    }
    let corrected = any(
        message,
        &["[Hardware Error]: Corrected error", "Machine check events logged", "event severity: corrected"],
    ) || (message.starts_with("EDAC MC") && message.contains(" CE "));
    corrected.then_some("kernel.mce_corrected")
}

/// NVIDIA's network adapters, and any link that goes down.
fn adapter(message: &str) -> Option<&'static str> {
    let fatal = [
        "device's health compromised",
        "unrecoverable hardware error",
        "Will cause a leak of a command resource",
        "health recovery failed",
    ];
    let warning = ["insufficient power", "igh temperature", "ACCESS_REG", "available PCIe bandwidth, limited by"];
    if message.starts_with("mlx5_core") {
        if any(message, &fatal) {
            return Some("kernel.mlx5_fatal");
        }
        if any(message, &warning) {
            return Some("kernel.mlx5_warnings");
        }
    }
    let lower = message.to_ascii_lowercase();
    let down = any(&lower, &["link down", "link is down", "lost carrier"]) && !lower.contains("sata link down");
    down.then_some("kernel.link_downs")
}

/// Disks and file systems.
fn disk(message: &str) -> Option<&'static str> {
    let readonly =
        ["Remounting filesystem read-only", "forced readonly", "Corruption of in-memory data", "EXT4-fs error"];
    if any(message, &readonly) {
        return Some("kernel.fs_readonly");
    }
    let io = ["I/O error", "critical medium error", "critical target error"];
    let nvme = ["timeout, ", "controller is down", "Device not ready", "Removing after probe failure"];
    (any(message, &io) || (message.starts_with("nvme ") && any(message, &nvme))).then_some("kernel.io_errors")
}

/// The machine itself.
fn machine(message: &str) -> Option<&'static str> {
    any(message, &["soft lockup", "hard LOCKUP", "detected stall", "Hard LOCKUP"]).then_some("kernel.lockups")
}

/// What tells of a process and counts. A job that meets its own memory limit is not counted.
fn process(message: &str) -> Option<&'static str> {
    let stands = message.starts_with("INFO: task ") && message.contains("blocked for more than");
    let stuck = message.starts_with("watchdog: BUG: soft lockup");
    let killed = message.starts_with("Out of memory: Killed process");
    (stands || stuck).then_some("kernel.lockups").or(killed.then_some("kernel.oom_kills"))
}

/// Messages that hold the name of a process, which its user chose, and that tell nothing of the machine.
fn names_a_process(message: &str) -> bool {
    let begins = ["traps: ", "Memory cgroup out of memory", "oom-kill:", "audit: ", "CPU: ", "process '"];
    let holds =
        ["]: segfault at ", "potentially unexpected fatal signal", "invoked oom-killer", " Comm: ", "): drop_caches: "];
    begins.iter().any(|word| message.starts_with(word)) || any(message, &holds)
}

fn any(message: &str, signs: &[&str]) -> bool {
    signs.iter().any(|sign| message.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn messages_are_counted_for_what_they_are() {
        let table = [
            ("NVRM: fallen off the bus and is not responding to commands.", Some("kernel.gpu_lost")),
            ("pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0", Some("kernel.aer_corrected")),
            (
                "pcieport 0000:00:01.0: AER: Correctable error message received from 0000:01:00.0",
                Some("kernel.aer_corrected"),
            ),
            ("nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", None),
            (
                "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0",
                Some("kernel.aer_uncorrected"),
            ),
            (
                "pcieport 0000:00:01.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:01:00.0",
                Some("kernel.aer_uncorrected"),
            ),
            ("pcieport 0000:00:01.0: AER: enabled with IRQ 24", None),
            ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: 8c00004000010090", Some("kernel.mce_corrected")),
            (
                "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 5: be00000000800400",
                Some("kernel.mce_uncorrected"),
            ),
            ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 5: ?", Some("kernel.mce_uncorrected")),
            ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0", Some("kernel.mce_corrected")),
            ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0", Some("kernel.mce_uncorrected")),
            (
                "mlx5_core 0000:97:00.0: poll_health:800: device's health compromised - reached miss count",
                Some("kernel.mlx5_fatal"),
            ),
            (
                "mlx5_core 0000:97:00.0: 252.056 Gb/s available PCIe bandwidth, limited by 32.0 GT/s PCIe x8 link at 0000:97:01.0",
                Some("kernel.mlx5_warnings"),
            ),
            ("mlx5_core 0000:97:00.0 enp151s0np0: Link down", Some("kernel.link_downs")),
            ("ata3: SATA link down (SStatus 4 SControl 300)", None),
            ("Buffer I/O error on dev sda1, logical block 0, async page read", Some("kernel.io_errors")),
            ("nvme nvme0: I/O 8 QID 1 timeout, aborting", Some("kernel.io_errors")),
            ("EXT4-fs (dm-0): Remounting filesystem read-only", Some("kernel.fs_readonly")),
            ("watchdog: BUG: soft lockup - CPU#7 stuck for 22s! [python:4242]", Some("kernel.lockups")),
            ("INFO: task nvidia-smi:2310 blocked for more than 120 seconds.", Some("kernel.lockups")),
            ("Out of memory: Killed process 4242 (python)", Some("kernel.oom_kills")),
            ("Memory cgroup out of memory: Killed process 4242 (python)", None),
            ("Memory cgroup out of memory: Killed process 4242 (I/O error)", None),
            ("I/O error, dev [4242]: segfault at 0 ip 0000000000000000 sp 00007ffd error 14 in python3", None),
            ("traps: I/O error[4242] general protection fault ip:401136 sp:7ffd error:0 in a[401000+1000]", None),
            ("AER: Uncorrec invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", None),
            ("CPU: 3 PID: 4242 Comm: EXT4-fs error Not tainted 6.1.0-56-amd64 #1", None),
            ("INFO: task I/O error:4242 blocked for more than 120 seconds.", Some("kernel.lockups")),
            ("Out of memory: Killed process 4242 (I/O error) total-vm:1048576kB", Some("kernel.oom_kills")),
            ("usb 1-1: new high-speed USB device number 2 using xhci_hcd", None),
            // Half of a sign is none.
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
        for (message, wanted) in table {
            assert_eq!(of(message), wanted, "{message}");
        }
    }
}
