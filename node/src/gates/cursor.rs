//! Where the last look at the kernel's log ended, for each suite that looks: so that what was told is not told again, and nothing between two looks is
//! lost. A look is kept once its verdict has reached whoever it is for; until then the next one begins where this one did.
//!
//! The place is the sequence number that the kernel gave the next record, in the boot that it numbered it in. A place that cannot be read is none: the
//! next look begins with the boot, and may tell again what was told.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode};
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

use crate::converge::machine::Machine;
use crate::failure::{fatal, io};
use crate::files;

const FOLDER: &str = "/var/lib/muster/kernel-log";
const PLACE_MAX: u64 = 4096;
/// Suites of a node that look; the oldest place goes when there are more.
const PLACES_MAX: usize = 32;
/// Read in one look, in bytes: what `log_buf_len=8M` holds, with what stands before and behind each record. What is over it is for the next look.
const READ_MAX: usize = 16 << 20;
/// One read gives one record (Documentation/ABI/testing/dev-kmsg): none is longer.
const RECORD_MAX: usize = 16 << 10;

/// A place in the log, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    boot: String,
    /// The first record that was not read yet.
    next: u64,
}

/// What a look began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    LastLook,
    FirstLook,
    /// The machine was booted since: what was said at the end of the boot before is not known.
    Boot,
    /// Records were overwritten before they were read.
    Overwritten,
    /// More was said than one look reads; the next one goes on.
    CutShort,
}

impl Since {
    /// As a gate asks for it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::LastLook => "last look",
            Self::FirstLook => "first look",
            Self::Boot => "boot",
            Self::Overwritten => "overwritten",
            Self::CutShort => "cut short",
        }
    }

    /// Whether everything that was said since is in what was read.
    pub(super) fn is_whole(self) -> bool {
        matches!(self, Self::LastLook | Self::FirstLook | Self::Boot)
    }
}

/// What was said since the last look, and the place it leads to.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) since: Since,
    /// Records as /dev/kmsg gives them, a line each.
    pub(super) text: String,
    pub(super) kept: Kept,
}

/// A place that is kept once the verdict is told.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    place: Place,
}

/// Reads on from the last look of this name.
///
/// # Errors
/// `io` when the log or the boot's id cannot be read.
pub(super) fn look(machine: &Machine, name: &str) -> Result<Look, Failure> {
    const BOOT: &str = "/proc/sys/kernel/random/boot_id";
    let boot = machine
        .read(BOOT, 128)?
        .ok_or_else(|| fatal(FailureCode::Io, format!("there is no {BOOT}")))?;
    let boot = String::from_utf8_lossy(&boot).trim().to_owned();
    // Whatever a suite is called, it makes no path.
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
    // Of a boot that is looked at whole, the beginning may be gone as well; nobody else has looked at it for this suite.
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
    /// Writes the place down, whole or not at all, for root alone.
    ///
    /// # Errors
    /// `io`. The next look then begins where this one did.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        files::write_json(&self.path, 0o600, &self.place)?;
        self.forget_oldest()
    }

    /// Places of suites that nobody runs here any more.
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

/// All records that the kernel still has, and whether there are more than are read.
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
            // Overwritten before it was read: the numbers tell.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((bytes, false)),
            Err(error) => return Err(io(LOG)(error)),
        }
    }
    // A record that was cut is one that was not read.
    bytes.truncate(
        bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1),
    );
    Ok((bytes, true))
}

/// `6,339,5140900,-;message`: its number. What follows a record, and is indented, is its properties.
fn sequence(line: &str) -> Option<u64> {
    let (head, _) = line.split_once(';')?;
    head.split(',')
        .nth(1)?
        .parse()
        .ok()
        .filter(|_| line.starts_with(|c: char| c.is_ascii_digit()))
}
