//! Unfinished work for changes already made. The file is written before the first change and
//! removed after the last step. A run killed between a file and its restart is finished by the next
//! run.

use std::collections::BTreeSet;

use muster_core::wire::node::Failure;
use serde::{Deserialize, Serialize};

use super::{kernel_facts, managed};
use crate::failure::io;
use crate::files;
use crate::machine::Machine;

const PATH: &str = "/var/lib/muster/converge.json";
const MAX: u64 = 1 << 20;

/// The unfinished work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Pending {
    /// Changing packages: their units must restart.
    pub packages: BTreeSet<String>,
    /// Changing paths: units reading the paths must restart.
    pub paths: BTreeSet<String>,
    /// Units whose start for these changes has begun. A start longer than a run is awaited by the
    /// next run, instead of begun again.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub begun: BTreeSet<String>,
}

impl Pending {
    /// Loads the unfinished work of an earlier run; empty when the file is absent.
    ///
    /// # Errors
    /// `io`, or `malformed`.
    pub(super) fn load(machine: &Machine) -> Result<Self, Failure> {
        Ok(files::read_json(&machine.path(PATH), MAX)?.unwrap_or_default())
    }

    /// Whether no work is left.
    pub(super) fn is_empty(&self) -> bool {
        self.packages.is_empty() && self.paths.is_empty()
    }

    /// Drops the paths of boot files: the files are written, although the reboot may still be due.
    pub(super) fn without_boot_files(mut self) -> Self {
        self.paths
            .retain(|path| path != managed::GRUB && !path.starts_with(kernel_facts::MODPROBE));
        self
    }

    /// # Errors
    /// `io`.
    pub(super) fn store(&self, machine: &Machine) -> Result<(), Failure> {
        files::write_json(&machine.path(PATH), 0o600, self)
    }

    /// # Errors
    /// `io`.
    pub(super) fn clear(machine: &Machine) -> Result<(), Failure> {
        match std::fs::remove_file(machine.path(PATH)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(PATH)(error)),
            _ => Ok(()),
        }
    }
}
