//! Record of the packages and files brought to this node by converge. An item absent before a lock
//! brought the item is removed with the lock. Items of the image or of a person are not recorded
//! and stay.

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
/// The first record version that keeps former file contents.
const KEEPS: u32 = 2;
/// Start of a package with the modules of a driver, built for the kernel in the rest of the name.
const PREBUILT: &str = "linux-modules-nvidia-";
/// Folder of former contents, each named by the digest of its path.
const FORMER: &str = "/var/lib/muster/former/";

/// The record. Members added by a newer version are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    version: u32,
    /// Packages not installed before a lock brought the package.
    packages: BTreeSet<String>,
    /// Files absent before a stack wrote the file, with the SHA-256 of the written content.
    files: BTreeMap<String, String>,
    /// Files present before a stack wrote the file.
    over: BTreeMap<String, Over>,
    /// Files of both kinds last written without a secret. Files written by a version without this
    /// list may have been secrets.
    plain: BTreeSet<String>,
    /// SHA-256 of the archives last passed to dpkg. A package interrupted while unpacking receives
    /// the same archive again.
    given: BTreeSet<String>,
}

/// A file that a stack wrote over an existing file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Over {
    /// SHA-256 of the content written by the stack.
    wrote: String,
    /// `None` when the former file could not be kept, or was overwritten by a version without
    /// keeping.
    former: Option<Former>,
}

/// Mode and owner of a former file; the content is in [`FORMER`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Former {
    mode: u32,
    owner: String,
    group: String,
}

/// Packages of former locks missing from the plan.
#[derive(Default)]
pub(super) struct LeavingPackages {
    pub go: BTreeSet<String>,
    /// Packages that stay, each with the package depending on it.
    pub needed: BTreeMap<String, String>,
}

/// Files of former stacks missing from the plan.
#[derive(Default)]
pub(super) struct LeavingFiles {
    /// Files with the content written by the stack: removed, or restored to the former content.
    pub go: Vec<Target>,
    /// Files changed by a person, owned by a package, or with an unknown former content. These
    /// files stay and are reported.
    pub stay: Vec<Item>,
    /// Packages owning the restored files: their units restart.
    pub owners: BTreeSet<String>,
}

impl Record {
    /// Loads the record; empty on a node never converged by a version with a record.
    ///
    /// # Errors
    /// `io`, or `malformed`.
    pub(super) fn load(machine: &Machine) -> Result<Self, Failure> {
        Ok(files::read_json(&machine.path(PATH), MAX)?.unwrap_or_default())
    }

    /// # Errors
    /// `io`.
    fn store(&mut self, machine: &Machine) -> Result<(), Failure> {
        // A record of a version without keeping stays at that version until
        // [`Self::begin_keeping`].
        if self.version == 0 {
            self.version = KEEPS;
        }
        files::write_json(&machine.path(PATH), 0o600, self)
    }

    /// Records, before a transaction, the newly installed packages and the archives. A killed run
    /// may leave names of packages never installed, until [`Self::prune`].
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

    /// Whether the last transaction installed the archive.
    pub(super) fn was_given(&self, archive: &Digest) -> bool {
        self.given.contains(&archive.hex())
    }

    /// Removes absent packages from the record, because a person may install a package of the same
    /// name later. Files removed along with a package are dropped too.
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

    /// Returns the packages of former locks missing from the plan. Essential packages, dependencies
    /// of staying packages, and packages of a running kernel that leaves stay. The packages of such
    /// a kernel are removed by the converge after the boot of another kernel. If the plan has the
    /// running kernel, packages built for the kernel leave like all others, such as the modules of
    /// a former driver. Modules of a driver for a leaving kernel leave when the plan replaces the
    /// modules: by modules of another driver for the same kernel, or by a package of the field
    /// `Conflicts`, such as the driver's DKMS package.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn leaving(
        &self,
        machine: &Machine,
        database: &Database,
        plan: &ConvergePlan,
    ) -> Result<LeavingPackages, Failure> {
        let names = plan.packages.iter().map(|package| package.name.as_str());
        let planned_release = kernel_facts::newest_release(names);
        let running = kernel_facts::running_release(machine)?;
        let leaves = running.filter(|release| planned_release.as_ref() != Some(release));
        let is_of = |name: &str| {
            let release = leaves.as_ref();
            release.is_some_and(|release| name.contains(release.as_str()))
        };
        // Headers and tools of a kernel leave together with the common packages shared between
        // kernels.
        let boots =
            |name: &str| name.starts_with("linux-image-") || name.starts_with("linux-modules");
        let is_wanted = |name: &str| plan.packages.iter().any(|package| package.name == name);
        // Two branches of a driver may have the same files.
        let names = plan.packages.iter().map(|package| package.name.as_str());
        let has_modules = names.filter(|name| name.starts_with(PREBUILT)).any(is_of);
        let conflicts = |name: &str| {
            let mut others = database.there(name).flat_map(|package| &package.conflicts);
            others.any(|other| is_wanted(other))
        };
        let is_replaced =
            |name: &str| name.starts_with(PREBUILT) && (has_modules || conflicts(name));
        let runs = |name: &str| {
            is_of(name) && !is_replaced(name) && (boots(name) || !name.starts_with("linux-"))
        };
        let stays = |name: &String| {
            let is_named = is_wanted(name) || plan.absent.contains(name);
            is_named || !database.has(name) || database.is_essential(name) || runs(name)
        };
        let go = self.packages.iter().filter(|name| !stays(name));
        Ok(LeavingPackages::of(go.cloned().collect(), database, plan))
    }

    /// Upgrades the record before the first write by a version that keeps former contents. Plan
    /// files missing from the record may have been written by an earlier version.
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

    /// Records a file of the plan before the write, and keeps the content from before any stack.
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

    /// Returns the SHA-256 of the content written by a stack, unless the content was a secret.
    pub(super) fn wrote_openly(&self, path: &str) -> Option<String> {
        let wrote = self
            .files
            .get(path)
            .or_else(|| self.over.get(path).map(|over| &over.wrote));
        wrote.filter(|_| self.plain.contains(path)).cloned()
    }

    /// Drops a removed or restored file from the record; returns whether the record had the file.
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

    /// Returns the present files of former stacks missing from the plan. The path `made` is of a
    /// file that converge makes for the plan.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn leaving_files(
        &self,
        machine: &Machine,
        plan: &ConvergePlan,
        made: Option<&str>,
    ) -> Result<LeavingFiles, Failure> {
        let mut leaving = LeavingFiles::default();
        let fresh = self.files.iter().map(|(path, wrote)| (path, wrote, None));
        for (path, wrote, over) in fresh.chain(
            self.over
                .iter()
                .map(|(path, over)| (path, &over.wrote, Some(over))),
        ) {
            let stays = is_planned(plan, path) || made == Some(path.as_str());
            if stays || machine.path(path).symlink_metadata().is_err() {
                continue;
            }
            // The stack that declared the file secret or plain is gone, so the file counts as
            // secret.
            let gone = Target {
                secret: true,
                ..Target::ours(path, None::<Vec<u8>>)
            };
            let why = match over {
                _ if !is_as_written(machine, path, wrote) => {
                    "left: the file was changed after a stack wrote it"
                }
                None if dpkg::owns(machine, path) => "left: a package owns the file",
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
                    _ => "left: the content from before the stack is unknown",
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
    /// Splits the removable packages into packages to remove and packages needed by a staying
    /// package, by dpkg's database. Needs of planned versions are covered by the lock. Their
    /// Provides are unknown here, so apt may still remove a package kept here.
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
                // A dependency that neither stays nor leaves is left to apt.
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

    /// Returns the report items of the staying packages.
    pub(super) fn items(&self) -> impl Iterator<Item = Item> {
        self.needed.iter().map(|(name, by)| {
            let why = format!("left: {by} needs it");
            Item::new(format!("package {name}"), &why, Some(why.clone()))
        })
    }
}

/// Whether the path is a file of the plan, or a file made from the plan's settings.
fn is_planned(plan: &ConvergePlan, path: &str) -> bool {
    plan.files.iter().any(|file| file.path == path) || MANAGED.contains(&path)
}

fn former_path(path: &str) -> String {
    format!("{FORMER}{}", Digest::of(path.as_bytes()).hex())
}

/// Keeps a file before a stack overwrites the file. `None` for other file types, and for files
/// longer than 16 MiB.
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

/// Whether a present package has, or provides, a name of the clause.
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
