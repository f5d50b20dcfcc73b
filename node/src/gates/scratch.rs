//! A folder for files written by a tool, removed after the gate. Located below /var/lib, writable
//! only by root, on the node's root disk.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use muster_core::wire::node::Failure;

use crate::failure::io;
use crate::machine::Machine;

const FOLDER: &str = "/var/lib/muster/gates";

/// The folder.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates a folder. Folders of ended processes are removed, so killed gates do not fill the
    /// disk.
    pub(super) fn new(machine: &Machine) -> Result<Self, Failure> {
        let folder = machine.path(FOLDER);
        std::fs::create_dir_all(&folder).map_err(io(FOLDER))?;
        for entry in std::fs::read_dir(&folder).map_err(io(FOLDER))?.flatten() {
            let pid = entry.file_name();
            let ours = *pid == *std::process::id().to_string();
            if ours || !Path::new("/proc").join(&pid).exists() {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let path = folder.join(std::process::id().to_string());
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(io(path.display()))?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
