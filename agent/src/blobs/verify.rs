//! Checks cached files against their digests. Each file is read completely once per process, and
//! again after a change of the file. A damaged file is set aside and never sent.

use std::collections::HashMap;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_core::values::Digest;
use sha2::{Digest as _, Sha256};

use super::CHUNK;

/// The verified files, shared by all clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Verified {
    files: Arc<Mutex<HashMap<Digest, Stamp>>>,
    /// Locked while a file is read. Files are read one after another, so that a restart during a
    /// hundred installs reads each image once.
    pub(super) reading: Arc<tokio::sync::Mutex<()>>,
}

/// File metadata changing with every possible change of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(metadata: &std::fs::Metadata) -> Self {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Self {
            inode: metadata.ino(),
            size: metadata.size(),
            changed,
        }
    }
}

impl Verified {
    /// Returns whether the file of a blob was verified in its current state.
    pub(super) fn holds(&self, digest: Digest, stamp: Stamp) -> bool {
        self.files().get(&digest) == Some(&stamp)
    }

    pub(super) fn note(&self, digest: Digest, stamp: Stamp) {
        self.files().insert(digest, stamp);
    }

    /// Discards the verification of a blob.
    pub(super) fn forget(&self, digest: Digest) {
        self.files().remove(&digest);
    }

    fn files(&self) -> MutexGuard<'_, HashMap<Digest, Stamp>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a complete file, rewinds the file, and returns the digest.
pub(super) fn digest_of(file: &mut std::fs::File) -> io::Result<Digest> {
    let (mut hasher, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            length => hasher.update(&chunk[..length]),
        }
    }
    file.rewind()?;
    Ok(Digest(hasher.finalize().into()))
}
