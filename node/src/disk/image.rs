//! The job `write-image`: writes an image to a disk and adds this node's own files.
//!
//! A disk interrupted at any instant does not boot, and the next attempt starts over. Only the last
//! write makes the disk bootable.

use std::fs::File;
use std::path::Path;

use muster_core::ids::ClaimId;
use muster_core::permits::PermitKind;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, ImageWritten, Marker, Plan, WriteImage};

use super::find::{self, Target};
use super::{fetch, marker, nvram, settle, signature, stream, table};
use crate::failure::{fatal, io};
use crate::job::JobContext;
use crate::permit::{self, Demand};
use crate::{inventory, paths, tool};

/// Mount point of the new root file system while the node's own files are written.
const MOUNT: &str = "/run/muster/root";

/// Runs the whole job.
///
/// # Errors
/// `image_unsigned`, `disk_missing`, `disk_ambiguous`, `disk_in_use`, `disk_too_small`,
/// `marked_in_use`, `permit_refused`, and the failures of the steps.
pub fn write_image(
    plan: &Plan,
    image: &WriteImage,
    cx: &JobContext,
) -> Result<ImageWritten, Failure> {
    fetch::check_url(&image.url)?;
    signature::check_signature(image)?;
    let target = find::by_serial(&image.disk_serial)?;
    // A former process of this job may have died with the root mounted.
    unmount(cx, &paths::at(MOUNT));
    let disk = target.open_exclusively()?;
    let size = stream::size_of(&disk)?;
    // The image's size includes the backup table at the end: an image larger than the disk leaves
    // no room for the table.
    if size < image.raw_size {
        return Err(fatal(
            FailureCode::DiskTooSmall,
            format!(
                "disk {} has {size} bytes, the image needs {}",
                target.serial, image.raw_size
            ),
        ));
    }
    marker::check(&disk, plan, Some(image.claim), &target.serial)?;
    check_other_disks(plan, image.claim, &target, cx)?;
    let demand = Demand {
        kind: PermitKind::Image,
        permit: image.permit,
        operation: image.operation,
        disk_serials: vec![target.serial.clone()],
    };
    permit::redeem(plan, &demand, cx)?;
    target.still_there()?;

    let marker = Marker {
        protocol: PROTOCOL,
        node: plan.node,
        claim: image.claim,
        epoch: plan.epoch,
        image: image.digest,
    };
    let sector = marker::encode(&marker)?;
    let held = stream::write(cx, image, &disk, &sector)?;
    table::place(&disk, &held, &sector)?;
    // Mounting a partition claims the whole disk, so this process must close the disk first.
    drop(disk);
    cx.progress("growing the root file system", None, None, None);
    table::grow(cx, &target, image.root_partition)?;
    table::reread(cx, &target, &[image.esp_partition, image.root_partition])?;
    table::grow_file_system(cx, &target.partition(image.root_partition))?;
    cx.progress(
        "writing this node's name, network and keys",
        None,
        None,
        None,
    );
    let host_key = settled(cx, &target, image, &marker)?;
    let nvram_entry = nvram::write(cx, &target, image.esp_partition, &image.digest.hex()[..12])?;
    cx.check()?;
    table::commit(&target.open_exclusively()?, &held)?;
    Ok(ImageWritten {
        disk_serial: target.serial,
        bytes: image.raw_size,
        raw_digest: image.raw_digest,
        host_key,
        nvram_entry,
    })
}

/// Refuses a machine with a disk of another claim. The image leaves the other disks as they are, so
/// the next user could read the data. A disk that cannot be read is logged.
fn check_other_disks(
    plan: &Plan,
    claim: ClaimId,
    target: &Target,
    cx: &JobContext,
) -> Result<(), Failure> {
    for disk in inventory::disks::list() {
        if disk.name == target.name {
            continue;
        }
        let serial = disk.serial.as_deref().unwrap_or(&disk.name);
        let checked = File::open(paths::at("/dev").join(&disk.name))
            .map_err(io(format!("opening disk {serial}")))
            .and_then(|file| marker::check(&file, plan, Some(claim), serial));
        match checked {
            Ok(()) => {}
            Err(failure) if failure.code == FailureCode::MarkedInUse => return Err(failure),
            Err(failure) => cx.log(&format!(
                "the marker of disk {serial} is unknown: {}",
                failure.message
            )),
        }
    }
    Ok(())
}

/// Mounts the new root, settles the image, and unmounts the root in every case.
fn settled(
    cx: &JobContext,
    target: &Target,
    image: &WriteImage,
    marker: &Marker,
) -> Result<String, Failure> {
    let root = paths::at(MOUNT);
    std::fs::create_dir_all(&root).map_err(io(MOUNT))?;
    let (partition, at) = (
        target.partition(image.root_partition),
        root.to_str().unwrap_or(MOUNT),
    );
    let device = partition.to_str().unwrap_or_default();
    tool::output(
        cx,
        &[
            "mount",
            "-t",
            "ext4",
            "-o",
            "nosuid,nodev,noexec",
            device,
            at,
        ],
    )?;
    let settled = settle::settle(cx, &root, image, marker);
    let unmounted = tool::output(cx, &["umount", at]);
    let host_key = settled?;
    unmounted.map(|_| host_key)
}

fn unmount(cx: &JobContext, root: &Path) {
    let mounted = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let at = root.to_str().unwrap_or(MOUNT);
    if mounted
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(at))
    {
        let _ = tool::output(cx, &["umount", at]);
    }
}
