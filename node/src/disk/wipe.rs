//! The job `wipe`: erases every named disk by the strongest supported method, and reads the disk
//! back as proof.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use muster_core::facts::Disk;
use muster_core::permits::PermitKind;
use muster_core::wire::node::{Failure, FailureCode, Plan, WipeMethod, WipePlan, WipedDisk};

use super::erase;
use super::find::{self, Target};
use super::marker;
use super::stream::{CHUNK, size_of};
use super::verify::Sentinels;
use crate::failure::{fatal, io};
use crate::inventory;
use crate::job::JobContext;
use crate::permit::{self, Demand};
use crate::tool;

/// Most disks of a plan.
const DISKS_MAX: usize = 256;
/// Overwritten bytes between two syncs of the disk.
const SYNC_EVERY: u64 = 256 << 20;

/// Runs the whole job. Disks are wiped in the plan's order; the first disk failing verification
/// ends the job.
///
/// # Errors
/// `unsanitised`, final, when a disk cannot be shown to be clean; `disk_missing`, `disk_ambiguous`,
/// `disk_in_use`, `marked_in_use`, `permit_refused`, and the failures of the steps.
pub fn wipe(plan: &Plan, wipe: &WipePlan, cx: &JobContext) -> Result<Vec<WipedDisk>, Failure> {
    if wipe.disk_serials.is_empty() || wipe.disk_serials.len() > DISKS_MAX {
        return Err(fatal(
            FailureCode::Malformed,
            format!("a wipe must name 1 to {DISKS_MAX} disks"),
        ));
    }
    if let Some(left) = unnamed(inventory::disks::list(), &wipe.disk_serials) {
        return Err(fatal(FailureCode::Unsanitised, left));
    }
    let targets: Vec<Target> = wipe
        .disk_serials
        .iter()
        .map(|serial| find::by_serial(serial))
        .collect::<Result<_, _>>()?;
    for target in &targets {
        marker::check(
            &target.open_exclusively()?,
            plan,
            wipe.claim,
            &target.serial,
        )?;
    }
    let demand = Demand {
        kind: PermitKind::Wipe,
        permit: wipe.permit,
        operation: wipe.operation,
        disk_serials: wipe.disk_serials.clone(),
    };
    permit::redeem(plan, &demand, cx)?;
    targets.iter().try_for_each(Target::still_there)?;
    targets.iter().map(|target| one(cx, target)).collect()
}

/// Returns a sentence naming the disks that the wipe would leave: a disk added after the inventory,
/// or a disk without a serial.
fn unnamed(disks: Vec<Disk>, serials: &[String]) -> Option<String> {
    let left = disks.iter().filter(|disk| {
        disk.serial
            .as_ref()
            .is_none_or(|serial| !serials.contains(serial))
    });
    let names: Vec<String> = left
        .map(|disk| {
            format!(
                "{} ({})",
                disk.name,
                disk.serial.as_deref().unwrap_or("no serial")
            )
        })
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "the wipe does not name disk {}: nothing was written",
            names.join(", ")
        )
    })
}

/// Wipes a disk with the strongest method first, and with the next method after a failure of the
/// wipe or of its verification.
fn one(cx: &JobContext, target: &Target) -> Result<WipedDisk, Failure> {
    let mut doubts = Vec::new();
    for method in erase::methods(cx, target) {
        cx.check()?;
        cx.progress(
            &format!("wiping disk {} by {}", target.serial, name(method)),
            None,
            None,
            None,
        );
        match attempt(cx, target, method) {
            Ok(verified_blocks) => {
                let bytes = size_of(&target.open_exclusively()?)?;
                // The kernel still shows the old partitions; a busy disk only shows the partitions
                // longer.
                if target.is_block_device() {
                    let _ = tool::output(cx, &["blockdev", "--rereadpt", target.device()]);
                }
                return Ok(WipedDisk {
                    serial: target.serial.clone(),
                    method,
                    bytes,
                    verified_blocks,
                });
            }
            Err(failure) if ["cancelled", "deadline"].contains(&failure.code.as_str()) => {
                return Err(failure);
            }
            Err(failure) => {
                cx.log(&format!(
                    "disk {}: {}: {}",
                    target.serial,
                    name(method),
                    failure.message
                ));
                doubts.push(format!("{}: {}", name(method), failure.message));
            }
        }
    }
    Err(fatal(
        FailureCode::Unsanitised,
        format!(
            "disk {} could not be wiped: {}",
            target.serial,
            doubts.join("; ")
        ),
    ))
}

/// Plants sentinels, runs the method, and verifies the result. Returns the number of clean blocks.
fn attempt(cx: &JobContext, target: &Target, method: WipeMethod) -> Result<u64, Failure> {
    let disk = target.open_exclusively()?;
    let sentinels = Sentinels::plant(&disk)?;
    match method {
        WipeMethod::Overwrite => {
            overwrite(cx, target, &disk)?;
            drop(disk);
        }
        // Formatting and erasing replace the device, so the disk must be closed first.
        WipeMethod::NvmeSanitize
        | WipeMethod::NvmeFormat
        | WipeMethod::AtaSecureErase
        | WipeMethod::Discard => {
            drop(disk);
            erase::run(cx, target, method)?;
        }
    }
    let disk = target.open_exclusively()?;
    let leaves_noise = matches!(method, WipeMethod::NvmeSanitize | WipeMethod::NvmeFormat);
    let verified = sentinels.verify(cx, target, &disk, leaves_noise)?;
    // A cryptographic erase leaves random data; random data must not look like a partition table.
    edges(&disk)?;
    Ok(verified)
}

fn overwrite(cx: &JobContext, target: &Target, disk: &File) -> Result<(), Failure> {
    let (size, zeros) = (size_of(disk)?, vec![0; 4 * CHUNK]);
    let (mut at, mut synced, mut told) = (0, 0, Instant::now());
    while at < size {
        cx.check()?;
        let count = (size - at).min(zeros.len() as u64);
        let chunk = &zeros[..usize::try_from(count).unwrap_or(CHUNK)];
        disk.write_all_at(chunk, at)
            .map_err(io(format!("overwriting disk {}", target.serial)))?;
        at += count;
        if at - synced >= SYNC_EVERY || at == size {
            disk.sync_data()
                .map_err(io(format!("syncing disk {}", target.serial)))?;
            synced = at;
        }
        if told.elapsed() >= Duration::from_secs(1) || at == size {
            told = Instant::now();
            cx.progress(
                &format!("overwriting disk {}", target.serial),
                Some(at),
                Some(size),
                Some("bytes"),
            );
        }
    }
    Ok(())
}

fn edges(disk: &File) -> Result<(), Failure> {
    let (size, zeros) = (size_of(disk)?, vec![0; CHUNK]);
    let length = usize::try_from(size).map_or(CHUNK, |size| size.min(CHUNK));
    disk.write_all_at(&zeros[..length], 0)
        .and_then(|()| disk.write_all_at(&zeros[..length], size - length as u64))
        .and_then(|()| disk.sync_all())
        .map_err(io("zeroing the disk's edges"))
}

/// Returns the method's name in facts and reports.
fn name(method: WipeMethod) -> &'static str {
    match method {
        WipeMethod::NvmeSanitize => "nvme_sanitize",
        WipeMethod::NvmeFormat => "nvme_format",
        WipeMethod::AtaSecureErase => "ata_secure_erase",
        WipeMethod::Discard => "discard",
        WipeMethod::Overwrite => "overwrite",
    }
}
