//! Links to libraries.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::{fatal, io};
use crate::machine::Machine;

/// Returns the links of the folders to libraries with the given stems, each with the final target.
/// The stem of `libcuda.so.1` is `libcuda`.
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
                && let Some(target) = machine.resolve(&link)
            {
                links.insert(link, target);
            }
        }
    }
    Ok(links)
}
