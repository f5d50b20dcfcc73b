//! Errors of files and addresses, mostly at the start of a program: the user and the remedy.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// Returns the user and the remedy for a failure caused by an I/O error. The message of the failure
/// names the file or the address.
pub(crate) fn advice(error: &anyhow::Error) -> Option<String> {
    let mut causes = error.chain();
    let cause = causes.find_map(|cause| cause.downcast_ref::<io::Error>())?;
    let remedy = find_remedy(cause.kind())?;
    Some(format!("The program runs as user {}. {remedy}", user()))
}

fn find_remedy(kind: io::ErrorKind) -> Option<&'static str> {
    Some(match kind {
        io::ErrorKind::PermissionDenied => "Give the user access, or choose another path or port.",
        io::ErrorKind::AddrInUse => {
            "Another program uses the address. See `muster doctor`, or choose another address."
        }
        io::ErrorKind::AddrNotAvailable => {
            "No interface of this host has the address. `ip address` lists the addresses."
        }
        io::ErrorKind::NotFound => "Create the file, or correct its path.",
        io::ErrorKind::IsADirectory => "The path is a directory. Choose the path of a file.",
        io::ErrorKind::NotADirectory => "A part of the path is a file. Choose another path.",
        io::ErrorKind::StorageFull => {
            "The disk is full. Free space on the disk, or choose another path."
        }
        io::ErrorKind::QuotaExceeded => {
            "The quota is used up. Raise the quota, free space, or choose another path."
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "The file system is read-only. Mount it for writing, or choose another path."
        }
        _ => return None,
    })
}

/// Returns the name of the user running this program.
fn user() -> String {
    let uid = Uid::effective();
    let found = User::from_uid(uid).ok().flatten();
    found.map_or_else(|| uid.to_string(), |user| user.name)
}

/// Returns the first directory on the way to `dir` that the user cannot enter. Only the mode is
/// checked, with the user's primary group.
pub(crate) fn closed_to(user: &User, dir: &Path) -> Option<PathBuf> {
    let mut way: Vec<&Path> = dir.ancestors().collect();
    way.reverse();
    let closed = way.into_iter().find(|step| {
        std::fs::metadata(step).is_ok_and(|found| {
            let bit = if found.uid() == user.uid.as_raw() {
                0o100
            } else if found.gid() == user.gid.as_raw() {
                0o010
            } else {
                0o001
            };
            found.mode() & bit == 0
        })
    });
    closed.map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use anyhow::Context as _;
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn an_error_of_a_file_or_an_address_has_user_and_remedy() {
        for (cause, remedy) in [
            (Errno::EACCES, "Give the user access"),
            (Errno::EPERM, "Give the user access"),
            (Errno::EADDRINUSE, "choose another address"),
            (Errno::EADDRNOTAVAIL, "`ip address`"),
            (Errno::ENOENT, "Create the file, or correct its path."),
            (Errno::EISDIR, "Choose the path of a file."),
            (Errno::ENOTDIR, "Choose another path."),
            (Errno::ENOSPC, "Free space on the disk"),
            (Errno::EDQUOT, "Raise the quota"),
            (Errno::EROFS, "Mount it for writing"),
        ] {
            let failed = Err::<(), _>(io::Error::from(cause)).context("open /etc/muster/key");
            let text = advice(&failed.unwrap_err()).unwrap();
            let named = format!("runs as user {}.", user());
            assert!(text.contains(&named), "{cause}: {text}");
            assert!(text.contains(remedy), "{cause}: {text}");
        }
    }

    #[test]
    fn other_errors_have_no_advice() {
        assert_eq!(advice(&anyhow::anyhow!("no role")), None);
        // The message of invalid content has its own remedy.
        let invalid = io::Error::new(io::ErrorKind::InvalidData, "chmod 600 the file");
        assert_eq!(advice(&invalid.into()), None);
    }

    #[test]
    fn the_first_closed_directory_is_found() {
        let root = tempfile::tempdir().unwrap();
        let (shut, deep) = (root.path().join("shut"), root.path().join("shut/deep"));
        std::fs::create_dir_all(&deep).unwrap();
        for open in [root.path(), &deep] {
            std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut stranger = User::from_uid(Uid::effective()).unwrap().unwrap();
        (stranger.uid, stranger.gid) = (Uid::from_raw(54_321), nix::unistd::Gid::from_raw(54_321));
        assert_eq!(closed_to(&stranger, &deep), Some(shut.clone()));
        std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o711)).unwrap();
        assert_eq!(closed_to(&stranger, &deep), None);
    }
}
