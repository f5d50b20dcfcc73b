//! Room for packages on the file systems they unpack to. A disk that fills up under dpkg leaves half a transaction: what does not fit is refused
//! before dpkg starts.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_core::stacks::LockedPackage;
use muster_core::wire::node::Failure;

use super::machine::Machine;
use crate::failure::{fatal, io, retryable};
use crate::job::JobContext;

/// What a package takes once unpacked, as a multiple of its xz-compressed size: three to four is usual, and the old version goes only afterwards.
const UNPACKED: u64 = 4;
/// Kept free on every file system we fill.
const SPARE: u64 = 64 << 20;
/// Kept free on a small one of its own, such as /boot.
const SPARE_SMALL: u64 = 1 << 20;
/// What a file takes at least.
const BLOCK: u64 = 4096;
/// Listing a package means to decompress all of it: the largest of CUDA take half a minute.
const LIST_TIMEOUT: Duration = Duration::from_secs(300);
/// Where packages put files, and where people mount something else.
const PLACES: [&str; 8] = ["/usr", "/opt", "/boot", "/boot/efi", "/var", "/var/lib", "/srv", "/etc"];

/// Before anything is fetched: by the sizes in the lock.
///
/// # Errors
/// `disk_full`, `io`.
pub(super) fn check(machine: &Machine, incoming: &[&LockedPackage]) -> Result<(), Failure> {
    let download: u64 = incoming.iter().map(|package| package.size).sum();
    for (path, need) in [("/var/lib", download), ("/", download.saturating_mul(UNPACKED + 1))] {
        refuse(machine, path, need, SPARE)?;
    }
    Ok(())
}

/// Before dpkg sees them: by the files in each package, where the machine has file systems beside its root. The lock does not say where packages
/// put their files.
///
/// # Errors
/// `disk_full`, `io`, `package_unreadable`.
pub(super) fn check_unpacked(machine: &Machine, archives: &str, cx: &JobContext) -> Result<(), Failure> {
    let mut places = BTreeMap::new();
    for place in PLACES {
        if let Ok(metadata) = machine.path(place).metadata() {
            places.entry(metadata.dev()).or_insert(place);
        }
    }
    let root = machine.path("/").metadata().map_err(io("/"))?.dev();
    places.remove(&root);
    if places.is_empty() {
        return Ok(());
    }
    let mut needs: BTreeMap<u64, u64> = BTreeMap::new();
    let folder = std::fs::read_dir(machine.path(archives)).map_err(io(archives))?;
    for entry in folder.flatten().filter(|entry| entry.path().extension().is_some_and(|extension| extension == "deb")) {
        let inside = format!("{archives}/{}", entry.file_name().to_string_lossy());
        let listing = machine.output(cx, "package_unreadable", &["dpkg-deb", "--contents", &inside], LIST_TIMEOUT)?;
        for (path, size) in String::from_utf8_lossy(&listing).lines().filter_map(file) {
            if let Some(device) = device_of(machine, path) {
                *needs.entry(device).or_default() += size.div_ceil(BLOCK) * BLOCK;
            }
        }
    }
    for (device, place) in places {
        if let Some(need) = needs.get(&device) {
            refuse(machine, place, *need, SPARE_SMALL)?;
        }
    }
    Ok(())
}

/// `-rw-r--r-- root/root 12345 2024-01-01 00:00 ./usr/bin/x`: the path of a file and its bytes. Links and folders take none to speak of.
fn file(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_whitespace();
    let kind = words.next()?;
    let size = words.nth(1)?.parse().ok()?;
    let (_, path) = line.split_once(" ./")?;
    kind.starts_with('-').then_some((path, size))
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
    let stats = nix::sys::statvfs::statvfs(&machine.path(path)).map_err(|errno| io(path)(errno.into()))?;
    let free = stats.blocks_available().saturating_mul(stats.fragment_size());
    let wanted = need.saturating_add(spare);
    if free >= wanted {
        return Ok(());
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let message = format!("{} MiB are free on {path}; the packages need about {} MiB there", free >> 20, mib(wanted));
    // Somebody may make room; nothing we do would.
    match spare {
        SPARE_SMALL => Err(retryable("disk_full", message)),
        _ => Err(fatal("disk_full", message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_take_room() {
        assert_eq!(file("-rw-r--r-- root/root     12345 2024-01-01 00:00 ./usr/bin/a b"), Some(("usr/bin/a b", 12345)));
        assert_eq!(file("drwxr-xr-x root/root         0 2024-01-01 00:00 ./usr/"), None);
        assert_eq!(file("lrwxrwxrwx root/root         0 2024-01-01 00:00 ./usr/a -> b"), None);
        assert_eq!(file("nonsense"), None);
    }
}
