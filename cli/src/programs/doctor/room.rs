//! Free space on the disks of blobs and of Postgres.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::{Found, Host, Part};

const GIB: u64 = 1 << 30;

pub(super) fn check(host: &Host) -> Vec<Found> {
    let places = [
        (Part::Server, &host.args.data_dir),
        (Part::Agent, &host.args.agent_data_dir),
    ];
    places
        .into_iter()
        .filter(|(part, _)| host.is(*part))
        .map(|(_, path)| look(path))
        .collect()
}

fn look(path: &Path) -> Found {
    // Before the first start, the parent of the directory is checked.
    let there = path
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .unwrap_or(Path::new("/"));
    match statvfs(there) {
        Ok(disk) => verdict(
            path,
            disk.fragment_size() * disk.blocks_available(),
            disk.fragment_size() * disk.blocks(),
            disk.files_available(),
        ),
        Err(error) => Found::unknown(format!("{}: {error}", there.display()), "look with `df`"),
    }
}

fn verdict(path: &Path, free: u64, size: u64, files: u64) -> Found {
    let shown = path.display();
    let todo = "free some, or put the data directory on a larger disk: an image is some GiB, and an agent keeps those of its site";
    match free {
        _ if files < 1000 => {
            Found::fail(format!("the disk of {shown} has {files} inodes left"), todo)
        }
        0..GIB => Found::fail(
            format!("the disk of {shown} has {} MiB left", free >> 20),
            todo,
        ),
        _ if free < 10 * GIB || free < size / 20 => Found::warn(
            format!("the disk of {shown} has {} GiB left", free / GIB),
            todo,
        ),
        _ => Found::ok(format!("the disk of {shown} has {} GiB left", free / GIB)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_full_disk_is_told_before_it_is_full() {
        let of = |free, size, files| verdict(Path::new("/x"), free, size, files).0;
        assert_eq!(of(500 << 20, 100 * GIB, 1 << 20), Verdict::Fail);
        assert_eq!(of(50 * GIB, 100 * GIB, 10), Verdict::Fail);
        assert_eq!(of(5 * GIB, 20 * GIB, 1 << 20), Verdict::Warn);
        assert_eq!(of(40 * GIB, 1000 * GIB, 1 << 20), Verdict::Warn);
        assert_eq!(of(50 * GIB, 100 * GIB, 1 << 20), Verdict::Ok);
    }
}
