//! Small files, replaced atomically.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{LabError, io};

/// Writes a JSON document atomically: a reader sees either the old or the new document, complete.
/// Only the owner can read the file.
pub(crate) fn write_atomically(path: &Path, document: &impl Serialize) -> Result<(), LabError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let what = || io(format!("write {}", path.display()));
    let text = serde_json::to_vec_pretty(document).map_err(|error| what()(error.into()))?;
    let beside: PathBuf = path.with_extension("new");
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&beside)
        .map_err(what())?;
    file.write_all(&text).map_err(what())?;
    drop(file);
    fs::rename(&beside, path).map_err(what())
}
