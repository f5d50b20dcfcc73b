//! File systems after an error. Images of containers are no file systems of the node.

use super::block_device::is_no_disk;
use super::sign::{Sign, any, begins};

pub(super) const SIGNS: &[Sign] = &[
    Sign {
        meaning: "ext4 found an error, or is read-only now",
        metric: "kernel.fs_readonly",
        source: "Linux 6.12, fs/ext4/super.c, __ext4_error and ext4_handle_error; fs/jbd2/journal.c, jbd2_journal_abort",
        counted: "EXT4-fs (dm-0): Remounting filesystem read-only",
        silent: "EXT4-fs error (device loop3): ext4_find_entry:1683: inode #2: comm tar: reading directory lblock 0",
        is_told: |message| {
            let words = ["Remounting filesystem read-only", "EXT4-fs error"];
            let aborted = message.starts_with("Aborting journal on device ");
            (aborted || any(message, &words)) && !is_no_disk(message)
        },
    },
    Sign {
        meaning: "XFS shut itself down, or found damaged metadata",
        metric: "kernel.fs_readonly",
        source: "Linux 6.12, fs/xfs/xfs_fsops.c, xfs_do_force_shutdown; xfs_error.c, xfs_buf_verifier_error; node-problem-detector, XfsHasShutdown",
        counted: "XFS (nvme1n1): Log I/O Error (0x2) detected at xlog_ioend_work+0x71/0x80 [xfs] (fs/xfs/xfs_log.c:1377).  Shutting down filesystem.",
        silent: "XFS (nvme1n1): User initiated shutdown received. Shutting down filesystem",
        is_told: |message| {
            let words = [
                "Shutting down filesystem",
                "Filesystem has been shut down",
                "Corruption of in-memory data",
                "Corruption of on-disk metadata",
                "Metadata corruption detected",
                "Metadata CRC error detected",
            ];
            message.starts_with("XFS (")
                && any(message, &words)
                && !message.contains("User initiated shutdown")
                && !is_no_disk(message)
        },
    },
    Sign {
        meaning: "Btrfs found an error, or is read-only now",
        metric: "kernel.fs_readonly",
        source: "Linux 6.12, fs/btrfs/messages.c, __btrfs_handle_fs_error and btrfs_handle_fs_error; fs.h, btrfs_crit",
        counted: "BTRFS: error (device sda2 state A) in btrfs_commit_transaction:2263: errno=-5 IO failure",
        silent: "BTRFS info (device sda2): using free-space-tree",
        is_told: |message| {
            let starts = ["BTRFS: error (device ", "BTRFS critical (device "];
            let stopped = begins(message, &starts) || message.contains("forced readonly");
            stopped && !is_no_disk(message)
        },
    },
];
