//! Where things are on a node, under one movable root.

use std::path::PathBuf;

/// `path` below `MUSTER_ROOT`, which tests set to a folder of their own; the plain path on a real node.
pub fn at(path: &str) -> PathBuf {
    match std::env::var_os("MUSTER_ROOT") {
        Some(root) => PathBuf::from(root).join(path.trim_start_matches('/')),
        None => PathBuf::from(path),
    }
}
