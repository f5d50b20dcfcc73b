//! Links, followed below the machine's root.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::{fatal, io};
use crate::machine::Machine;

/// Longest chain of links, as in the kernel.
const LINKS_MAX: usize = 40;

/// Follows all links of a path. The result is a path of the machine without links; a target never
/// leaves the machine's root. `None` for a missing file, a dangling link or a loop.
pub(super) fn resolve(machine: &Machine, path: &str) -> Option<String> {
    let mut left: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
    let mut done: Vec<String> = Vec::new();
    let mut followed = 0;
    while let Some(part) = left.pop() {
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                done.pop();
                continue;
            }
            _ => done.push(part),
        }
        let here = machine.path(&done.join("/"));
        if !here.symlink_metadata().ok()?.is_symlink() {
            continue;
        }
        followed += 1;
        if followed > LINKS_MAX {
            return None;
        }
        let target = std::fs::read_link(&here).ok()?.into_os_string();
        let target = target.into_string().ok()?;
        done.pop();
        if target.starts_with('/') {
            done.clear();
        }
        left.extend(target.split('/').rev().map(str::to_owned));
    }
    Some(format!("/{}", done.join("/")))
}

/// Returns the links of the folders to libraries with these stems, each with its final target. The
/// stem of `libcuda.so.1` is `libcuda`.
///
/// # Errors
/// `cdi_incomplete` for a folder with more than `entries_max` entries, or `io`.
pub(super) fn find(
    machine: &Machine,
    folders: &BTreeSet<&str>,
    stems: &BTreeSet<&str>,
    entries_max: usize,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut links = BTreeMap::new();
    for folder in folders {
        let entries = match std::fs::read_dir(machine.path(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(io(folder)(error)),
        };
        for (read, entry) in entries.enumerate() {
            if read == entries_max {
                let message = format!(
                    "{folder} has more than {entries_max} files, so the links to the driver's libraries are unknown: remove files, or write `cdi = false`"
                );
                return Err(fatal(FailureCode::CdiIncomplete, message));
            }
            let entry = entry.map_err(io(folder))?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let is_library = name
                .split_once(".so")
                .is_some_and(|(stem, _)| stems.contains(stem));
            if !is_library || name.chars().any(char::is_control) {
                continue;
            }
            let link = format!("{folder}/{name}");
            if entry.file_type().map_err(io(&link))?.is_symlink()
                && let Some(target) = resolve(machine, &link)
            {
                links.insert(link, target);
            }
        }
    }
    Ok(links)
}
