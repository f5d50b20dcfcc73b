//! Other files of `/etc/cdi` that define GPUs of NVIDIA. Two files of a folder with the same
//! device make the device unresolvable.

use std::io::ErrorKind;

use muster_core::stacks::language::CDI_SPECIFICATION;
use muster_core::wire::node::{Failure, FailureCode};
use serde::Deserialize;

use super::document::KIND;
use crate::failure::{fatal, io};
use crate::machine::Machine;

const FOLDER: &str = "/etc/cdi";
/// Longest specification, in bytes.
const SPECIFICATION_MAX: u64 = 16 << 20;
/// Number of entries of the folder.
const FILES_MAX: usize = 256;

/// The member of a specification read here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    kind: String,
}

/// Checks that no other file defines the devices.
///
/// # Errors
/// `cdi_conflict` for a file with the same devices, an unreadable file, or a folder with too many
/// files; or `io`.
pub(super) fn check(machine: &Machine) -> Result<(), Failure> {
    let entries = match std::fs::read_dir(machine.path(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(FOLDER)(error)),
    };
    for (read, entry) in entries.enumerate() {
        if read == FILES_MAX {
            let message = format!(
                "{FOLDER} has more than {FILES_MAX} files, so other specifications are unknown: remove files from {FOLDER}"
            );
            return Err(fatal(FailureCode::CdiConflict, message));
        }
        let name = entry.map_err(io(FOLDER))?.file_name();
        let path = format!("{FOLDER}/{}", name.to_string_lossy());
        // Container runtimes read no other names.
        let is_specification = path.ends_with(".json") || path.ends_with(".yaml");
        if !is_specification || path == CDI_SPECIFICATION || !machine.path(&path).is_file() {
            continue;
        }
        if let Some(why) = find_fault(machine, &path) {
            let message = format!(
                "{why}: remove {path}, or put the file into the stack's `files` under a name such as /etc/cdi/nvidia.yaml: Muster then writes none"
            );
            return Err(fatal(FailureCode::CdiConflict, message));
        }
    }
    Ok(())
}

/// Returns the reason against a file beside the specification; `None` for a file of other devices.
fn find_fault(machine: &Machine, path: &str) -> Option<String> {
    let bytes = match machine.read(path, SPECIFICATION_MAX) {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(failure) => {
            let why = failure.message;
            return Some(format!("{why}, so the devices of the file are unknown"));
        }
    };
    (read_kind(&bytes).as_deref() == Some(KIND)).then(|| {
        format!(
            "{path} defines {KIND} as {CDI_SPECIFICATION} does, and container runtimes then find neither"
        )
    })
}

/// Returns the kind of a specification; `None` for an unreadable file, which container runtimes
/// skip.
fn read_kind(bytes: &[u8]) -> Option<String> {
    let json = serde_json::from_slice::<Head>(bytes).ok();
    let head = json.or_else(|| serde_yaml_ng::from_slice(bytes).ok());
    head.map(|head| head.kind)
}
