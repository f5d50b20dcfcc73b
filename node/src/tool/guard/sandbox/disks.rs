//! The nodes of disks in a mount namespace of the tool. A hidden node is covered by itself, without
//! the right to open a device. A read-only node is covered by a node of another user: only DAC
//! rights, which the tool lacks, open such a node for writing. The disks of the machine stay as
//! before.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use muster_core::gates::Disks;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, major, mknod};

const DEVICES: &str = "/dev";
/// Drivers with character devices that take commands for disks, as in `/proc/devices`.
const COMMANDS: [&str; 4] = ["bsg", "nvme", "nvme-generic", "sg"];
/// A folder of every system, covered while the read-only nodes are made.
const STAGE: &str = "/tmp";
/// The user and group `nobody`.
const NOBODY: u32 = 65_534;
/// Entries below `/dev` on the same file system.
const ENTRIES_MAX: usize = 100_000;

/// Hides the disks, or makes the disks read-only, for this process and its descendants.
pub(super) fn enter(disks: Disks) -> io::Result<()> {
    if disks == Disks::Write {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Mounts of the tool stay here; a file system that the node unmounts is unmounted here as well.
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?;
    match disks {
        Disks::Write => Ok(()),
        Disks::Hidden => {
            let majors = read_majors(&std::fs::read_to_string("/proc/devices")?);
            let nodes = find_nodes(Path::new(DEVICES), &majors)?;
            nodes.iter().try_for_each(|node| hide(node))
        }
        Disks::Query => make_read_only(&find_nodes(Path::new(DEVICES), &[])?),
    }
}

/// Returns the nodes of block devices in a folder and below, on the same file system, and the nodes
/// of character devices with the given major numbers.
fn find_nodes(folder: &Path, majors: &[u64]) -> io::Result<Vec<PathBuf>> {
    let file_system = folder.metadata()?.dev();
    let (mut folders, mut nodes, mut entries) = (vec![folder.to_owned()], Vec::new(), 0);
    while let Some(folder) = folders.pop() {
        let Some(list) = if_present(std::fs::read_dir(&folder))? else {
            continue;
        };
        for entry in list {
            let entry = entry?;
            entries += 1;
            if entries > ENTRIES_MAX {
                return Err(io::Error::from_raw_os_error(nix::libc::E2BIG));
            }
            let Some(metadata) = if_present(entry.metadata())? else {
                continue;
            };
            let kind = metadata.file_type();
            let takes_commands = kind.is_char_device() && majors.contains(&major(metadata.rdev()));
            if kind.is_block_device() || takes_commands {
                nodes.push(entry.path());
            } else if kind.is_dir() && metadata.dev() == file_system {
                folders.push(entry.path());
            }
        }
    }
    Ok(nodes)
}

/// `None` for a missing file: a device may leave at any time.
fn if_present<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the major numbers of character devices for disks from `/proc/devices`.
fn read_majors(devices: &str) -> Vec<u64> {
    let number = |line: &str| {
        let (number, driver) = line.trim().split_once(' ')?;
        let is_wanted = COMMANDS.contains(&driver);
        number.parse().ok().filter(|_| is_wanted)
    };
    devices
        .lines()
        .skip_while(|line| *line != "Character devices:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(number)
        .collect()
}

/// Covers a path with a file. A path that has left needs no cover.
fn cover(path: &Path, file: &Path) -> io::Result<bool> {
    let bound = mount(
        Some(file),
        path,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    );
    Ok(if_present(bound.map_err(io::Error::from))?.is_some())
}

fn hide(node: &Path) -> io::Result<()> {
    if !cover(node, node)? {
        return Ok(());
    }
    let flags = MsFlags::MS_BIND
        | MsFlags::MS_REMOUNT
        | MsFlags::MS_NODEV
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NOEXEC
        | MsFlags::MS_RDONLY;
    Ok(mount(
        None::<&str>,
        node,
        None::<&str>,
        flags,
        None::<&str>,
    )?)
}

fn make_read_only(nodes: &[PathBuf]) -> io::Result<()> {
    if nodes.is_empty() {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), STAGE, Some("tmpfs"), flags, Some("mode=700"))?;
    for (number, node) in nodes.iter().enumerate() {
        let Some(metadata) = if_present(node.metadata())? else {
            continue;
        };
        let shown = Path::new(STAGE).join(number.to_string());
        mknod(&shown, SFlag::S_IFBLK, Mode::empty(), metadata.rdev())?;
        std::fs::set_permissions(&shown, std::fs::Permissions::from_mode(0o444))?;
        chown(&shown, Some(NOBODY), Some(NOBODY))?;
        cover(node, &shown)?;
    }
    Ok(umount2(STAGE, MntFlags::MNT_DETACH)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_with_commands_for_disks_are_known_by_their_driver() {
        let text = "Character devices:\n  1 mem\n 21 sg\n238 nvme-generic\n239 nvme\n195 nvidia\n\n\
                    Block devices:\n  8 sg\n259 blkext\n";
        assert_eq!(read_majors(text), [21, 238, 239]);
        assert!(read_majors("").is_empty());
    }

    #[test]
    fn only_nodes_of_disks_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("a")).expect("a folder");
        std::fs::write(folder.path().join("a/file"), "").expect("a file");
        std::os::unix::fs::symlink("/dev/null", folder.path().join("link")).expect("a link");
        let found = find_nodes(folder.path(), &[1]).expect("a list");
        assert_eq!(found, Vec::<PathBuf>::new());
        // The memory devices have the major number 1, and are no disks.
        let devices = find_nodes(Path::new(DEVICES), &[]).expect("a list");
        assert!(!devices.contains(&PathBuf::from("/dev/null")));
        let devices = find_nodes(Path::new(DEVICES), &[1]).expect("a list");
        assert!(devices.contains(&PathBuf::from("/dev/null")));
    }
}
