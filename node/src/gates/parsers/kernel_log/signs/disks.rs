//! Disks: the block layer, NVMe, SCSI and SATA, and arrays of md.

use super::block_device::is_no_disk;
use super::sign::{Sign, any, begins};

pub(super) const SIGNS: &[Sign] = &[
    Sign {
        meaning: "a disk did not read or write",
        metric: "kernel.io_errors",
        source: "Linux 6.12, block/blk-mq.c, blk_print_req_error; fs/buffer.c, buffer_io_error; e2fsprogs issue 39",
        counted: "I/O error, dev sda, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
        silent: "blk_update_request: I/O error, dev loop6, sector 524160 op 0x9:(WRITE_ZEROES) flags 0x1000800 phys_seg 0 prio class 0",
        is_told: |message| {
            let words = [
                "I/O error",
                "critical medium error",
                "critical target error",
            ];
            let fails = any(message, &words) || is_xfs_error(message);
            fails && !is_no_disk(message)
        },
    },
    Sign {
        meaning: "an NVMe controller does not answer, or was given up",
        metric: "kernel.io_errors",
        source: "Linux 6.12, drivers/nvme/host/pci.c, nvme_timeout, nvme_warn_reset and nvme_reset_work; core.c, nvme_wait_ready",
        counted: "nvme nvme0: Disabling device after reset failure: -19",
        silent: "nvme nvme0: 8/0/0 default/read/poll queues",
        is_told: |message| {
            let words = [
                "timeout, ",
                "controller is down",
                "Device not ready",
                "Removing after probe failure",
                "Disabling device after reset failure",
            ];
            message.starts_with("nvme ") && any(message, &words)
        },
    },
    Sign {
        meaning: "an NVMe drive reports a media error (status code type 2)",
        metric: "kernel.io_errors",
        source: "Linux 6.12, drivers/nvme/host/core.c, nvme_log_error; NVM Express Base Specification 2.0, media and data integrity errors",
        counted: "nvme0n1: I/O Cmd(0x2) @ LBA 272, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR",
        silent: "nvme0: Get Log Page(0x2), Invalid Field in Command (sct 0x0 / sc 0x2) DNR",
        // A failed comparison and a deallocated block are answers to a command.
        is_told: |message| {
            message.starts_with("nvme")
                && message.contains("(sct 0x2 / sc 0x")
                && !any(message, &["/ sc 0x85)", "/ sc 0x87)"])
        },
    },
    Sign {
        meaning: "a SCSI or SAS disk reports an error of its own, or is offline",
        metric: "kernel.io_errors",
        source: "Linux 6.12, drivers/scsi/scsi_error.c, scsi_eh_offline_sdevs; scsi_lib.c, scsi_device_state_check; constants.c, snstext",
        counted: "sd 0:0:3:0: [sdd] tag#18 Sense Key : Medium Error [current]",
        silent: "sd 0:0:3:0: [sdd] tag#18 Sense Key : Illegal Request [current]",
        is_told: |message| {
            let words = [
                "Sense Key : Medium Error",
                "Sense Key : Hardware Error",
                "Device offlined - not ready after error recovery",
                "rejecting I/O to offline device",
            ];
            message.starts_with("sd ") && any(message, &words)
        },
    },
    Sign {
        meaning: "a SATA disk was given up",
        metric: "kernel.io_errors",
        source: "Linux 6.12, drivers/ata/libata-core.c, ata_dev_disable; 5.15 and older: disabled",
        counted: "ata3.00: disable device",
        silent: "ata3.00: configured for UDMA/133",
        is_told: |message| {
            message.starts_with("ata")
                && (message.ends_with(": disable device") || message.ends_with(": disabled"))
        },
    },
    Sign {
        meaning: "an array of md lost a disk, or stopped",
        metric: "kernel.io_errors",
        source: "Linux 6.12, drivers/md/raid1.c, raid1_error; raid10.c, raid10_error; raid5.c, raid5_error; md.c, super_written",
        counted: "md/raid1:md0: Disk failure on sdb1, disabling device.",
        silent: "md/raid1:md0: active with 2 out of 2 mirrors",
        is_told: |message| {
            let words = [
                "Disk failure on ",
                "Cannot continue operation",
                "super_written gets error",
            ];
            begins(message, &["md/raid", "md: "]) && any(message, &words)
        },
    },
];

/// Returns whether XFS reports a failed read or write of metadata. The words have capitals of their
/// own: `metadata I/O error` with a small letter is in the words of the block layer.
fn is_xfs_error(message: &str) -> bool {
    message.starts_with("XFS (")
        && message.contains("I/O Error")
        && !message.contains("User initiated shutdown")
}
