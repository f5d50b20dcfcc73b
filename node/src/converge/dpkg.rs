//! dpkg's own database of installed packages, read without starting dpkg, and dpkg's locks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::time::{Duration, Instant};

use muster_core::stacks::{ConvergePlan, LockedPackage};
use muster_core::wire::node::{Failure, FailureCode};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::item::{ABSENT, Item};
use crate::failure::{io, retryable};
use crate::job::JobContext;
use crate::machine::Machine;

/// Longest status file, in bytes. The status file of a machine with every package of a release is
/// below 100 MiB.
const STATUS_MAX: u64 = 256 << 20;
/// dpkg's journal: changes that a killed dpkg had not yet merged into the status file.
const JOURNAL: &str = "/var/lib/dpkg/updates";
/// Locks taken in this order by every package manager: dpkg(1), apt's DPkg::Lock.
const LOCKS: [&str; 2] = ["/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"];
const LOCK_POLL: Duration = Duration::from_millis(500);

/// A package known to dpkg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) version: String,
    pub(crate) arch: String,
    pub(crate) state: State,
    /// Whether unpacking was interrupted (`reinstreq`): apt refuses all work until dpkg receives
    /// the archive again.
    pub(super) cut_in_unpacking: bool,
    /// Whether the system needs the package to work.
    pub(crate) essential: bool,
    /// Depends and Pre-Depends, by clause: the names of the alternatives of each clause.
    pub(super) needs: Vec<Vec<String>>,
    /// Virtual names provided by the package.
    pub(super) provides: Vec<String>,
    /// Packages and virtual names of the field `Conflicts`.
    pub(super) conflicts: Vec<String>,
}

/// dpkg's progress with a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Installed,
    /// Removed; only the configuration is left. Counts as absent.
    Removed,
    /// Interrupted: half-installed, unpacked, half-configured, waiting for triggers, or to be
    /// installed again.
    Unfinished,
}

/// dpkg's whole database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Database {
    packages: BTreeMap<String, Vec<Package>>,
    /// Whether a dpkg was killed, leaving a journal or unfinished packages.
    pub(crate) interrupted: bool,
}

impl Database {
    /// Reads `/var/lib/dpkg`.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn read(machine: &Machine) -> Result<Self, Failure> {
        let mut text = machine
            .read("/var/lib/dpkg/status", STATUS_MAX)?
            .unwrap_or_default();
        // dpkg merges its journal (files with numeric names) into the status file at a normal end.
        let journal = std::fs::read_dir(machine.path(JOURNAL))
            .into_iter()
            .flatten()
            .flatten();
        let journal = journal.filter_map(|entry| entry.file_name().into_string().ok());
        let mut journal: Vec<String> = journal
            .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
            .collect();
        journal.sort();
        for name in &journal {
            text.extend_from_slice(b"\n\n");
            text.extend(
                machine
                    .read(&format!("{JOURNAL}/{name}"), STATUS_MAX)?
                    .unwrap_or_default(),
            );
        }
        let mut database = Self::parse(&String::from_utf8_lossy(&text));
        database.interrupted = !journal.is_empty() || database.unfinished().next().is_some();
        Ok(database)
    }

    /// Parses the status text. Of two stanzas of one package, the later stanza wins.
    fn parse(status: &str) -> Self {
        let mut packages: BTreeMap<String, Vec<Package>> = BTreeMap::new();
        for stanza in status.split("\n\n") {
            let field = |name: &str| {
                let line = stanza
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                line.map(str::trim).unwrap_or_default().to_owned()
            };
            let (name, arch, words) = (field("Package"), field("Architecture"), field("Status"));
            if let Some(former) = packages.get_mut(&name) {
                former.retain(|package| package.arch != arch);
            }
            let state = match words.split(' ').collect::<Vec<_>>()[..] {
                [_, _, "not-installed"] => continue,
                [_, "ok", "installed"] => State::Installed,
                [_, "ok", "config-files"] => State::Removed,
                [_, _, _] => State::Unfinished,
                _ => continue,
            };
            let essential = ["Essential", "Protected", "Important"]
                .iter()
                .any(|name| field(name) == "yes");
            let essential = essential || field("Priority") == "required";
            let needs = [field("Pre-Depends"), field("Depends")]
                .iter()
                .flat_map(|text| clauses(text))
                .collect();
            let [provides, conflicts] =
                ["Provides", "Conflicts"].map(|name| clauses(&field(name)).concat());
            packages.entry(name).or_default().push(Package {
                version: field("Version"),
                arch,
                state,
                cut_in_unpacking: words.contains(" reinstreq "),
                essential,
                needs,
                provides,
                conflicts,
            });
        }
        Self {
            packages,
            interrupted: false,
        }
    }

    /// Returns the package of the given name with architecture `arch` or `all`. A package with only
    /// its configuration left is skipped.
    pub(crate) fn find(&self, name: &str, arch: &str) -> Option<&Package> {
        let fits =
            |package: &&Package| package.arch == arch || package.arch == "all" || arch == "all";
        self.there(name).find(fits)
    }

    /// Whether a locked package is completely installed in its version.
    pub(super) fn has_version(&self, package: &LockedPackage) -> bool {
        let found = self.find(&package.name, &package.arch);
        found.is_some_and(|found| {
            found.state == State::Installed && found.version == package.version
        })
    }

    /// Whether a package of the given name is present in any architecture.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.there(name).next().is_some()
    }

    /// Whether a present package of the given name is essential.
    pub(crate) fn is_essential(&self, name: &str) -> bool {
        self.there(name).any(|package| package.essential)
    }

    /// Whether the database lists no packages, as on a system without dpkg.
    pub(crate) fn is_empty(&self) -> bool {
        self.packages.is_empty()
    }

    /// Returns the names of all present packages.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.packages
            .keys()
            .map(String::as_str)
            .filter(|name| self.has(name))
    }

    /// Returns the names of unfinished packages.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = &str> {
        self.names().filter(|name| {
            self.there(name)
                .any(|package| package.state == State::Unfinished)
        })
    }

    /// Returns the names of packages interrupted while unpacking.
    pub(super) fn cut_in_unpacking(&self) -> impl Iterator<Item = &str> {
        self.names()
            .filter(|name| self.there(name).any(|package| package.cut_in_unpacking))
    }

    /// Returns the present packages of the given name.
    pub(super) fn there(&self, name: &str) -> impl Iterator<Item = &Package> + Clone {
        self.packages
            .get(name)
            .into_iter()
            .flatten()
            .filter(|package| package.state != State::Removed)
    }

    /// Returns the items of wanted packages, and of unwanted packages: listed as absent by the
    /// plan, or leaving with a former lock.
    pub(super) fn items(&self, plan: &ConvergePlan, leaving: &BTreeSet<String>) -> Vec<Item> {
        let wanted = plan.packages.iter().map(|package| {
            let found = self
                .find(&package.name, &package.arch)
                .map(|found| match found.state {
                    State::Installed => found.version.clone(),
                    State::Removed | State::Unfinished => format!("{} (unfinished)", found.version),
                });
            Item::new(format!("package {}", package.name), &package.version, found)
        });
        let unwanted = plan.absent.iter().chain(leaving).map(|name| {
            let found = self
                .there(name)
                .next()
                .map(|package| package.version.clone());
            let fits = found.is_none();
            Item {
                fits,
                ..Item::new(format!("package {name}"), ABSENT, found)
            }
        });
        wanted.chain(unwanted).collect()
    }
}

/// Parses `a (>= 1) | b:any, c` as "a or b" and "c". Versions are ignored, because apt checks
/// versions.
fn clauses(text: &str) -> Vec<Vec<String>> {
    let name = |word: &str| {
        word.trim()
            .split([' ', '(', ':'])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let clauses = text.split(',').filter(|clause| !clause.trim().is_empty());
    clauses
        .map(|clause| clause.split('|').map(name).collect())
        .collect()
}

/// Whether a package owns the file, by dpkg's file lists. Returns true when the lists cannot be
/// read.
pub(super) fn owns(machine: &Machine, path: &str) -> bool {
    let Ok(folder) = std::fs::read_dir(machine.path("/var/lib/dpkg/info")) else {
        return true;
    };
    let lists = folder.flatten().map(|entry| entry.path());
    let mut lists = lists.filter(|list| {
        list.extension()
            .is_some_and(|extension| extension == "list")
    });
    lists.any(|list| match std::fs::read(&list) {
        Ok(bytes) => bytes
            .split(|byte| *byte == b'\n')
            .any(|line| line == path.as_bytes()),
        Err(_) => true,
    })
}

/// Returns the package owning the file.
pub(super) fn owner(machine: &Machine, path: &str) -> Option<String> {
    let lists = std::fs::read_dir(machine.path("/var/lib/dpkg/info"))
        .into_iter()
        .flatten()
        .flatten();
    let mut lists =
        lists.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
    lists.find_map(|(name, list)| {
        let name = name.strip_suffix(".list")?.split(':').next()?.to_owned();
        let bytes = std::fs::read(list).ok()?;
        bytes
            .split(|byte| *byte == b'\n')
            .any(|line| line == path.as_bytes())
            .then_some(name)
    })
}

/// Waits until dpkg's locks are free. Another process may take the locks again right after. apt
/// waits for the locks by itself, but `dpkg --configure` does not, and only the failure here names
/// the holder.
///
/// # Errors
/// `package_lock_held` with the holder's process, after the machine's `lock_wait`.
pub(super) fn wait_for_locks(machine: &Machine, cx: &JobContext) -> Result<(), Failure> {
    let started = Instant::now();
    let mut said = false;
    loop {
        let Some((path, pid)) = holder(machine)? else {
            return Ok(());
        };
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let who = format!("process {pid} ({})", name.trim());
        if started.elapsed() >= machine.lock_wait {
            let waited = started.elapsed().as_secs();
            let message = format!(
                "{path} has been held by {who} for {waited} s: another package manager runs"
            );
            return Err(retryable(FailureCode::PackageLockHeld, message));
        }
        if !said {
            let wait = format!("waiting for {who}, which holds {path}");
            cx.log(&wait);
            cx.progress(&wait, None, None, None);
            said = true;
        }
        cx.check()?;
        std::thread::sleep(LOCK_POLL.min(machine.lock_wait));
    }
}

/// Returns the first locked path with the process holding the lock.
fn holder(machine: &Machine) -> Result<Option<(&'static str, i32)>, Failure> {
    for path in LOCKS {
        let file = match OpenOptions::new()
            .read(true)
            .write(true)
            .open(machine.path(path))
        {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(io(path)(error)),
        };
        let mut lock = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        fcntl(&file, FcntlArg::F_GETLK(&mut lock)).map_err(|errno| io(path)(errno.into()))?;
        if lock.l_type != libc::F_UNLCK as i16 {
            return Ok(Some((path, lock.l_pid)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_file_tells_whole_from_interrupted() {
        let database = Database::parse(
            "Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2-3\nDescription: x\n Package: b\n\n\
             Package: c\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n\
             Package: f\nEssential: yes\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n\
             Package: d\nStatus: install reinstreq half-installed\nArchitecture: amd64\nVersion: 2\n\n\
             Package: e\nStatus: unknown ok not-installed\nArchitecture: amd64\n\n\n\
             Package: g\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\nProvides: mta (= 1), h\n\
             Pre-Depends: libc6 (>= 2.36)\nDepends: perl:any, a (>= 1) | b\n\n\n\
             Package: a\nStatus: install ok half-configured\nArchitecture: amd64\nVersion: 1:3-1\n",
        );
        let one = |name: &str| database.find(name, "amd64").expect("it is there");
        assert_eq!(
            (one("a").version.as_str(), one("a").state),
            ("1:3-1", State::Unfinished),
            "the journal's, later"
        );
        assert_eq!(
            one("g").needs,
            [vec!["libc6"], vec!["perl"], vec!["a", "b"]]
        );
        assert_eq!(one("g").provides, ["mta", "h"]);
        assert_eq!(database.unfinished().collect::<Vec<_>>(), ["a", "d"]);
        assert_eq!(database.cut_in_unpacking().collect::<Vec<_>>(), ["d"]);
        assert!(
            database.find("a", "arm64").is_none()
                && !database.has("b")
                && !database.has("c")
                && !database.has("e")
        );
        assert!(database.is_essential("f") && !database.is_essential("a"));
        assert_eq!(
            database.find("d", "amd64").map(|package| package.state),
            Some(State::Unfinished)
        );
    }

    #[test]
    fn what_a_killed_dpkg_wrote_last_is_read_from_its_journal() {
        let root = tempfile::tempdir().expect("a folder");
        let stanza = |state: &str| {
            format!("Package: a\nStatus: install ok {state}\nArchitecture: amd64\nVersion: 1\n")
        };
        std::fs::create_dir_all(root.path().join("var/lib/dpkg/updates")).expect("a folder");
        for (path, state) in [
            ("status", "installed"),
            ("updates/0000", "half-installed"),
            ("updates/0001", "unpacked"),
        ] {
            std::fs::write(root.path().join("var/lib/dpkg").join(path), stanza(state))
                .expect("a file");
        }
        let read = || Database::read(&Machine::at(root.path())).expect("a database");
        assert_eq!(read().unfinished().collect::<Vec<_>>(), ["a"]);
        std::fs::write(
            root.path().join("var/lib/dpkg/updates/0002"),
            stanza("installed"),
        )
        .expect("a file");
        assert_eq!((read().unfinished().count(), read().interrupted), (0, true));
    }
}
