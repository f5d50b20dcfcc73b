//! What converge brought onto this node: what was not there before a lock brought it leaves with it. What the image had, or a person installed, is
//! not in the record and stays.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::stacks::{ConvergePlan, MANAGED};
use muster_core::values::Digest;
use muster_core::wire::node::Failure;
use serde::{Deserialize, Serialize};

use super::dpkg::{self, Database};
use super::file::Target;
use super::item::Item;
use super::kernel;
use super::machine::Machine;
use crate::files;

const PATH: &str = "/var/lib/muster/record.json";
const MAX: u64 = 16 << 20;

/// The record. Members that a newer version adds are not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    version: u32,
    /// Names that were not installed when a lock brought them.
    packages: BTreeSet<String>,
    /// Files that were not there before a stack put them there, with the SHA-256 of what it wrote.
    files: BTreeMap<String, String>,
}

/// Files of former stacks that the plan does not have.
#[derive(Default)]
pub(super) struct LeavingFiles {
    /// Still what was written: they go.
    pub go: Vec<Target>,
    /// Somebody changed them, or a package has them by now: they stay, and are told.
    pub stay: Vec<Item>,
}

impl Record {
    /// As it was left; empty on a node that no version with a record has converged yet.
    ///
    /// # Errors
    /// `io`, or `malformed`.
    pub(super) fn load(machine: &Machine) -> Result<Self, Failure> {
        Ok(files::read_json(&machine.path(PATH), MAX)?.unwrap_or_default())
    }

    /// # Errors
    /// `io`.
    fn store(&mut self, machine: &Machine) -> Result<(), Failure> {
        self.version = 1;
        files::write_json(&machine.path(PATH), 0o600, self)
    }

    /// Before a transaction: the packages that it brings anew. A run that is killed in it leaves names of what is perhaps not there, which is no harm.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn bring(&mut self, machine: &Machine, names: impl Iterator<Item = String>) -> Result<(), Failure> {
        let before = self.packages.len();
        self.packages.extend(names);
        if self.packages.len() == before { Ok(()) } else { self.store(machine) }
    }

    /// After it: the packages that are gone.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn forget(&mut self, machine: &Machine, names: &[String]) -> Result<(), Failure> {
        let before = self.packages.len();
        self.packages.retain(|name| !names.contains(name));
        if self.packages.len() == before { Ok(()) } else { self.store(machine) }
    }

    /// Packages that a former lock brought and this plan does not have. Never what the system cannot do without, and not those of the kernel that
    /// runs: they go with the converge after the boot of another one.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn leaving(
        &self,
        machine: &Machine,
        database: &Database,
        plan: &ConvergePlan,
    ) -> Result<Vec<String>, Failure> {
        let running = kernel::running_release(machine)?;
        let runs = |name: &str| running.as_ref().is_some_and(|release| name.contains(release.as_str()));
        let stays = |name: &String| {
            let planned = plan.packages.iter().any(|package| package.name == *name) || plan.absent.contains(name);
            planned || !database.has(name) || database.is_essential(name) || runs(name)
        };
        Ok(self.packages.iter().filter(|name| !stays(name)).cloned().collect())
    }

    /// Before a file of the plan is written. One that was there before any stack wrote it is not ours to remove.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn write(&mut self, machine: &Machine, target: &Target) -> Result<(), Failure> {
        let Some(content) = &target.content else { return Ok(()) };
        let ours = self.files.contains_key(&target.path) || machine.path(&target.path).symlink_metadata().is_err();
        if !ours {
            return Ok(());
        }
        let digest = Digest::of(content).hex();
        let former = self.files.insert(target.path.clone(), digest.clone());
        if former.as_ref() == Some(&digest) { Ok(()) } else { self.store(machine) }
    }

    /// After one that left is removed.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn removed(&mut self, machine: &Machine, path: &str) -> Result<(), Failure> {
        if self.files.remove(path).is_some() { self.store(machine) } else { Ok(()) }
    }

    /// What of former stacks the plan does not have, and is there.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn leaving_files(&self, machine: &Machine, plan: &ConvergePlan) -> Result<LeavingFiles, Failure> {
        let mut leaving = LeavingFiles::default();
        for (path, digest) in &self.files {
            let planned = plan.files.iter().any(|file| file.path == *path) || MANAGED.contains(&path.as_str());
            if planned || machine.path(path).symlink_metadata().is_err() {
                continue;
            }
            let why = match is_as_written(machine, path, digest) {
                false => "left: it was changed since a stack wrote it",
                true if dpkg::owns(machine, path) => "left: a package has it",
                true => {
                    leaving.go.push(Target::ours(path, None::<Vec<u8>>));
                    continue;
                }
            };
            leaving.stay.push(Item::new(format!("file {path}"), why, Some(why.to_owned())));
        }
        Ok(leaving)
    }
}

fn is_as_written(machine: &Machine, path: &str, digest: &str) -> bool {
    let regular = machine.path(path).symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    regular && machine.read(path, MAX).ok().flatten().is_some_and(|bytes| Digest::of(&bytes).hex() == digest)
}
