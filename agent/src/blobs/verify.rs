//! Whether the files of the cache still are what their names say. Each is read whole once in a process, and again when its file was touched; one that
//! is something else is set aside, and never sent.

use std::collections::HashMap;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_core::values::Digest;
use sha2::{Digest as _, Sha256};

use super::CHUNK;

/// The files that were read and found right. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Verified {
    files: Arc<Mutex<HashMap<Digest, Stamp>>>,
    /// Held while a file is read: one at a time, so that a restart in the middle of a hundred installs reads each image once.
    pub(super) reading: Arc<tokio::sync::Mutex<()>>,
}

/// What changes whenever a file's content may have changed.
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
    /// Whether the file of a blob was found right as it is now.
    pub(super) fn holds(&self, digest: Digest, stamp: Stamp) -> bool {
        self.files().get(&digest) == Some(&stamp)
    }

    pub(super) fn note(&self, digest: Digest, stamp: Stamp) {
        self.files().insert(digest, stamp);
    }

    /// What is said of a blob does not count any more.
    pub(super) fn forget(&self, digest: Digest) {
        self.files().remove(&digest);
    }

    fn files(&self) -> MutexGuard<'_, HashMap<Digest, Stamp>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a file whole, leaves it at its beginning, and tells what it is.
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
