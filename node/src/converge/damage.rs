//! Files of the driver's packages that differ from dpkg's digests, because a person changed,
//! removed or replaced the files. Other packages are not read: a look runs beside the jobs of the
//! node.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use muster_core::stacks::diff::{Class, package_class};
use muster_core::stacks::{ConvergePlan, LockedPackage};
use muster_core::wire::node::{Failure, FailureCode};

use super::dpkg::Database;
use super::item::Item;
use super::misplaced::{self, Diversions, Misplaced};
use crate::failure::retryable;
use crate::job::JobContext;
use crate::machine::Machine;
use crate::tool::{self, Call};

/// Longest run of dpkg. A driver has a gigabyte of files.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Exit status of dpkg after a failed check. Older versions end with 0 after a difference.
const DIFFERS: i32 = 1;
/// Differences named for a package.
const NAMED_MAX: usize = 3;
/// Folders that an image may leave out of its packages.
const LEFT_OUT: [&str; 8] = [
    "/usr/share/bug/",
    "/usr/share/doc/",
    "/usr/share/groff/",
    "/usr/share/help/",
    "/usr/share/info/",
    "/usr/share/lintian/",
    "/usr/share/locale/",
    "/usr/share/man/",
];

/// The differences of each damaged package, by name.
pub(super) type Damage = BTreeMap<String, Vec<Difference>>;

/// A difference of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Path of a changed or missing file.
    Content(String),
    /// Another thing than a file.
    Misplaced(Misplaced),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(path) => f.write_str(path),
            Self::Misplaced(misplaced) => write!(f, "{misplaced}"),
        }
    }
}

/// Compares the files of the driver's installed packages with dpkg's digests. dpkg follows
/// diversions. Files of the plan are left out, because the plan has another content for the path.
///
/// # Errors
/// `packages_failed` when dpkg gives no answer, or the failure of the program.
pub(super) fn find(
    machine: &Machine,
    plan: &ConvergePlan,
    database: &Database,
    cx: &JobContext,
) -> Result<Damage, Failure> {
    let checked = plan
        .packages
        .iter()
        .filter(|package| is_of_driver(&package.name) && database.has_version(package));
    let checked: Vec<&LockedPackage> = checked.collect();
    let differing = |packages: &[&LockedPackage]| -> Result<Vec<String>, Failure> {
        let mut paths = verify(machine, packages, cx)?;
        paths.retain(|path| !is_planned(plan, path));
        Ok(paths)
    };
    let mut damage = Damage::new();
    let diversions = Diversions::read(machine)?;
    let mut comparable = Vec::new();
    for package in checked {
        let mut found = misplaced::list_misplaced(machine, package, &diversions)?;
        if found.is_empty() {
            comparable.push(package);
        }
        found.retain(|one| !is_planned(plan, &one.place) && !is_left_out(&one.place));
        add_differences(&mut damage, package, found, Difference::Misplaced);
    }
    // dpkg does not name the package of a file, and without a difference one run is enough.
    if comparable.is_empty() || differing(&comparable)?.is_empty() {
        return Ok(damage);
    }
    for package in comparable {
        add_differences(
            &mut damage,
            package,
            differing(&[package])?,
            Difference::Content,
        );
    }
    Ok(damage)
}

fn add_differences<Found>(
    damage: &mut Damage,
    package: &LockedPackage,
    found: Vec<Found>,
    difference: impl Fn(Found) -> Difference,
) {
    if !found.is_empty() {
        let differences = found.into_iter().map(difference).collect();
        damage.insert(package.name.clone(), differences);
    }
}

/// Removes the things in the place of files, so that dpkg unpacks the files.
///
/// # Errors
/// As [`Misplaced::remove`].
pub(super) fn clear_places(machine: &Machine, damage: &Damage) -> Result<(), Failure> {
    for (package, differences) in damage {
        for difference in differences {
            match difference {
                Difference::Content(_) => {}
                Difference::Misplaced(misplaced) => misplaced.remove(machine, package)?,
            }
        }
    }
    Ok(())
}

/// Joins differences for people.
pub(super) fn join_differences(differences: &[Difference]) -> String {
    let told: Vec<String> = differences.iter().map(ToString::to_string).collect();
    told.join(", ")
}

/// Whether an item of the driver's packages differs: only then the packages are read again.
pub(super) fn is_possible(items: &[Item]) -> bool {
    items.iter().any(|item| {
        let name = item.name.strip_prefix("package ");
        !item.fits && name.is_some_and(is_of_driver)
    })
}

/// Whether the plan has a file at the path. `/lib` may be a link to `/usr/lib`.
fn is_planned(plan: &ConvergePlan, path: &str) -> bool {
    let merged = |path: &str| path.strip_prefix("/usr").unwrap_or(path).to_owned();
    let mut files = plan.files.iter();
    files.any(|file| merged(&file.path) == merged(path))
}

/// Marks the items of the damaged packages as differing.
pub(super) fn mark(items: &mut [Item], damage: &Damage) {
    for item in items {
        let name = item.name.strip_prefix("package ");
        let Some(differences) = name.and_then(|name| damage.get(name)) else {
            continue;
        };
        let more = match differences.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = join_differences(&differences[..differences.len().min(NAMED_MAX)]);
        item.fits = false;
        item.found = Some(format!("{}, changed: {named}{more}", item.wanted));
    }
}

/// Whether a package is a library, a program or firmware of the driver, or has prebuilt modules.
/// Other packages of modules are left out, because a site may sign or rebuild the files in place.
pub(super) fn is_of_driver(name: &str) -> bool {
    match package_class(name) {
        Class::DriverReload => true,
        Class::Reboot => name.starts_with("linux-modules-"),
        Class::None | Class::ServiceRestart | Class::Reinstall => false,
    }
}

/// Runs `dpkg --verify`. Returns the differing files.
fn verify(
    machine: &Machine,
    packages: &[&LockedPackage],
    cx: &JobContext,
) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = packages.iter().map(|package| full_name(package)).collect();
    let argv: Vec<&str> = ["dpkg", "--verify"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    let call = Call {
        argv: &argv,
        timeout: Some(TIMEOUT),
        ..Call::default()
    };
    let done = machine.run(cx, &call)?;
    match done.status.code() {
        Some(0 | DIFFERS) => Ok(read_paths(&String::from_utf8_lossy(&done.stdout))),
        Some(_) | None => Err(retryable(
            FailureCode::PackagesFailed,
            format!(
                "dpkg --verify ended with {}: {}",
                done.status,
                tool::tail(&done.stderr, 400)
            ),
        )),
    }
}

/// Returns the name with the architecture: a second architecture makes the bare name ambiguous.
fn full_name(package: &LockedPackage) -> String {
    match package.arch.as_str() {
        "all" => package.name.clone(),
        arch => format!("{}:{arch}", package.name),
    }
}

/// Reads lines such as `??5??????   /usr/bin/a` and `missing     /usr/bin/b`. A configuration file
/// has a `c` and belongs to the administrator.
fn read_paths(said: &str) -> Vec<String> {
    let paths = said.lines().filter_map(|line| {
        let (marks, path) = line.split_at(line.find('/')?);
        let mut marks = marks.split_whitespace();
        let (result, kind) = (marks.next()?, marks.next());
        let differs = result == "missing" || result.contains('5');
        // dpkg adds the reason for an unreadable file in brackets.
        let path = path.split(" (").next()?;
        (differs && kind != Some("c") && !is_left_out(path)).then(|| path.to_owned())
    });
    paths.collect()
}

fn is_left_out(path: &str) -> bool {
    LEFT_OUT.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use muster_core::values::Digest;

    use super::*;

    #[test]
    fn changed_and_missing_files_are_read_from_dpkg() {
        let said = "??5??????   /usr/lib/libcuda.so.550.1\n??5?????? c /etc/nvidia/a.conf\n\
            missing     /usr/lib/modules/6.12/nvidia-current.ko.xz\n\
            missing     /usr/share/doc/libcuda1/copyright\nmissing   c /etc/b.conf\n\
            missing     /usr/share/lintian/overrides/libcuda1\n\
            missing     /usr/bin/c (Permission denied)\n?????????   /usr/bin/d\n";
        assert_eq!(
            read_paths(said),
            [
                "/usr/lib/libcuda.so.550.1",
                "/usr/lib/modules/6.12/nvidia-current.ko.xz",
                "/usr/bin/c",
            ]
        );
        assert_eq!(read_paths(""), Vec::<String>::new());
    }

    #[test]
    fn parts_of_the_driver_are_checked_and_other_modules_are_not() {
        for (name, is_checked) in [
            ("libcuda1", true),
            ("nvidia-alternative", true),
            ("linux-modules-nvidia-550-6.12.118+deb13-amd64", true),
            ("linux-image-6.12.118+deb13-amd64", false),
            ("nvidia-kernel-dkms", false),
            ("gpfs.gplbin-6.1.0-9-amd64", false),
            ("containerd", false),
            ("munge", false),
        ] {
            assert_eq!(is_of_driver(name), is_checked, "{name}");
        }
    }

    #[test]
    fn a_difference_of_the_driver_alone_asks_for_a_second_reading() {
        let item = |name: &str, found: &str| Item::new(name, "1", Some(found.to_owned()));
        let fitting = item("package libcuda1", "1");
        assert!(!is_possible(&[fitting.clone(), item("package runc", "0")]));
        assert!(!is_possible(&[fitting.clone(), item("file /etc/a", "0")]));
        assert!(is_possible(&[fitting, item("package nvidia-smi", "0")]));
    }

    #[test]
    fn the_name_of_a_package_has_its_architecture() {
        let package = |arch: &str| LockedPackage {
            name: "libcuda1".to_owned(),
            version: "550.1-2".to_owned(),
            arch: arch.to_owned(),
            size: 1,
            sha256: Digest::of(b"libcuda1"),
            filename: "libcuda1.deb".to_owned(),
        };
        assert_eq!(full_name(&package("amd64")), "libcuda1:amd64");
        assert_eq!(full_name(&package("all")), "libcuda1");
    }
}
