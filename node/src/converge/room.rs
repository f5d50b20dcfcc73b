//! Free space for packages, and for the initramfs images written by package scripts, on the target
//! file systems. A disk filling up under dpkg leaves half a transaction, so a set without enough
//! space is refused before dpkg starts.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_core::stacks::LockedPackage;
use muster_core::wire::node::{Failure, FailureCode};

use super::{kernel_facts, reboot};
use crate::failure::{fatal, io, retryable};
use crate::job::JobContext;
use crate::machine::Machine;

/// Unpacked size of a package as a multiple of its xz-compressed size. Three to four is usual, and
/// the old version is removed only afterwards.
const UNPACKED: u64 = 4;
/// Bytes kept free on every file system used.
const SPARE: u64 = 64 << 20;
/// Bytes kept free on a small separate file system, such as /boot.
const SPARE_SMALL: u64 = 1 << 20;
/// Inodes kept free on every file system used.
const SPARE_FILES: u64 = 256;
/// Free inodes of the root file system below which files are always counted.
const FEW_FILES: u64 = 1 << 16;
/// Smallest disk space of a file, in bytes.
const BLOCK: u64 = 4096;
/// Longest listing of a package. Listing decompresses the whole package; the largest CUDA packages
/// take half a minute.
const LIST_TIMEOUT: Duration = Duration::from_secs(300);
/// Folders where packages put files and where other file systems are often mounted. The EFI system
/// partition is none of them: dpkg cannot replace a file on VFAT, which has no hard links.
const PLACES: [&str; 7] = ["/usr", "/opt", "/boot", "/var", "/var/lib", "/srv", "/etc"];

/// Checks free space before the download, by the sizes in the lock.
///
/// # Errors
/// `disk_full`, `io`.
pub(super) fn check(machine: &Machine, incoming: &[&LockedPackage]) -> Result<(), Failure> {
    let download: u64 = incoming.iter().map(|package| package.size).sum();
    for (path, need) in [
        ("/var/lib", download),
        ("/", download.saturating_mul(UNPACKED + 1)),
    ] {
        refuse(machine, path, need, SPARE)?;
    }
    Ok(())
}

/// Checks free space before dpkg runs, by the files in each package. The check runs when the
/// machine has file systems beside its root, or if the packages may need more inodes than the root
/// has. The lock does not say where packages put their files.
///
/// # Errors
/// `disk_full`, `io`, `package_unreadable`.
pub(super) fn check_unpacked(
    machine: &Machine,
    archives: &str,
    incoming: &[&LockedPackage],
    cx: &JobContext,
) -> Result<(), Failure> {
    let mut places = BTreeMap::new();
    for place in PLACES {
        if let Ok(metadata) = machine.path(place).metadata() {
            places.entry(metadata.dev()).or_insert(place);
        }
    }
    let root = machine.path("/").metadata().map_err(io("/"))?.dev();
    places.remove(&root);
    if places.is_empty() && has_plenty_of_files(machine, archives, cx)? {
        return Ok(());
    }
    let mut needs = needs(machine, archives, cx)?;
    if let Some(device) = device_of(machine, "boot/initrd.img") {
        needs.entry(device).or_default().bytes += initramfs_images(machine, incoming);
    }
    if let Some(need) = needs.get(&root) {
        refuse_files(machine, "/", need.files)?;
    }
    for (device, place) in places {
        if let Some(need) = needs.get(&device) {
            refuse(machine, place, need.bytes, SPARE_SMALL)?;
            refuse_files(machine, place, need.files)?;
        }
    }
    Ok(())
}

/// Checks free space before an initramfs is rewritten: the former image is removed after the new
/// image is complete.
///
/// # Errors
/// `disk_full`, `io`.
pub(super) fn check_initramfs(machine: &Machine) -> Result<(), Failure> {
    refuse(machine, "/boot", one_initramfs(machine), SPARE_SMALL)
}

/// The space needed by packages on a file system.
#[derive(Default)]
struct Need {
    bytes: u64,
    files: u64,
}

/// Returns the paths of the downloaded packages on the machine.
fn downloaded(machine: &Machine, archives: &str) -> Result<Vec<String>, Failure> {
    let folder = std::fs::read_dir(machine.path(archives)).map_err(io(archives))?;
    let names = folder.flatten().map(|entry| entry.file_name());
    Ok(names
        .map(|name| format!("{archives}/{}", name.to_string_lossy()))
        .filter(|path| path.ends_with(".deb"))
        .collect())
}

/// Whether the root file system has free inodes in plenty: twice as many as the packages' sizes
/// suggest. Nothing is decompressed. False when a package does not tell its size.
fn has_plenty_of_files(
    machine: &Machine,
    archives: &str,
    cx: &JobContext,
) -> Result<bool, Failure> {
    let Some(left) = files_left(machine, "/")? else {
        return Ok(true);
    };
    let mut sizes = Vec::new();
    for package in downloaded(machine, archives)? {
        let field = machine.output(
            cx,
            FailureCode::PackageUnreadable,
            &["dpkg-deb", "--field", &package, "Installed-Size"],
            LIST_TIMEOUT,
        )?;
        sizes.push(String::from_utf8_lossy(&field).trim().parse().ok());
    }
    Ok(estimate_files(&sizes).is_some_and(|most| left >= most))
}

/// Estimates the most inodes for packages by their `Installed-Size` in KiB. dpkg-gencontrol counts one
/// at least for each folder, link and file with content; other tools add up bytes, so the sum is
/// doubled. `None` if a size is unknown.
fn estimate_files(sizes: &[Option<u64>]) -> Option<u64> {
    let sum = sizes
        .iter()
        .try_fold(0_u64, |sum, size| Some(sum.saturating_add((*size)?)))?;
    Some(sum.saturating_mul(2).saturating_add(FEW_FILES))
}

/// Returns the needed space by file system.
fn needs(
    machine: &Machine,
    archives: &str,
    cx: &JobContext,
) -> Result<BTreeMap<u64, Need>, Failure> {
    let mut needs: BTreeMap<u64, Need> = BTreeMap::new();
    for inside in downloaded(machine, archives)? {
        let listing = machine.output(
            cx,
            FailureCode::PackageUnreadable,
            &["dpkg-deb", "--contents", &inside],
            LIST_TIMEOUT,
        )?;
        for (kind, path, size) in String::from_utf8_lossy(&listing).lines().filter_map(member) {
            let there = kind == 'd' && machine.path(&format!("/{path}")).is_dir();
            if let (false, Some(device)) = (there, device_of(machine, path)) {
                let need = needs.entry(device).or_default();
                need.bytes += if kind == '-' {
                    size.div_ceil(BLOCK) * BLOCK
                } else {
                    0
                };
                need.files += 1;
            }
        }
    }
    Ok(needs)
}

/// Returns the bytes that package scripts will write to /boot: an image for each new kernel. A
/// rewritten image needs the space of a temporary image, counted once.
fn initramfs_images(machine: &Machine, incoming: &[&LockedPackage]) -> u64 {
    let comes = |package: &LockedPackage| {
        let release = kernel_facts::release_of(&package.name);
        release.is_some_and(|release| {
            !machine
                .path(&format!("{}{release}", kernel_facts::INITRAMFS))
                .exists()
        })
    };
    let come = incoming.iter().filter(|package| comes(package)).count() as u64;
    let anew = incoming
        .iter()
        .any(|package| !comes(package) && reboot::asked_by(&package.name, true));
    (come + u64::from(anew)) * one_initramfs(machine)
}

/// Estimates the size of an initramfs: the largest present image plus a quarter, because the next
/// image holds another driver. Zero without a present image.
fn one_initramfs(machine: &Machine) -> u64 {
    let length = |release: &String| {
        machine
            .path(&format!("{}{release}", kernel_facts::INITRAMFS))
            .metadata()
            .map(|of| of.len())
    };
    let largest = kernel_facts::releases(machine, kernel_facts::INITRAMFS)
        .iter()
        .filter_map(|release| length(release).ok())
        .max();
    largest.map_or(0, |largest| largest + largest / 4)
}

/// Parses `-rw-r--r-- root/root 12345 2024-01-01 00:00 ./usr/bin/x` into kind, path and bytes. Hard
/// links take no space and return `None`.
fn member(line: &str) -> Option<(char, &str, u64)> {
    let mut words = line.split_whitespace();
    let kind = words.next()?.chars().next()?;
    let size = words.nth(1)?.parse().ok()?;
    let (_, path) = line.split_once(" ./")?;
    matches!(kind, '-' | 'd' | 'l').then_some((kind, path, size))
}

/// Returns the file system of a future path: the file system of the nearest existing folder.
fn device_of(machine: &Machine, path: &str) -> Option<u64> {
    let mut at: PathBuf = machine.path(&format!("/{path}"));
    while let Some(folder) = at.parent().map(Path::to_path_buf) {
        match folder.metadata() {
            Ok(metadata) => return Some(metadata.dev()),
            Err(_) => at = folder,
        }
    }
    None
}

fn refuse(machine: &Machine, path: &str, need: u64, spare: u64) -> Result<(), Failure> {
    let stats =
        nix::sys::statvfs::statvfs(&machine.path(path)).map_err(|errno| io(path)(errno.into()))?;
    let free = stats
        .blocks_available()
        .saturating_mul(stats.fragment_size());
    let wanted = need.saturating_add(spare);
    if free >= wanted {
        return Ok(());
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let message = format!(
        "{} MiB are free on {path}; about {} MiB are needed there",
        free >> 20,
        mib(wanted)
    );
    // Another process or a person may free space on a small file system; converge itself frees
    // none.
    match spare {
        SPARE_SMALL => Err(retryable(FailureCode::DiskFull, message)),
        _ => Err(fatal(FailureCode::DiskFull, message)),
    }
}

/// Returns the free inodes; `None` when the number is not fixed, shown by statvfs as zero (btrfs,
/// vfat).
fn files_left(machine: &Machine, path: &str) -> Result<Option<u64>, Failure> {
    let stats =
        nix::sys::statvfs::statvfs(&machine.path(path)).map_err(|errno| io(path)(errno.into()))?;
    Ok((stats.files() > 0).then(|| stats.files_available()))
}

fn refuse_files(machine: &Machine, path: &str, need: u64) -> Result<(), Failure> {
    match files_left(machine, path)? {
        Some(left) if left < need.saturating_add(SPARE_FILES) => {
            let message =
                format!("{left} inodes are free on {path}; about {need} are needed there");
            Err(retryable(FailureCode::DiskFull, message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_unless_inodes_are_plenty() {
        assert_eq!(estimate_files(&[]), Some(FEW_FILES));
        assert_eq!(
            estimate_files(&[Some(100), Some(28)]),
            Some(FEW_FILES + 256)
        );
        assert_eq!(estimate_files(&[Some(100), None]), None);
        assert_eq!(estimate_files(&[Some(u64::MAX), Some(1)]), Some(u64::MAX));
    }

    #[test]
    fn what_takes_a_place_is_told_from_what_does_not() {
        let a_file = "-rw-r--r-- root/root     12345 2024-01-01 00:00 ./usr/bin/a b";
        assert_eq!(member(a_file), Some(('-', "usr/bin/a b", 12345)));
        assert_eq!(
            member("drwxr-xr-x root/root         0 2024-01-01 00:00 ./usr/"),
            Some(('d', "usr/", 0))
        );
        assert_eq!(
            member("lrwxrwxrwx root/root         0 2024-01-01 00:00 ./a -> b"),
            Some(('l', "a -> b", 0))
        );
        assert_eq!(
            member("hrw-r--r-- root/root         0 2024-01-01 00:00 ./a link to ./b"),
            None
        );
        assert_eq!(member("nonsense"), None);
    }
}
