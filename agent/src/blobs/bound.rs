//! The size bound of the cache. The blobs with the oldest use are removed first. A held blob stays,
//! so the cache may be larger than the bound while jobs hold more.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use muster_core::values::Digest;
use nix::sys::statvfs::statvfs;

/// The largest default bound, in bytes.
const LARGEST_DEFAULT: u64 = 64 << 30;

/// Returns the bound of a cache without a setting: 64 GiB, or half of the smaller place that the
/// cached files and the free space of the disk make. Other data on the disk leaves a smaller cache.
///
/// # Errors
/// When the disk or the folder of the blobs is unreadable.
pub fn default_bound(folder: &Path) -> io::Result<u64> {
    let disk = statvfs(folder)?;
    let free = disk.fragment_size().saturating_mul(disk.blocks_available());
    let mut cached = 0;
    for entry in std::fs::read_dir(folder)? {
        cached += entry?.metadata()?.len();
    }
    Ok(LARGEST_DEFAULT.min(free.saturating_add(cached) / 2))
}

/// The uses of blobs, shared by all clones of the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    /// The bound in bytes, if any.
    most: Option<u64>,
    /// The bound holds: the jobs of an earlier process are leased again.
    is_begun: bool,
    /// Number of holders of each held blob.
    held: HashMap<Digest, usize>,
    /// The turn of the latest use in this process. Blobs without a turn were used earlier.
    latest: HashMap<Digest, u64>,
    turn: u64,
}

/// A blob in use by a job. The blob stays in the cache until the drop of all holders.
#[derive(Debug)]
pub struct HeldBlob {
    digest: Digest,
    uses: Uses,
}

impl Drop for HeldBlob {
    fn drop(&mut self) {
        let mut table = self.uses.lock();
        if let Some(holders) = table.held.get_mut(&self.digest) {
            *holders -= 1;
            if *holders == 0 {
                table.held.remove(&self.digest);
            }
        }
    }
}

/// A cached file.
struct Cached {
    digest: Digest,
    size: u64,
    turn: Option<u64>,
    /// The latest read or write, as recorded by the file system.
    used_at: SystemTime,
}

impl Uses {
    pub(super) fn hold(&self, digest: Digest) -> HeldBlob {
        *self.lock().held.entry(digest).or_default() += 1;
        HeldBlob {
            digest,
            uses: self.clone(),
        }
    }

    /// Records a use of a cached blob.
    pub(super) fn note(&self, digest: Digest) {
        let mut table = self.lock();
        table.turn += 1;
        let turn = table.turn;
        table.latest.insert(digest, turn);
    }

    pub(super) fn set_bound(&self, most: u64) {
        self.lock().most = Some(most);
    }

    pub(super) fn begin_bound(&self) {
        self.lock().is_begun = true;
    }

    fn bound(&self) -> Option<u64> {
        let table = self.lock();
        table.most.filter(|_| table.is_begun)
    }

    /// Removes the blobs with the oldest use, until the files of the folder are within the bound.
    /// Returns the removed blobs.
    pub(super) fn shrink(&self, folder: &Path) -> io::Result<Vec<Digest>> {
        let Some(most) = self.bound() else {
            return Ok(Vec::new());
        };
        let (mut total, mut cached) = self.list_files(folder)?;
        // A blob without a turn comes before all blobs with a turn.
        cached.sort_by_key(|file| (file.turn, file.used_at));
        let mut removed = Vec::new();
        for file in cached {
            if total <= most {
                break;
            }
            if self.remove(folder, file.digest)? {
                total = total.saturating_sub(file.size);
                removed.push(file.digest);
            }
        }
        if total > most {
            tracing::warn!(
                total,
                most,
                "the blob cache is larger than its bound, because running jobs hold the blobs; raise --blob-cache-gib"
            );
        }
        Ok(removed)
    }

    /// Lists the cached blobs, and the size of all files with the running downloads.
    fn list_files(&self, folder: &Path) -> io::Result<(u64, Vec<Cached>)> {
        let (mut total, mut cached) = (0, Vec::new());
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // A download ended meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            total += metadata.len();
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(digest) = format!("sha256:{name}").parse::<Digest>() else {
                continue;
            };
            let modified = metadata.modified()?;
            cached.push(Cached {
                digest,
                size: metadata.len(),
                turn: self.lock().latest.get(&digest).copied(),
                used_at: metadata.accessed().map_or(modified, |at| at.max(modified)),
            });
        }
        Ok((total, cached))
    }

    /// Removes the file of a blob without a holder. The table stays locked, so no holder comes
    /// between the look and the removal.
    fn remove(&self, folder: &Path, digest: Digest) -> io::Result<bool> {
        let mut table = self.lock();
        if table.held.contains_key(&digest) {
            return Ok(false);
        }
        match std::fs::remove_file(folder.join(digest.hex())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        table.latest.remove(&digest);
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Every change under the lock is complete before a possible panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
