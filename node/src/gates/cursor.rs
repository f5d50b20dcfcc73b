//! The end of the last reading of the kernel's log, per suite. Records are therefore reported once,
//! and no record between two readings is
//! lost. A place is stored after the verdict has reached its reader; before that, the next reading
//! begins at the previous place.
//!
//! A place is the sequence number of the next record, with the id of the boot. After an unreadable
//! place, the
//! next reading begins with the boot and may repeat records.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode};
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

use crate::failure::{fatal, io};
use crate::files;
use crate::machine::Machine;

const FOLDER: &str = "/var/lib/muster/kernel-log";
const PLACE_MAX: u64 = 4096;
/// Maximum number of suites with a place; the oldest place is removed first.
const PLACES_MAX: usize = 32;
/// Bytes per reading: the content of `log_buf_len=8M` with the prefix and the properties of each
/// record. The next reading continues after the limit.
const READ_MAX: usize = 16 << 20;
/// A read returns a single record (Documentation/ABI/testing/dev-kmsg), never longer than this.
const RECORD_MAX: usize = 16 << 10;

/// A place in the log, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    boot: String,
    /// The first unread record.
    next: u64,
}

/// The situation at the start of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    LastLook,
    FirstLook,
    /// The machine rebooted since; the end of the previous boot is unknown.
    Boot,
    /// Records were overwritten before the reading.
    Overwritten,
    /// The log exceeds a reading; the next reading continues.
    CutShort,
}

impl Since {
    /// The form for gates.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::LastLook => "last look",
            Self::FirstLook => "first look",
            Self::Boot => "boot",
            Self::Overwritten => "overwritten",
            Self::CutShort => "cut short",
        }
    }

    /// Returns whether the reading has all records since the last place.
    pub(super) fn is_whole(self) -> bool {
        matches!(self, Self::LastLook | Self::FirstLook | Self::Boot)
    }
}

/// The records since the last reading, and the next place.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) since: Since,
    /// Records in the form of /dev/kmsg, a line each.
    pub(super) text: String,
    pub(super) kept: Kept,
}

/// A place to be stored after the verdict.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    place: Place,
}

/// Reads from the last place of this suite.
///
/// # Errors
/// `io` when the log or the boot's id is unreadable.
pub(super) fn look(machine: &Machine, name: &str) -> Result<Look, Failure> {
    const BOOT: &str = "/proc/sys/kernel/random/boot_id";
    let boot = machine
        .read(BOOT, 128)?
        .ok_or_else(|| fatal(FailureCode::Io, format!("there is no {BOOT}")))?;
    let boot = String::from_utf8_lossy(&boot).trim().to_owned();
    // The name of a suite never becomes a path.
    let path = machine
        .path(FOLDER)
        .join(format!("{}.json", Digest::of(name.as_bytes()).hex()));
    let last: Option<Place> = files::read_json(&path, PLACE_MAX).ok().flatten();
    let (mut since, from) = match last {
        None => (Since::FirstLook, None),
        Some(last) if last.boot != boot => (Since::Boot, None),
        Some(last) => (Since::LastLook, Some(last.next)),
    };
    let (bytes, cut) = read(machine)?;
    let all = String::from_utf8_lossy(&bytes);
    let numbered = all.lines().filter_map(|line| Some((sequence(line)?, line)));
    let (mut text, mut next, mut expected) = (String::new(), from.unwrap_or(0), from);
    // For the first reading of a boot, the beginning may already be overwritten.
    if since == Since::Boot || since == Since::FirstLook {
        expected = Some(0);
    }
    let mut gap = false;
    for (number, line) in numbered {
        if from.is_some_and(|from| number < from) {
            continue;
        }
        gap |= expected.is_some_and(|expected| number > expected);
        expected = Some(number + 1);
        next = number + 1;
        text.push_str(line);
        text.push('\n');
    }
    if gap {
        since = Since::Overwritten;
    } else if cut {
        since = Since::CutShort;
    }
    Ok(Look {
        since,
        text,
        kept: Kept {
            path,
            place: Place { boot, next },
        },
    })
}

impl Kept {
    /// Stores the place atomically, private to root.
    ///
    /// # Errors
    /// `io`. The next reading then repeats the records.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        files::write_json(&self.path, 0o600, &self.place)?;
        self.forget_oldest()
    }

    /// Removes places of suites no longer run on the node.
    fn forget_oldest(&self) -> Result<(), Failure> {
        let folder = self.path.parent().unwrap_or(&self.path);
        let entries = std::fs::read_dir(folder).map_err(io(folder.display()))?;
        let mut places: Vec<_> = entries
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        places.sort();
        for (_, path) in places.iter().rev().skip(PLACES_MAX) {
            std::fs::remove_file(path).map_err(io(path.display()))?;
        }
        Ok(())
    }
}

/// Reads all records in the kernel's buffer, and returns whether more follow.
fn read(machine: &Machine) -> Result<(Vec<u8>, bool), Failure> {
    const LOG: &str = "/dev/kmsg";
    let flags = OFlag::O_NONBLOCK.bits();
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(machine.path(LOG))
        .map_err(io(LOG))?;
    let (mut bytes, mut record) = (Vec::new(), vec![0; RECORD_MAX]);
    while bytes.len() < READ_MAX {
        match file.read(&mut record) {
            Ok(0) => return Ok((bytes, false)),
            Ok(count) => bytes.extend_from_slice(&record[..count]),
            // Overwritten before the reading, as shown by the numbers.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((bytes, false)),
            Err(error) => return Err(io(LOG)(error)),
        }
    }
    // A truncated record counts as unread.
    bytes.truncate(
        bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1),
    );
    Ok((bytes, true))
}

/// Returns the number of `6,339,5140900,-;message`. Indented lines after a record are properties of
/// the record.
fn sequence(line: &str) -> Option<u64> {
    let (head, _) = line.split_once(';')?;
    head.split(',')
        .nth(1)?
        .parse()
        .ok()
        .filter(|_| line.starts_with(|c: char| c.is_ascii_digit()))
}
