//! What converge brought onto this node: what was not there before a lock brought it leaves with it. What the image had, or a person installed, is
//! not in the record and stays.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::stacks::{ConvergePlan, LockedPackage, MANAGED};
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
    /// Those of them that were no secret. What a version without this list wrote may have been one.
    plain: BTreeSet<String>,
    /// SHA-256 of the archives that dpkg was given last: one that was cut in them is given them again.
    given: BTreeSet<String>,
}

/// Packages of former locks that the plan does not have.
#[derive(Default)]
pub(super) struct LeavingPackages {
    pub go: BTreeSet<String>,
    /// Those that stay, and by whom they are needed.
    pub needed: BTreeMap<String, String>,
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

    /// Before a transaction: the packages that it brings anew, and the archives it installs. A run that is killed in it leaves names of what is perhaps
    /// not there, until [`Self::prune`].
    ///
    /// # Errors
    /// `io`.
    pub(super) fn bring(
        &mut self,
        machine: &Machine,
        database: &Database,
        incoming: &[&LockedPackage],
    ) -> Result<(), Failure> {
        let before = self.clone();
        let anew = incoming.iter().filter(|package| !database.has(&package.name));
        self.packages.extend(anew.map(|package| package.name.clone()));
        self.given = incoming.iter().map(|package| package.sha256.hex()).collect();
        if *self == before { Ok(()) } else { self.store(machine) }
    }

    /// Whether the last transaction installed this archive.
    pub(super) fn was_given(&self, archive: &Digest) -> bool {
        self.given.contains(&archive.hex())
    }

    /// Forgets packages that are gone, whoever removed them: of that name a person may install one.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn prune(&mut self, machine: &Machine, database: &Database, plan: &ConvergePlan) -> Result<(), Failure> {
        let before = self.packages.len();
        self.packages.retain(|name| database.has(name) || plan.packages.iter().any(|package| package.name == *name));
        if self.packages.len() == before { Ok(()) } else { self.store(machine) }
    }

    /// Packages that a former lock brought and this plan does not have. Never what the system, or a package that stays, cannot do without, and not
    /// what the running kernel runs and boots by: that goes with the converge after the boot of another one.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn leaving(
        &self,
        machine: &Machine,
        database: &Database,
        plan: &ConvergePlan,
    ) -> Result<LeavingPackages, Failure> {
        let running = kernel::running_release(machine)?;
        // Its headers and tools go with what they share with those of other kernels.
        let boots = |name: &str| name.starts_with("linux-image-") || name.starts_with("linux-modules");
        let runs = |name: &str| {
            let is_of = running.as_ref().is_some_and(|release| name.contains(release.as_str()));
            is_of && (boots(name) || !name.starts_with("linux-"))
        };
        let stays = |name: &String| {
            let planned = plan.packages.iter().any(|package| package.name == *name) || plan.absent.contains(name);
            planned || !database.has(name) || database.is_essential(name) || runs(name)
        };
        Ok(LeavingPackages::of(self.packages.iter().filter(|name| !stays(name)).cloned().collect(), database, plan))
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
        let before = self.clone();
        self.files.insert(target.path.clone(), Digest::of(content).hex());
        match target.secret {
            true => self.plain.remove(&target.path),
            false => self.plain.insert(target.path.clone()),
        };
        if *self == before { Ok(()) } else { self.store(machine) }
    }

    /// The SHA-256 of what a stack wrote there, unless it was a secret.
    pub(super) fn wrote_openly(&self, path: &str) -> Option<String> {
        self.files.get(path).filter(|_| self.plain.contains(path)).cloned()
    }

    /// After one that left is removed.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn removed(&mut self, machine: &Machine, path: &str) -> Result<(), Failure> {
        self.plain.remove(path);
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
                    // The stack that could say whether it was secret is gone.
                    leaving.go.push(Target { secret: true, ..Target::ours(path, None::<Vec<u8>>) });
                    continue;
                }
            };
            leaving.stay.push(Item::new(format!("file {path}"), why, Some(why.to_owned())));
        }
        Ok(leaving)
    }
}

impl LeavingPackages {
    /// Of those that may go, the ones that nothing needs which stays, by dpkg's record. What a package of the plan will need in its own version the lock
    /// knows; what it will provide nobody does, so that apt may yet remove one that is kept here.
    fn of(mut go: BTreeSet<String>, database: &Database, plan: &ConvergePlan) -> Self {
        let planned = |name: &str| plan.packages.iter().find(|package| package.name == name);
        let stays = |name: &str, package: &dpkg::Package| {
            !go.contains(name)
                && !plan.absent.iter().any(|absent| absent == name)
                && planned(name).is_none_or(|planned| planned.version == package.version)
        };
        let there = database.names().flat_map(|name| database.there(name).map(move |package| (name, package)));
        let mut asking: Vec<(&str, &dpkg::Package)> = there.filter(|(name, package)| stays(name, package)).collect();
        let names = |(name, package): &(&str, &dpkg::Package)| -> Vec<String> {
            std::iter::once((*name).to_owned()).chain(package.provides.iter().cloned()).collect()
        };
        let mut present: BTreeSet<String> = plan.packages.iter().map(|package| package.name.clone()).collect();
        present.extend(asking.iter().flat_map(names));
        let mut needed = BTreeMap::new();
        while let Some((by, package)) = asking.pop() {
            for clause in &package.needs {
                if clause.iter().any(|name| present.contains(name)) {
                    continue;
                }
                // What neither stays nor leaves is apt's to judge.
                let kept = database.names().find(|name| go.contains(*name) && answers(database, name, clause));
                let Some(kept) = kept else { continue };
                let packages = database.there(kept).map(|package| (kept, package));
                present.extend(packages.clone().flat_map(|package| names(&package)));
                asking.extend(packages);
                go.remove(kept);
                needed.insert(kept.to_owned(), by.to_owned());
            }
        }
        Self { go, needed }
    }

    /// What is told of those that stay.
    pub(super) fn items(&self) -> impl Iterator<Item = Item> {
        self.needed.iter().map(|(name, by)| {
            let why = format!("left: {by} needs it");
            Item::new(format!("package {name}"), &why, Some(why.clone()))
        })
    }
}

/// Whether a package that is there is, or provides, one of these names.
fn answers(database: &Database, name: &str, clause: &[String]) -> bool {
    let provides = || database.there(name).flat_map(|package| &package.provides);
    clause.iter().any(|wanted| wanted == name || provides().any(|provided| provided == wanted))
}

fn is_as_written(machine: &Machine, path: &str, digest: &str) -> bool {
    let regular = machine.path(path).symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    regular && machine.read(path, MAX).ok().flatten().is_some_and(|bytes| Digest::of(&bytes).hex() == digest)
}
