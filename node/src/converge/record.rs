//! What converge brought onto this node: what was not there before a lock brought it leaves with it. What the image had, or a person installed, is
//! not in the record and stays.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;

use muster_core::stacks::{ConvergePlan, LockedPackage, MANAGED};
use muster_core::values::Digest;
use muster_core::wire::node::Failure;
use serde::{Deserialize, Serialize};

use super::dpkg::{self, Database};
use super::file::{GROUPS, Target, USERS};
use super::item::Item;
use super::kernel_facts;
use crate::failure::io;
use crate::files;
use crate::machine::Machine;

const PATH: &str = "/var/lib/muster/record.json";
const MAX: u64 = 16 << 20;
/// The version that keeps what was there before.
const KEEPS: u32 = 2;
/// What stacks wrote over, each under the digest of its path.
const FORMER: &str = "/var/lib/muster/former/";

/// The record. Members that a newer version adds are not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    version: u32,
    /// Names that were not installed when a lock brought them.
    packages: BTreeSet<String>,
    /// Files that were not there before a stack put them there, with the SHA-256 of what it wrote.
    files: BTreeMap<String, String>,
    /// Files that were there before a stack wrote them.
    over: BTreeMap<String, Over>,
    /// Files of both kinds that were written with no secret in them. What a version without this list wrote may have been one.
    plain: BTreeSet<String>,
    /// SHA-256 of the archives that dpkg was given last: one that was cut in them is given them again.
    given: BTreeSet<String>,
}

/// What a stack wrote over a file that was there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Over {
    /// SHA-256 of what it wrote.
    wrote: String,
    /// Nothing where it was no file that can be kept, or was written over by a version that kept none.
    former: Option<Former>,
}

/// How a file was; its content lies in [`FORMER`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Former {
    mode: u32,
    owner: String,
    group: String,
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
    /// Still what was written: they go, or are again what they were before.
    pub go: Vec<Target>,
    /// Somebody changed them, or a package has them by now, or nobody knows what was there: they stay, and are told.
    pub stay: Vec<Item>,
    /// The packages of what is put back: their units read it anew.
    pub owners: BTreeSet<String>,
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
        // One of a version that kept nothing stays that until [`Self::begin_keeping`].
        if self.version == 0 {
            self.version = KEEPS;
        }
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
        let anew = incoming
            .iter()
            .filter(|package| !database.has(&package.name));
        self.packages
            .extend(anew.map(|package| package.name.clone()));
        self.given = incoming
            .iter()
            .map(|package| package.sha256.hex())
            .collect();
        if *self == before {
            Ok(())
        } else {
            self.store(machine)
        }
    }

    /// Whether the last transaction installed this archive.
    pub(super) fn was_given(&self, archive: &Digest) -> bool {
        self.given.contains(&archive.hex())
    }

    /// Forgets packages that are gone, whoever removed them: of that name a person may install one. So it does files that a package took along.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn prune(
        &mut self,
        machine: &Machine,
        database: &Database,
        plan: &ConvergePlan,
    ) -> Result<(), Failure> {
        let before = self.clone();
        self.packages.retain(|name| {
            database.has(name) || plan.packages.iter().any(|package| package.name == *name)
        });
        self.over.retain(|path, _| {
            is_planned(plan, path) || machine.path(path).symlink_metadata().is_ok()
        });
        if *self == before {
            return Ok(());
        }
        self.store(machine)?;
        before
            .over
            .keys()
            .filter(|path| !self.over.contains_key(*path))
            .try_for_each(|path| forget(machine, path))
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
        let running = kernel_facts::running_release(machine)?;
        // Its headers and tools go with what they share with those of other kernels.
        let boots =
            |name: &str| name.starts_with("linux-image-") || name.starts_with("linux-modules");
        let runs = |name: &str| {
            let is_of = running
                .as_ref()
                .is_some_and(|release| name.contains(release.as_str()));
            is_of && (boots(name) || !name.starts_with("linux-"))
        };
        let stays = |name: &String| {
            let planned = plan.packages.iter().any(|package| package.name == *name)
                || plan.absent.contains(name);
            planned || !database.has(name) || database.is_essential(name) || runs(name)
        };
        Ok(LeavingPackages::of(
            self.packages
                .iter()
                .filter(|name| !stays(name))
                .cloned()
                .collect(),
            database,
            plan,
        ))
    }

    /// Before files are written for the first time by a version that keeps what was there: of what the plan has, and the record has not, a version of
    /// before may have written any.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn begin_keeping(
        &mut self,
        machine: &Machine,
        plan: &ConvergePlan,
    ) -> Result<(), Failure> {
        if self.version == 0 || self.version >= KEEPS {
            return Ok(());
        }
        for file in plan
            .files
            .iter()
            .filter(|file| !self.files.contains_key(&file.path))
        {
            if let Some(there) = machine.read(&file.path, MAX).ok().flatten() {
                self.over.insert(
                    file.path.clone(),
                    Over {
                        wrote: Digest::of(&there).hex(),
                        former: None,
                    },
                );
            }
        }
        self.version = KEEPS;
        self.store(machine)
    }

    /// Before a file of the plan is written. What was there before any stack wrote it is kept.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn write(&mut self, machine: &Machine, target: &Target) -> Result<(), Failure> {
        let Some(content) = &target.content else {
            return Ok(());
        };
        let (before, path, wrote) = (self.clone(), target.path.clone(), Digest::of(content).hex());
        match self.over.get_mut(&path) {
            Some(over) => over.wrote = wrote,
            None if self.files.contains_key(&path)
                || machine.path(&path).symlink_metadata().is_err() =>
            {
                self.files.insert(path.clone(), wrote);
            }
            None => {
                let former = keep(machine, &path)?;
                self.over.insert(path.clone(), Over { wrote, former });
            }
        }
        match target.secret {
            true => self.plain.remove(&path),
            false => self.plain.insert(path),
        };
        if *self == before {
            Ok(())
        } else {
            self.store(machine)
        }
    }

    /// The SHA-256 of what a stack wrote there, unless it was a secret.
    pub(super) fn wrote_openly(&self, path: &str) -> Option<String> {
        let wrote = self
            .files
            .get(path)
            .or_else(|| self.over.get(path).map(|over| &over.wrote));
        wrote.filter(|_| self.plain.contains(path)).cloned()
    }

    /// After one that left is removed, or is again what it was; whether the record had it.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn left(&mut self, machine: &Machine, path: &str) -> Result<bool, Failure> {
        self.plain.remove(path);
        let had = self.files.remove(path).is_some() | self.over.remove(path).is_some();
        if had {
            self.store(machine)?;
            forget(machine, path)?;
        }
        Ok(had)
    }

    /// What of former stacks the plan does not have, and is there.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn leaving_files(
        &self,
        machine: &Machine,
        plan: &ConvergePlan,
    ) -> Result<LeavingFiles, Failure> {
        let mut leaving = LeavingFiles::default();
        let fresh = self.files.iter().map(|(path, wrote)| (path, wrote, None));
        for (path, wrote, over) in fresh.chain(
            self.over
                .iter()
                .map(|(path, over)| (path, &over.wrote, Some(over))),
        ) {
            if is_planned(plan, path) || machine.path(path).symlink_metadata().is_err() {
                continue;
            }
            // The stack that could say whether it was secret is gone.
            let gone = Target {
                secret: true,
                ..Target::ours(path, None::<Vec<u8>>)
            };
            let why = match over {
                _ if !is_as_written(machine, path, wrote) => {
                    "left: it was changed since a stack wrote it"
                }
                None if dpkg::owns(machine, path) => "left: a package has it",
                None => {
                    leaving.go.push(gone);
                    continue;
                }
                Some(over) => match (&over.former, machine.read(&former_path(path), MAX)?) {
                    (Some(Former { mode, owner, group }), Some(content)) => {
                        let (owner, group) = (owner.clone(), group.clone());
                        leaving.go.push(Target {
                            mode: *mode,
                            owner,
                            group,
                            content: Some(content),
                            ..gone
                        });
                        leaving.owners.extend(dpkg::owner(machine, path));
                        continue;
                    }
                    _ => "left: what was there before a stack wrote it is not known",
                },
            };
            leaving
                .stay
                .push(Item::new(format!("file {path}"), why, Some(why.to_owned())));
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
        let there = database
            .names()
            .flat_map(|name| database.there(name).map(move |package| (name, package)));
        let mut asking: Vec<(&str, &dpkg::Package)> = there
            .filter(|(name, package)| stays(name, package))
            .collect();
        let names = |(name, package): &(&str, &dpkg::Package)| -> Vec<String> {
            std::iter::once((*name).to_owned())
                .chain(package.provides.iter().cloned())
                .collect()
        };
        let mut present: BTreeSet<String> = plan
            .packages
            .iter()
            .map(|package| package.name.clone())
            .collect();
        present.extend(asking.iter().flat_map(names));
        let mut needed = BTreeMap::new();
        while let Some((by, package)) = asking.pop() {
            for clause in &package.needs {
                if clause.iter().any(|name| present.contains(name)) {
                    continue;
                }
                // What neither stays nor leaves is apt's to judge.
                let kept = database
                    .names()
                    .find(|name| go.contains(*name) && answers(database, name, clause));
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

/// Whether it is a file of the plan, or one that is made of it.
fn is_planned(plan: &ConvergePlan, path: &str) -> bool {
    plan.files.iter().any(|file| file.path == path) || MANAGED.contains(&path)
}

fn former_path(path: &str) -> String {
    format!("{FORMER}{}", Digest::of(path.as_bytes()).hex())
}

/// Keeps a file that a stack is about to write over; nothing where it is none, or a long one.
fn keep(machine: &Machine, path: &str) -> Result<Option<Former>, Failure> {
    let metadata = machine.path(path).symlink_metadata().map_err(io(path))?;
    if !metadata.is_file() || metadata.len() > MAX {
        return Ok(None);
    }
    let content = machine.read(path, MAX)?.unwrap_or_default();
    files::write_durably(&machine.path(&former_path(path)), 0o600, &content).map_err(io(FORMER))?;
    let (owner, group) = (
        machine.account_name(USERS, metadata.uid())?,
        machine.account_name(GROUPS, metadata.gid())?,
    );
    Ok(Some(Former {
        mode: metadata.mode() & 0o7777,
        owner,
        group,
    }))
}

fn forget(machine: &Machine, path: &str) -> Result<(), Failure> {
    match std::fs::remove_file(machine.path(&former_path(path))) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(FORMER)(error)),
        _ => Ok(()),
    }
}

/// Whether a package that is there is, or provides, one of these names.
fn answers(database: &Database, name: &str, clause: &[String]) -> bool {
    let provides = || database.there(name).flat_map(|package| &package.provides);
    clause
        .iter()
        .any(|wanted| wanted == name || provides().any(|provided| provided == wanted))
}

fn is_as_written(machine: &Machine, path: &str, digest: &str) -> bool {
    let regular = machine
        .path(path)
        .symlink_metadata()
        .is_ok_and(|metadata| metadata.is_file());
    regular
        && machine
            .read(path, MAX)
            .ok()
            .flatten()
            .is_some_and(|bytes| Digest::of(&bytes).hex() == digest)
}
