//! Programs of both versions: tests/previous/build builds yesterday's, cargo builds today's with the tests.

use std::path::{Path, PathBuf};

/// Today's agent and muster-node; tests/src/today.rs lists its words.
pub(crate) const TODAY: &str = env!("CARGO_BIN_EXE_muster-test-today");

/// `muster` of the version before: server and agent.
pub(crate) fn muster() -> PathBuf {
    find("muster")
}

/// `muster-node` of the version before.
pub(crate) fn muster_node() -> PathBuf {
    find("muster-node")
}

/// A missing program fails the test: a skipped test would look like a passed test.
fn find(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let commit = std::fs::read_to_string(root.join("tests/previous/COMMIT")).unwrap();
    let program = root.join(".cache/previous").join(commit.trim()).join(name);
    assert!(
        program.exists(),
        "{name} of the version before ({}) is not built: run `make previous`",
        commit.trim()
    );
    program.canonicalize().unwrap()
}
