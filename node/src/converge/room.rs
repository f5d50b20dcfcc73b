//! Room for packages, and for the initramfs images that their scripts write, on the file systems they go to. A disk that fills up under dpkg leaves half
//! a transaction: what does not fit is refused before dpkg starts.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_core::stacks::LockedPackage;
use muster_core::wire::node::{Failure, FailureCode};

use super::machine::Machine;
use super::{kernel, reboot};
use crate::failure::{fatal, io, retryable};
use crate::job::JobContext;

/// What a package takes once unpacked, as a multiple of its xz-compressed size: three to four is usual, and the old version goes only afterwards.
const UNPACKED: u64 = 4;
/// Kept free on every file system we fill.
const SPARE: u64 = 64 << 20;
/// Kept free on a small one of its own, such as /boot.
const SPARE_SMALL: u64 = 1 << 20;
/// Files that may yet be made on every file system we fill.
const SPARE_FILES: u64 = 256;
/// A root with room for so many files is not counted on: all of CUDA has a tenth of it.
const PLENTY_OF_FILES: u64 = 1 << 20;
/// What a file takes at least.
const BLOCK: u64 = 4096;
/// Listing a package means to decompress all of it: the largest of CUDA take half a minute.
const LIST_TIMEOUT: Duration = Duration::from_secs(300);
/// Where packages put files, and where people mount something else.
const PLACES: [&str; 8] = [
    "/usr",
    "/opt",
    "/boot",
    "/boot/efi",
    "/var",
    "/var/lib",
    "/srv",
    "/etc",
];

/// Before anything is fetched: by the sizes in the lock.
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

/// Before dpkg sees them: by the files in each package, where the machine has file systems beside its root, or few files left on that. The lock does not
/// say where packages put their files.
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
    let counted = files_left(machine, "/")?.is_some_and(|left| left < PLENTY_OF_FILES);
    if places.is_empty() && !counted {
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

/// Before an initramfs is written anew: the former one goes when the new one is whole.
///
/// # Errors
/// `disk_full`, `io`.
pub(super) fn check_initramfs(machine: &Machine) -> Result<(), Failure> {
    refuse(machine, "/boot", one_initramfs(machine), SPARE_SMALL)
}

/// What packages take of a file system.
#[derive(Default)]
struct Need {
    bytes: u64,
    files: u64,
}

/// By file system.
fn needs(
    machine: &Machine,
    archives: &str,
    cx: &JobContext,
) -> Result<BTreeMap<u64, Need>, Failure> {
    let mut needs: BTreeMap<u64, Need> = BTreeMap::new();
    let folder = std::fs::read_dir(machine.path(archives)).map_err(io(archives))?;
    for entry in folder.flatten().filter(|entry| {
        entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "deb")
    }) {
        let inside = format!("{archives}/{}", entry.file_name().to_string_lossy());
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

/// What the packages' scripts will write to /boot: an image for each kernel that comes, and one beside a former one, if any is written anew.
fn initramfs_images(machine: &Machine, incoming: &[&LockedPackage]) -> u64 {
    let comes = |package: &LockedPackage| {
        let release = kernel::release_of(&package.name);
        release.is_some_and(|release| {
            !machine
                .path(&format!("{}{release}", kernel::INITRAMFS))
                .exists()
        })
    };
    let come = incoming.iter().filter(|package| comes(package)).count() as u64;
    let anew = incoming
        .iter()
        .any(|package| !comes(package) && reboot::asked_by(&package.name, true));
    (come + u64::from(anew)) * one_initramfs(machine)
}

/// By the largest that is there, and a quarter more: the next one holds another driver. None where there is none to go by.
fn one_initramfs(machine: &Machine) -> u64 {
    let length = |release: &String| {
        machine
            .path(&format!("{}{release}", kernel::INITRAMFS))
            .metadata()
            .map(|of| of.len())
    };
    let largest = kernel::releases(machine, kernel::INITRAMFS)
        .iter()
        .filter_map(|release| length(release).ok())
        .max();
    largest.map_or(0, |largest| largest + largest / 4)
}

/// `-rw-r--r-- root/root 12345 2024-01-01 00:00 ./usr/bin/x`: the kind, path and bytes of what takes a place of its own; a hard link does not.
fn member(line: &str) -> Option<(char, &str, u64)> {
    let mut words = line.split_whitespace();
    let kind = words.next()?.chars().next()?;
    let size = words.nth(1)?.parse().ok()?;
    let (_, path) = line.split_once(" ./")?;
    matches!(kind, '-' | 'd' | 'l').then_some((kind, path, size))
}

/// The file system that a path will lie on: that of the nearest folder which is there.
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
    // Somebody may make room; nothing we do would.
    match spare {
        SPARE_SMALL => Err(retryable(FailureCode::DiskFull, message)),
        _ => Err(fatal(FailureCode::DiskFull, message)),
    }
}

/// How many files may yet be made there; nothing where their number is not fixed, which is told as none at all (statvfs of btrfs, vfat).
fn files_left(machine: &Machine, path: &str) -> Result<Option<u64>, Failure> {
    let stats =
        nix::sys::statvfs::statvfs(&machine.path(path)).map_err(|errno| io(path)(errno.into()))?;
    Ok((stats.files() > 0).then(|| stats.files_available()))
}

fn refuse_files(machine: &Machine, path: &str, need: u64) -> Result<(), Failure> {
    match files_left(machine, path)? {
        Some(left) if left < need.saturating_add(SPARE_FILES) => {
            let message = format!(
                "{left} files may yet be made on {path}; the packages bring about {need} there"
            );
            Err(retryable(FailureCode::DiskFull, message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
