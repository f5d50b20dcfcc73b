//! Finds the disk with a serial: exactly one whole disk, or a failure.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use muster_core::facts::{Disk, DiskTransport};
use muster_core::wire::node::{Failure, FailureCode};
use nix::fcntl::OFlag;

use crate::failure::{fatal, retryable};
use crate::{inventory, paths};

/// A disk about to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Kernel name, valid until the next boot.
    pub name: String,
    pub serial: String,
    /// The device file below /dev.
    pub path: PathBuf,
    pub size: u64,
    pub transport: DiskTransport,
}

/// Returns the disk with the serial.
///
/// # Errors
/// `disk_missing`, or `disk_ambiguous` when two disks report the serial.
pub fn by_serial(serial: &str) -> Result<Target, Failure> {
    choose(inventory::disks::list(), serial)
}

fn choose(disks: Vec<Disk>, serial: &str) -> Result<Target, Failure> {
    let seen: Vec<String> = disks
        .iter()
        .map(|disk| {
            format!(
                "{} {}",
                disk.name,
                disk.serial.as_deref().unwrap_or("(none)")
            )
        })
        .collect();
    let mut fitting = disks
        .into_iter()
        .filter(|disk| !serial.is_empty() && disk.serial.as_deref() == Some(serial));
    match (fitting.next(), fitting.next()) {
        (Some(disk), None) => Ok(Target {
            path: paths::at("/dev").join(&disk.name),
            serial: serial.to_owned(),
            size: disk.size_bytes,
            transport: disk.transport,
            name: disk.name,
        }),
        (Some(one), Some(other)) => {
            let text = format!(
                "{} and {} both have serial {serial:?}",
                one.name, other.name
            );
            Err(fatal(FailureCode::DiskAmbiguous, text))
        }
        (None, _) => Err(fatal(
            FailureCode::DiskMissing,
            format!(
                "no disk has serial {serial:?}; present disks: {}",
                seen.join(", ")
            ),
        )),
    }
}

impl Target {
    /// Opens the whole disk for writing. The kernel refuses (`O_EXCL` on a block device) while the
    /// disk or its partition is mounted, used as swap, or part of an array.
    ///
    /// # Errors
    /// `disk_in_use`, `io`.
    pub fn open_exclusively(&self) -> Result<File, Failure> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_EXCL.bits())
            .open(&self.path);
        opened.map_err(|error| match error.kind() {
            std::io::ErrorKind::ResourceBusy => fatal(
                FailureCode::DiskInUse,
                format!(
                    "{} (serial {}) is mounted or otherwise in use",
                    self.name, self.serial
                ),
            ),
            _ => retryable(FailureCode::Io, format!("{}: {error}", self.path.display())),
        })
    }

    /// Checks the disk again: a permit takes minutes, and a person may have replaced the disk
    /// meanwhile.
    ///
    /// # Errors
    /// `disk_missing`, `disk_ambiguous`, `disk_changed`.
    pub fn still_there(&self) -> Result<(), Failure> {
        let now = by_serial(&self.serial)?;
        match now == *self {
            true => Ok(()),
            false => Err(fatal(
                FailureCode::DiskChanged,
                format!(
                    "disk {} was {} before the permit and is {} now",
                    self.serial, self.name, now.name
                ),
            )),
        }
    }

    /// Returns the device file of a partition. Disk names ending in a digit get a `p` before the
    /// number.
    pub fn partition(&self, number: u32) -> PathBuf {
        let separator = if self.name.ends_with(|last: char| last.is_ascii_digit()) {
            "p"
        } else {
            ""
        };
        self.path
            .with_file_name(format!("{}{separator}{number}", self.name))
    }

    /// Returns the device path as text for the tools; kernel names are ASCII.
    pub fn device(&self) -> &str {
        self.path.to_str().unwrap_or_default()
    }

    /// Whether the path is a block device; tests write to plain files.
    pub fn is_block_device(&self) -> bool {
        use std::os::unix::fs::FileTypeExt as _;
        std::fs::metadata(&self.path).is_ok_and(|seen| seen.file_type().is_block_device())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, serial: Option<&str>) -> Disk {
        Disk {
            name: name.into(),
            serial: serial.map(str::to_owned),
            ..Disk::default()
        }
    }

    #[test]
    fn one_serial_is_one_disk_or_none() {
        let disks = vec![
            disk("sda", Some("A")),
            disk("sdb", Some("B")),
            disk("sdc", Some("B")),
            disk("sdd", None),
        ];
        assert_eq!(choose(disks.clone(), "A").unwrap().name, "sda");
        for (serial, code) in [
            ("B", "disk_ambiguous"),
            ("C", "disk_missing"),
            ("", "disk_missing"),
        ] {
            assert_eq!(
                choose(disks.clone(), serial).unwrap_err().code.as_str(),
                code
            );
        }
    }

    #[test]
    fn partitions_are_named_as_the_kernel_does() {
        let target = |name: &str| choose(vec![disk(name, Some("A"))], "A").unwrap();
        assert!(target("nvme0n1").partition(3).ends_with("nvme0n1p3"));
        assert!(target("vda").partition(3).ends_with("vda3"));
    }
}
