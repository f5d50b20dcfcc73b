//! The owner of a rack's directory, and the cleanup after a killed owner.
//!
//! The record is written before the named resources exist. A run killed at any instant therefore
//! leaves a record of its resources.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{LabError, io};
use crate::files::write_atomically;
use crate::netns::Netns;

/// File name of the record in the rack's directory.
const FILE: &str = "lease.json";

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    owner_pid: u32,
    /// Clock ticks from boot to the start of the owner. Together with the pid, the value identifies
    /// a process until the next reboot of the host.
    owner_start: u64,
    netns: Netns,
}

/// The result of a cleanup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// The namespace of the previous run.
    pub netns: Option<String>,
    /// Number of processes still running in the namespace.
    pub processes: usize,
}

/// Takes the directory for the current process. Resources left by a dead owner are removed first.
pub(crate) fn take(dir: &Path) -> Result<Netns, LabError> {
    let what = format!("make {}", dir.display());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(io(what))?;
    clean(dir)?;
    let netns = Netns::new();
    let owner_pid = std::process::id();
    let owner_start =
        start_time(owner_pid).ok_or_else(|| LabError::Unknown("/proc/self/stat".to_owned()))?;
    write_atomically(
        &dir.join(FILE),
        &Record {
            owner_pid,
            owner_start,
            netns: netns.clone(),
        },
    )?;
    Ok(netns)
}

/// Removes the resources of a rack from the system: its processes, its namespace with bridge and
/// taps, and the record. Disks, firmware variables and logs stay in the directory. Refuses a rack
/// with a living owner, unless the owner is the current process.
pub fn clean(dir: &Path) -> Result<Cleaned, LabError> {
    let path = dir.join(FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Cleaned::default()),
        Err(error) => return Err(io(format!("read {}", path.display()))(error)),
    };
    let broken = |error| LabError::Plan(format!("{} is not a lease: {error}", path.display()));
    let record: Record = serde_json::from_slice(&text).map_err(broken)?;
    let alive = start_time(record.owner_pid) == Some(record.owner_start);
    if alive && record.owner_pid != std::process::id() {
        return Err(LabError::Plan(format!(
            "{} is in use by process {}",
            dir.display(),
            record.owner_pid
        )));
    }
    let processes = record.netns.destroy()?;
    fs::remove_file(&path).map_err(io(format!("remove {}", path.display())))?;
    Ok(Cleaned {
        netns: Some(record.netns.name().to_owned()),
        processes,
    })
}

/// Returns the start time of a process, or `None` for a missing process or a zombie. The value is
/// field 22 of `/proc/PID/stat`. Fields are counted after the closing parenthesis of the command,
/// because the command may contain spaces (proc(5)).
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18))??.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_start_time_and_a_made_up_one_has_not() {
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(start_time(u32::MAX), None);
    }

    #[test]
    fn a_directory_without_a_lease_is_clean() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(clean(dir.path()).unwrap(), Cleaned::default());
    }

    #[test]
    fn a_rack_whose_owner_lives_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let owner_pid = std::os::unix::process::parent_id();
        let owner_start = start_time(owner_pid).unwrap();
        write_atomically(
            &dir.path().join(FILE),
            &Record {
                owner_pid,
                owner_start,
                netns: Netns::new(),
            },
        )
        .unwrap();
        assert!(
            clean(dir.path())
                .unwrap_err()
                .to_string()
                .contains("in use")
        );
    }
}
