//! Fits an image's partitions to the disk: writes the held-back parts, moves the backup table to
//! the end, grows the root partition.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use muster_core::wire::node::{Failure, FailureCode};

use super::find::Target;
use super::marker::{self, LENGTH};
use super::stream::HeldBack;
use crate::failure::{fatal, io, retryable};
use crate::job::JobContext;
use crate::tool::{self, Call};

/// Length of the boot code, in bytes; the table of the protective MBR begins after the boot code
/// (UEFI 2.10, 5.2.3).
const BOOT_CODE: usize = 440;
/// `int 18h; hlt; jmp $-1`: reports to a BIOS that the disk does not boot, so the BIOS tries the
/// next device.
const NOT_BOOTABLE: [u8; 5] = [0xcd, 0x18, 0xf4, 0xeb, 0xfd];
/// Longest wait for the kernel and udev to show a partition.
const APPEAR: Duration = Duration::from_secs(20);

/// Writes the partition table, without boot code.
///
/// # Errors
/// `io`.
pub fn place(disk: &File, held: &HeldBack, marker: &[u8; LENGTH]) -> Result<(), Failure> {
    let mut head = held.head.clone();
    head[..BOOT_CODE].fill(0);
    head[..NOT_BOOTABLE.len()].copy_from_slice(&NOT_BOOTABLE);
    let at = usize::try_from(marker::OFFSET).unwrap_or(0);
    head[at..at + LENGTH].copy_from_slice(marker);
    disk.write_all_at(&head, 0)
        .and_then(|()| disk.sync_data())
        .map_err(io("writing the partition table"))
}

/// Writes the last part of an image: from here on the disk boots.
///
/// # Errors
/// `io`.
pub fn commit(disk: &File, held: &HeldBack) -> Result<(), Failure> {
    let write = || {
        if let Some((offset, bytes)) = &held.esp {
            disk.write_all_at(bytes, *offset)?;
        }
        disk.sync_data()?;
        // The whole sector is read, changed and written, because the sector holds the table written
        // by the tools.
        let mut sector = [0; 512];
        disk.read_exact_at(&mut sector, 0)?;
        sector[..BOOT_CODE].copy_from_slice(&held.head[..BOOT_CODE]);
        disk.write_all_at(&sector, 0)?;
        disk.sync_all()
    };
    write().map_err(io("writing the boot code"))
}

/// Moves the backup table to the disk's end and grows the root partition, the last partition, to
/// the end.
///
/// # Errors
/// `tool_failed`.
pub fn grow(cx: &JobContext, target: &Target, root: u32) -> Result<(), Failure> {
    let device = target.device();
    tool::output(cx, &["sgdisk", "--move-second-header", device])?;
    let number = root.to_string();
    let argv = [
        "sfdisk",
        "--quiet",
        "--no-reread",
        "--no-tell-kernel",
        "--wipe",
        "never",
        "-N",
        &number,
        device,
    ];
    let grown = tool::run(
        cx,
        &Call {
            argv: &argv,
            stdin: Some(b", +\n"),
            ..Call::default()
        },
    )?;
    match grown.status.success() {
        true => Ok(()),
        false => Err(fatal(
            FailureCode::ToolFailed,
            format!(
                "sfdisk cannot grow partition {root}: {}",
                tool::tail(&grown.stderr, 600)
            ),
        )),
    }
}

/// Makes the kernel read the new table, and waits for the partitions.
///
/// # Errors
/// `partition_missing`, `tool_failed`.
pub fn reread(cx: &JobContext, target: &Target, wanted: &[u32]) -> Result<(), Failure> {
    let started = Instant::now();
    // The disk is busy while udev reads the disk.
    while let Err(failure) = tool::output(cx, &["blockdev", "--rereadpt", target.device()]) {
        if started.elapsed() > APPEAR {
            return Err(failure);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    for &number in wanted {
        let path = target.partition(number);
        while !path.exists() {
            cx.check()?;
            if started.elapsed() > APPEAR {
                return Err(retryable(
                    FailureCode::PartitionMissing,
                    format!("partition {} did not appear", path.display()),
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // Waits for udev, because a mount fails while udev reads the partitions.
    let argv = ["udevadm", "settle", "--timeout=10"];
    let _ = tool::run(
        cx,
        &Call {
            argv: &argv,
            timeout: Some(Duration::from_secs(15)),
            ..Call::default()
        },
    );
    Ok(())
}

/// Checks the root file system and grows the file system to the size of the partition.
///
/// # Errors
/// `tool_failed`.
pub fn grow_file_system(cx: &JobContext, partition: &Path) -> Result<(), Failure> {
    let device = partition.to_str().unwrap_or_default();
    let checked = tool::run(
        cx,
        &Call {
            argv: &["e2fsck", "-f", "-y", device],
            ..Call::default()
        },
    )?;
    // Exit codes 0: clean, 1: errors corrected (e2fsck(8)).
    if !matches!(checked.status.code(), Some(0 | 1)) {
        let text = format!(
            "e2fsck {device}: {}: {}",
            checked.status,
            tool::tail(&checked.stdout, 600)
        );
        return Err(fatal(FailureCode::ToolFailed, text));
    }
    tool::output(cx, &["resize2fs", device]).map(drop)
}
