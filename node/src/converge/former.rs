//! What was on a node before a stack wrote a file of its own over it, such as the configuration that a package brought: kept, and put back when the
//! file leaves the stack.

use std::os::unix::fs::MetadataExt as _;

use muster_core::values::Digest;
use muster_core::wire::node::Failure;
use serde::{Deserialize, Serialize};

use super::file::{GROUPS, Target, USERS};
use super::machine::Machine;
use crate::failure::io;
use crate::files;

/// Root's alone: it may hold secrets of whoever had the node before.
const FOLDER: &str = "/var/lib/muster/former";
/// Configuration is kilobytes; what is larger is not kept, and its file stays as the stack wrote it.
const MAX: u64 = 4 << 20;

/// A file that was there before a stack wrote over it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Former {
    /// SHA-256 of what a stack wrote over it last.
    pub written: String,
    /// Whether its content is kept: not that of a link, a folder, or something large.
    kept: bool,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Former {
    /// Keeps what is there. It is on the disk before this ends, so that a power cut after it loses nothing.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn keep(machine: &Machine, path: &str) -> Result<Self, Failure> {
        let metadata = machine.path(path).symlink_metadata().map_err(io(path))?;
        let (mode, uid, gid) = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid());
        let mut former = Self { written: String::new(), kept: false, mode, uid, gid };
        if metadata.is_file() && metadata.len() <= MAX {
            let content = machine.read(path, MAX)?.unwrap_or_default();
            let kept = machine.path(&place(path));
            files::write_durably(&kept, 0o600, &content).map_err(io(kept.display()))?;
            former.kept = true;
        }
        Ok(former)
    }

    /// What puts it back; nothing where it was not kept, or is gone. An account that is gone as well leaves it to root.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn target(&self, machine: &Machine, path: &str) -> Result<Option<Target>, Failure> {
        let Some(content) = machine.read(&place(path), MAX)?.filter(|_| self.kept) else { return Ok(None) };
        let name = |database, id: u32| {
            let name = machine.account_name(database, id)?;
            Ok::<_, Failure>(if name.parse::<u32>().is_ok() { "root".to_owned() } else { name })
        };
        let (owner, group) = (name(USERS, self.uid)?, name(GROUPS, self.gid)?);
        Ok(Some(Target { path: path.into(), mode: self.mode, owner, group, content: Some(content), secret: true }))
    }
}

/// After it was put back.
///
/// # Errors
/// `io`.
pub(super) fn forget(machine: &Machine, path: &str) -> Result<(), Failure> {
    match std::fs::remove_file(machine.path(&place(path))) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(path)(error)),
        _ => Ok(()),
    }
}

fn place(path: &str) -> String {
    format!("{FOLDER}/{}", Digest::of(path.as_bytes()).hex())
}
