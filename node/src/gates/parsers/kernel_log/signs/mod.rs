//! Messages about faults, by subsystem. Each kind has the source of the words, a counted example
//! and a silent example. docs/gates.md shows all kinds.

mod adapters; // Network adapters
mod amdgpu; // AMD's GPU driver
mod block_device; // The block device of a message
mod controllers; // SAS and RAID controllers
mod disks; // Block layer, NVMe, SCSI, SATA, md
mod file_systems; // ext4, XFS, Btrfs
mod iommu; // IOMMUs of Intel, AMD and Arm
mod machine; // The kernel itself
mod memory; // Machine checks and EDAC
mod nvidia; // NVIDIA's GPU driver
mod pcie; // PCI Express
mod process; // Messages with the name of a process
mod sign; // A kind of message

use sign::Family;

/// All subsystems. A message counts for the first kind that knows the words.
static FAMILIES: [Family; 11] = [
    Family {
        name: "processes",
        signs: process::SIGNS,
    },
    Family {
        name: "NVIDIA's driver",
        signs: nvidia::SIGNS,
    },
    Family {
        name: "AMD's driver",
        signs: amdgpu::SIGNS,
    },
    Family {
        name: "PCIe",
        signs: pcie::SIGNS,
    },
    Family {
        name: "IOMMU",
        signs: iommu::SIGNS,
    },
    Family {
        name: "memory",
        signs: memory::SIGNS,
    },
    Family {
        name: "network",
        signs: adapters::SIGNS,
    },
    Family {
        name: "file systems",
        signs: file_systems::SIGNS,
    },
    Family {
        name: "disks",
        signs: disks::SIGNS,
    },
    Family {
        name: "controllers",
        signs: controllers::SIGNS,
    },
    Family {
        name: "kernel",
        signs: machine::SIGNS,
    },
];

/// Returns the metric for a message, or `None` for a message without a known fault.
pub(super) fn of(message: &str) -> Option<&'static str> {
    if let known @ Some(_) = metric_of_process(message) {
        return known;
    }
    if process::names_a_process(message) {
        return None;
    }
    FAMILIES
        .iter()
        .flat_map(|family| family.signs)
        .find(|sign| (sign.is_told)(message))
        .map(|sign| sign.metric)
}

/// Returns whether a message contains the name of a process, or other words chosen by its user.
pub(super) fn is_of_a_process(message: &str) -> bool {
    metric_of_process(message).is_some() || process::names_a_process(message)
}

fn metric_of_process(message: &str) -> Option<&'static str> {
    process::SIGNS
        .iter()
        .find(|sign| (sign.is_told)(message))
        .map(|sign| sign.metric)
}

#[cfg(test)]
mod page; // The table of docs/gates.md

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
