//! The job `write-image`: one disk gets one image, and becomes this node's own.
//!
//! Interrupted at any instant, the disk does not boot, and the next attempt starts over; only the last write makes it bootable.

use std::path::Path;

use muster_core::permits::PermitKind;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, ImageWritten, Marker, Plan, WriteImage};

use super::find::{self, Target};
use super::{fetch, marker, nvram, settle, stream, table};
use crate::failure::{fatal, io};
use crate::job::JobContext;
use crate::permit::{self, Demand};
use crate::{paths, tool};

/// Where the new root is mounted while it is made this node's own.
const MOUNT: &str = "/run/muster/root";

/// Does the whole job.
///
/// # Errors
/// `disk_missing`, `disk_ambiguous`, `disk_in_use`, `disk_too_small`, `marked_in_use`, `permit_refused`, and what the steps say.
pub fn write_image(
    plan: &Plan,
    image: &WriteImage,
    cx: &JobContext,
) -> Result<ImageWritten, Failure> {
    fetch::check_url(&image.url)?;
    let target = find::by_serial(&image.disk_serial)?;
    // A former process of this job may have died with the root mounted.
    unmount(cx, &paths::at(MOUNT));
    let disk = target.open_exclusively()?;
    let size = stream::size_of(&disk)?;
    // The end holds the backup table: an image that fills the disk to the last byte leaves no room for it.
    if size < image.raw_size {
        return Err(fatal(
            FailureCode::DiskTooSmall,
            format!(
                "disk {} has {size} bytes, the image {}",
                target.serial, image.raw_size
            ),
        ));
    }
    marker::check(&disk, plan, Some(image.claim), &target.serial)?;
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
    // Mounting a partition claims the whole disk: our own claim must go first.
    drop(disk);
    cx.progress("growing the root file system", None, None, None);
    table::grow(cx, &target, image.root_partition)?;
    table::reread(cx, &target, &[image.esp_partition, image.root_partition])?;
    table::grow_file_system(cx, &target.partition(image.root_partition))?;
    cx.progress("making the image this node's own", None, None, None);
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

/// Mounts the new root, settles it, and unmounts it whatever happened.
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
