//! What must still be done for changes already made. Written before the first change and removed after the last step, so that a run killed
//! between a file and the restart it asks for is finished by the next run.

use std::collections::BTreeSet;

use muster_core::wire::node::Failure;
use serde::{Deserialize, Serialize};

use super::{kernel_facts, managed};
use crate::failure::io;
use crate::files;
use crate::machine::Machine;

const PATH: &str = "/var/lib/muster/converge.json";
const MAX: u64 = 1 << 20;

/// The debts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Pending {
    /// Packages that change: units they own are to be restarted.
    pub packages: BTreeSet<String>,
    /// Paths that change: units that name them are to be restarted.
    pub paths: BTreeSet<String>,
    /// Units whose start for these was begun: one that takes longer than a run is waited for by the next, not begun anew.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub begun: BTreeSet<String>,
}

impl Pending {
    /// What an earlier run left.
    ///
    /// # Errors
    /// `io`, or `malformed`.
    pub(super) fn load(machine: &Machine) -> Result<Self, Failure> {
        Ok(files::read_json(&machine.path(PATH), MAX)?.unwrap_or_default())
    }

    /// Whether nothing is owed.
    pub(super) fn is_empty(&self) -> bool {
        self.packages.is_empty() && self.paths.is_empty()
    }

    /// Without what is done: boot files are written, whether or not the boot has been.
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
