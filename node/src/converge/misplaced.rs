//! Folders, links, devices, FIFOs and sockets in the place of a file of a package. `dpkg --verify`
//! ends with an error at a folder and waits without end at a FIFO, so the places are read first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::FileType;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;

use muster_core::stacks::LockedPackage;
use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::{fatal, io};
use crate::machine::Machine;

const INFO: &str = "/var/lib/dpkg/info";
const DIVERSIONS: &str = "/var/lib/dpkg/diversions";
/// Longest list of dpkg, in bytes.
const LIST_MAX: u64 = 64 << 20;

/// A thing in the place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misplaced {
    /// Path of the file on the node, behind a diversion.
    pub(super) place: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Folder,
    Link,
    Device,
    Fifo,
    Socket,
}

impl Kind {
    /// Returns the kind of a thing; `None` for a file.
    fn of(found: FileType) -> Option<Self> {
        if found.is_file() {
            None
        } else if found.is_dir() {
            Some(Self::Folder)
        } else if found.is_symlink() {
            Some(Self::Link)
        } else if found.is_fifo() {
            Some(Self::Fifo)
        } else if found.is_socket() {
            Some(Self::Socket)
        } else {
            Some(Self::Device)
        }
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Folder => "a folder",
            Kind::Link => "a link",
            Kind::Device => "a device",
            Kind::Fifo => "a FIFO",
            Kind::Socket => "a socket",
        };
        write!(f, "{kind} is in the place of {}", self.place)
    }
}

impl Misplaced {
    /// Removes the thing. dpkg would also remove a folder, with the content, so a folder with
    /// content is refused. A thing removed in between is no error.
    ///
    /// # Errors
    /// `packages_failed` for a folder with content and for a mount; `io`.
    pub(super) fn remove(&self, machine: &Machine, package: &str) -> Result<(), Failure> {
        let path = machine.path(&self.place);
        let removed = match self.kind {
            Kind::Folder => std::fs::remove_dir(path),
            Kind::Link | Kind::Device | Kind::Fifo | Kind::Socket => std::fs::remove_file(path),
        };
        let Err(error) = removed else {
            return Ok(());
        };
        if error.kind() == ErrorKind::NotFound {
            return Ok(());
        }
        let is_used = [ErrorKind::DirectoryNotEmpty, ErrorKind::ResourceBusy];
        if !is_used.contains(&error.kind()) {
            return Err(io(&self.place)(error));
        }
        let why = format!(
            "{self}, a file of {package}, and has content or is a mount: move the content to \
             another path or unmount the path, then converge again"
        );
        Err(fatal(FailureCode::PackagesFailed, why))
    }
}

/// dpkg's diversions, by the path of the file.
pub(super) struct Diversions {
    by_path: BTreeMap<String, Diversion>,
}

struct Diversion {
    /// The path in place of the file's own.
    to: String,
    /// The package whose file keeps the path; `:` for a diversion by a person.
    by: String,
}

impl Diversions {
    /// Reads the diversions: three lines each.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn read(machine: &Machine) -> Result<Self, Failure> {
        let bytes = machine.read(DIVERSIONS, LIST_MAX)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines();
        let mut by_path = BTreeMap::new();
        while let (Some(path), Some(to), Some(by)) = (lines.next(), lines.next(), lines.next()) {
            let (to, by) = (to.to_owned(), by.to_owned());
            by_path.insert(path.to_owned(), Diversion { to, by });
        }
        Ok(Self { by_path })
    }

    /// Returns the path of a package's file on the node.
    fn find_place(&self, package: &str, path: String) -> String {
        let diversion = self.by_path.get(&path).filter(|found| found.by != package);
        diversion.map_or(path, |found| found.to.clone())
    }
}

/// Returns the misplaced things of an installed package. A link or a device in the place of a
/// configuration file belongs to the administrator, unless dpkg cannot read the target.
///
/// # Errors
/// `io`.
pub(super) fn list_misplaced(
    machine: &Machine,
    package: &LockedPackage,
    diversions: &Diversions,
) -> Result<Vec<Misplaced>, Failure> {
    // `/usr/lib/libcuda.so.1`: without the files that another package has taken over.
    let owned = read_list(machine, package, "list")?;
    let owned: BTreeSet<&str> = owned.lines().collect();
    let mut found = Vec::new();
    // `d41d8cd98f00b204e9800998ecf8427e  usr/lib/libcuda.so.1`
    let sums = read_list(machine, package, "md5sums")?;
    let files = sums.lines().filter_map(|line| line.split_once("  "));
    let files = files.map(|(_, path)| format!("/{}", path.trim_start_matches("./")));
    for path in files.filter(|path| owned.contains(path.as_str())) {
        let place = diversions.find_place(&package.name, path);
        let kind = inspect_place(machine, &place)?;
        found.extend(kind.map(|kind| Misplaced { place, kind }));
    }
    let settings = read_list(machine, package, "conffiles")?;
    for path in settings.lines().filter(|path| owned.contains(path)) {
        let place = diversions.find_place(&package.name, path.to_owned());
        let kind = inspect_place(machine, &place)?;
        let kind = kind.filter(|kind| !is_readable(machine, &place, *kind));
        found.extend(kind.map(|kind| Misplaced { place, kind }));
    }
    Ok(found)
}

/// Reads a list of a package; an empty text without the list.
fn read_list(machine: &Machine, package: &LockedPackage, kind: &str) -> Result<String, Failure> {
    // `libc6:amd64.md5sums` or `munge.md5sums`
    let with_arch = format!("{}:{}", package.name, package.arch);
    for stem in [&with_arch, &package.name] {
        if let Some(bytes) = machine.read(&format!("{INFO}/{stem}.{kind}"), LIST_MAX)? {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(String::new())
}

/// Returns the kind of a misplaced thing; `None` for a file, and for a missing file, which dpkg
/// reports.
fn inspect_place(machine: &Machine, place: &str) -> Result<Option<Kind>, Failure> {
    let missing = [ErrorKind::NotFound, ErrorKind::NotADirectory];
    match machine.path(place).symlink_metadata() {
        Ok(found) => Ok(Kind::of(found.file_type())),
        Err(error) if missing.contains(&error.kind()) => Ok(None),
        Err(error) => Err(io(place)(error)),
    }
}

/// Whether dpkg ends after reading the place. A dangling link is no file to read.
fn is_readable(machine: &Machine, place: &str, kind: Kind) -> bool {
    match kind {
        Kind::Folder | Kind::Fifo => false,
        Kind::Device | Kind::Socket => true,
        Kind::Link => {
            let target = machine.resolve(place);
            let target = target.and_then(|target| machine.path(&target).symlink_metadata().ok());
            target.is_none_or(|target| !target.is_dir() && !target.file_type().is_fifo())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use muster_core::values::Digest;

    use super::*;

    const SUM: &str = "d41d8cd98f00b204e9800998ecf8427e";

    fn package() -> LockedPackage {
        LockedPackage {
            name: "libcuda1".to_owned(),
            version: "550.1-2".to_owned(),
            arch: "amd64".to_owned(),
            size: 1,
            sha256: Digest::of(b"libcuda1"),
            filename: "libcuda1.deb".to_owned(),
        }
    }

    /// Makes a machine with these texts.
    fn make(texts: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().expect("a folder");
        let machine = Machine::at(root.path());
        for (path, text) in texts {
            let path = machine.path(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        (root, machine)
    }

    /// Writes a list of the package.
    fn list(machine: &Machine, kind: &str, lines: &[&str]) {
        let path = machine.path(&format!("{INFO}/libcuda1.{kind}"));
        std::fs::write(path, lines.join("\n")).expect("a list");
    }

    fn told(machine: &Machine) -> Vec<String> {
        let diversions = Diversions::read(machine).expect("diversions");
        let found = list_misplaced(machine, &package(), &diversions).expect("a list");
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_and_missing_files_are_left_to_dpkg() {
        for stem in ["libcuda1", "libcuda1:amd64"] {
            let info = |kind: &str| format!("{INFO}/{stem}.{kind}");
            let sums = format!("{SUM}  usr/lib/a\n{SUM}  usr/lib/b\n{SUM}  usr/lib/a/c\n");
            let (_root, machine) = make(&[
                (&info("md5sums"), &sums),
                (&info("list"), "/.\n/usr/lib/a\n/usr/lib/b\n/usr/lib/a/c\n"),
                ("/usr/lib/a", ""),
            ]);
            assert_eq!(told(&machine), Vec::<String>::new());
            std::fs::create_dir(machine.path("/usr/lib/b")).expect("a folder");
            let wanted = ["a folder is in the place of /usr/lib/b"];
            assert_eq!(told(&machine), wanted, "{stem}");
        }
    }

    #[test]
    fn a_file_taken_over_by_another_package_is_not_looked_at() {
        let sums = format!("{SUM}  usr/lib/a\n");
        let (_root, machine) = make(&[(&format!("{INFO}/libcuda1.md5sums"), &sums)]);
        std::fs::create_dir_all(machine.path("/usr/lib")).expect("a folder");
        symlink("b", machine.path("/usr/lib/a")).expect("a link");
        list(&machine, "list", &["/.", "/usr/lib"]);
        assert_eq!(told(&machine), Vec::<String>::new());
        list(&machine, "list", &["/.", "/usr/lib", "/usr/lib/a"]);
        assert_eq!(told(&machine), ["a link is in the place of /usr/lib/a"]);
    }

    #[test]
    fn folders_of_the_path_may_be_links() {
        let sums = format!("{SUM}  lib/firmware/a\n");
        let (_root, machine) = make(&[
            (&format!("{INFO}/libcuda1.md5sums"), &sums),
            (&format!("{INFO}/libcuda1.list"), "/lib/firmware/a\n"),
            ("/usr/lib/firmware/a", ""),
        ]);
        symlink("usr/lib", machine.path("/lib")).expect("a link");
        assert_eq!(told(&machine), Vec::<String>::new());
    }

    #[test]
    fn the_place_of_a_diverted_file_is_the_other_path() {
        let sums = format!("{SUM}  usr/lib/a\n");
        let (_root, machine) = make(&[
            (&format!("{INFO}/libcuda1.md5sums"), &sums),
            (&format!("{INFO}/libcuda1.list"), "/usr/lib/a\n"),
            ("/usr/lib/a.diverted", ""),
        ]);
        let divert = |by: &str| {
            let text = format!("/usr/lib/a\n/usr/lib/a.diverted\n{by}\n");
            std::fs::write(machine.path(DIVERSIONS), text).expect("a file");
        };
        symlink("a.diverted", machine.path("/usr/lib/a")).expect("a link");
        divert("glx-diversions");
        assert_eq!(told(&machine), Vec::<String>::new());
        let wanted = ["a link is in the place of /usr/lib/a"];
        divert("libcuda1");
        assert_eq!(told(&machine), wanted, "the own diversion");
    }

    #[test]
    fn a_configuration_file_may_be_another_readable_thing() {
        let (_root, machine) = make(&[
            (&format!("{INFO}/libcuda1.conffiles"), "/etc/a.conf\n"),
            (&format!("{INFO}/libcuda1.list"), "/etc\n/etc/a.conf\n"),
            ("/srv/a.conf", ""),
        ]);
        let path = machine.path("/etc/a.conf");
        std::fs::create_dir(machine.path("/etc")).expect("a folder");
        for (target, is_found) in [("/srv/a.conf", false), ("/srv/none", false), ("/srv", true)] {
            symlink(target, &path).expect("a link");
            let wanted = ["a link is in the place of /etc/a.conf"];
            let wanted = &wanted[..usize::from(is_found)];
            assert_eq!(told(&machine), wanted, "{target}");
            std::fs::remove_file(&path).expect("the link");
        }
        std::fs::create_dir(&path).expect("a folder");
        assert_eq!(told(&machine), ["a folder is in the place of /etc/a.conf"]);
    }
}
