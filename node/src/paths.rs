//! Paths on a node, under one movable root.

use std::path::PathBuf;

/// Returns `path` below `MUSTER_ROOT`, a folder set by tests; on a real node the plain path.
pub fn at(path: &str) -> PathBuf {
    match std::env::var_os("MUSTER_ROOT") {
        Some(root) => PathBuf::from(root).join(path.trim_start_matches('/')),
        None => PathBuf::from(path),
    }
}
