//! Errors of files and addresses, mostly at the start of a program: the user and the remedy.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// Returns the user and the remedy for a failure caused by an I/O error. The message of the failure
/// names the file or the address.
pub(crate) fn advice(error: &anyhow::Error) -> Option<String> {
    let mut causes = error.chain();
    remedy(causes.find_map(|cause| cause.downcast_ref::<io::Error>())?)
}

fn remedy(cause: &io::Error) -> Option<String> {
    Some(match cause.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "The program runs as user {}. Give the user access, or choose another path or port.",
            user()
        ),
        io::ErrorKind::AddrInUse => {
            "Another program uses the address. `muster doctor` names the program.".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            "No interface of this host has the address. `ip address` lists the addresses."
                .to_owned()
        }
        io::ErrorKind::NotFound => "Create the file, or correct its path.".to_owned(),
        io::ErrorKind::IsADirectory => {
            "The path is a directory. Choose the path of a file.".to_owned()
        }
        io::ErrorKind::NotADirectory => {
            "A part of the path is a file. Choose another path.".to_owned()
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "Free space on the disk, or choose another path.".to_owned()
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "The file system is read-only. Choose another path.".to_owned()
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

    use super::*;

    #[test]
    fn an_error_of_a_file_has_user_and_remedy() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = Err::<(), _>(denied).context("read /etc/muster/master.key");
        let text = advice(&error.unwrap_err()).unwrap();
        assert!(
            text.contains(&format!("runs as user {}.", user())),
            "{text}"
        );
    }

    #[test]
    fn other_errors_have_no_advice() {
        assert_eq!(advice(&anyhow::anyhow!("no role")), None);
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
