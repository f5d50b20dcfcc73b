//! The files and device nodes of the NVIDIA driver on the node.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;

use muster_core::wire::node::{Failure, FailureCode};

use super::super::dpkg::Database;
use super::document::{Driver, OwnedFile, PROGRAMS, folder_of, library_stem, name_of};
use super::links;
use super::lists::{self, Listed};
use crate::failure::{fatal, io};
use crate::machine::Machine;

const DEVICES: &str = "/dev";
/// Number of the driver's files. A driver with graphics has about 60.
const FILES_MAX: usize = 512;
/// Number of entries of a folder of libraries.
const ENTRIES_MAX: usize = 100_000;

/// Finds the driver behind `libcuda.so.1`; `None` without a libcuda on the node.
///
/// # Errors
/// `cdi_incomplete`, or `io`.
pub(super) fn find(machine: &Machine, database: &Database) -> Result<Option<Driver>, Failure> {
    let folder = library_folder()?;
    let link = format!("{folder}/libcuda.so.1");
    let libcuda = machine.resolve(&link);
    let version = libcuda.as_deref().and_then(version_of).map(str::to_owned);
    let listed = lists::list(machine, database, |path| {
        is_libcuda(folder, path)
            || version
                .as_deref()
                .is_some_and(|version| may_be_of(version, path))
    })?;
    let unowned = |libcuda: &str| {
        incomplete(&format!(
            "{link} leads to {libcuda}, which no installed package has"
        ))
    };
    if !listed.iter().any(|listed| is_libcuda(folder, &listed.path)) {
        return libcuda.map_or(Ok(None), |libcuda| Err(unowned(&libcuda)));
    }
    let (Some(libcuda), Some(version)) = (libcuda, version) else {
        return Err(incomplete(&format!(
            "{link} leads to no library of a driver, although a package has libcuda"
        )));
    };
    let files = find_regular(machine, listed);
    if !files.iter().any(|file| file.path == libcuda) {
        return Err(unowned(&libcuda));
    }
    if files.len() > FILES_MAX {
        return Err(incomplete(&format!(
            "driver {version} has more than {FILES_MAX} files"
        )));
    }
    let mut driver = Driver {
        folder,
        libcuda,
        version,
        files,
        links: BTreeMap::new(),
        nodes: find_nodes(machine)?,
    };
    driver.links = find_links(machine, &driver)?;
    Ok(Some(driver))
}

fn incomplete(why: &str) -> Failure {
    let message =
        format!("{why}: install the packages of one driver again, or write `cdi = false`");
    fatal(FailureCode::CdiIncomplete, message)
}

/// Returns the folder of libraries by Debian's name of the architecture.
pub(super) fn library_folder() -> Result<&'static str, Failure> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("/usr/lib/x86_64-linux-gnu"),
        "aarch64" => Ok("/usr/lib/aarch64-linux-gnu"),
        other => Err(fatal(
            FailureCode::CdiIncomplete,
            format!("the folder of libraries is unknown for {other}: write `cdi = false`"),
        )),
    }
}

/// Returns the version in the name of a libcuda; `None` for a link such as `libcuda.so.1`.
fn version_of(path: &str) -> Option<&str> {
    let version = name_of(path).strip_prefix("libcuda.so.")?;
    let is_version = version.contains('.')
        && version
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    is_version.then_some(version)
}

fn is_libcuda(folder: &str, path: &str) -> bool {
    let inside = path
        .strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'));
    inside && version_of(path).is_some()
}

/// Whether a path may belong to a driver, by its name alone.
fn may_be_of(version: &str, path: &str) -> bool {
    path.ends_with(&format!(".so.{version}"))
        || PROGRAMS.contains(&name_of(path))
        || path.contains(&format!("/firmware/nvidia/{version}/"))
}

/// Returns the regular files among the listed paths, by their paths without links.
fn find_regular(machine: &Machine, listed: Vec<Listed>) -> Vec<OwnedFile> {
    let mut files = BTreeMap::new();
    for Listed { path, version } in listed {
        let Some(resolved) = machine.resolve(&path) else {
            continue;
        };
        let is_regular = machine
            .path(&resolved)
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file());
        // A link to a file of another name has no version of its own.
        if is_regular && name_of(&resolved) == name_of(&path) {
            files.insert(resolved, version);
        }
    }
    files
        .into_iter()
        .map(|(path, version)| OwnedFile { path, version })
        .collect()
}

/// Returns the links to the driver's libraries, in the folders of the libraries and in the loader's
/// folder.
fn find_links(machine: &Machine, driver: &Driver) -> Result<BTreeMap<String, String>, Failure> {
    let mut folders = BTreeSet::from([driver.folder]);
    let mut stems = BTreeSet::new();
    for file in &driver.files {
        if let Some(stem) = library_stem(driver, &file.path) {
            folders.insert(folder_of(&file.path));
            stems.insert(stem);
        }
    }
    links::find(machine, &folders, &stems, ENTRIES_MAX)
}

/// Returns the names of NVIDIA's device nodes.
fn find_nodes(machine: &Machine) -> Result<BTreeSet<String>, Failure> {
    let entries = match std::fs::read_dir(machine.path(DEVICES)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(io(DEVICES)(error)),
    };
    let mut nodes = BTreeSet::new();
    for entry in entries {
        let entry = entry.map_err(io(DEVICES))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // A node may vanish while the folder is read.
        let is_device = || entry.file_type().is_ok_and(|kind| kind.is_char_device());
        if name.starts_with("nvidia") && is_device() {
            nodes.insert(name);
        }
    }
    Ok(nodes)
}
