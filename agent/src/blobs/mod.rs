//! Content-addressed files: images, kernels, bundles. A served blob is complete and matches the
//! digest. A lost blob is fetched again.

mod bound; // The size bound, and the uses of blobs
mod fetch; // A verified download from the server
mod verify; // Checks cached files against their digests

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use muster_core::values::Digest;
use sha2::{Digest as _, Sha256};
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use self::bound::Uses;
pub use self::bound::{HeldBlob, default_bound};
pub use self::fetch::{BlobSource, FetchError};
use self::verify::{Stamp, Verified};

const CHUNK: usize = 256 << 10;
/// Age limit of leftover files. An older part file belongs to a dead process. An older damaged file
/// was either inspected by now or is forgotten.
const STALE_PART: Duration = Duration::from_secs(24 * 3600);

/// The blobs in a directory, stored as `<dir>/sha256/<hex>`. Clones share the running downloads.
#[derive(Clone, Debug)]
pub struct BlobCache {
    dir: Arc<PathBuf>,
    downloads: Arc<Mutex<HashMap<Digest, Weak<Download>>>>,
    verified: Verified,
    uses: Uses,
}

/// A blob, open for reading.
#[derive(Debug)]
pub struct Blob {
    pub digest: Digest,
    /// Size in bytes.
    pub size: u64,
    pub file: File,
}

/// Progress of a download in bytes. `total` is set when the server sends the length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Bytes received so far.
    pub done: u64,
    /// Size of the blob in bytes, if announced by the server.
    pub total: Option<u64>,
}

/// A download shared by all callers for the same blob. The holder of the turn fetches, and the
/// others watch the progress.
#[derive(Debug, Default)]
struct Download {
    turn: tokio::sync::Mutex<()>,
    fetched: watch::Sender<Fetched>,
}

impl BlobCache {
    /// Opens the cache in a directory, creates the directory if missing, and removes stale partial
    /// and damaged files.
    pub async fn at(dir: impl Into<PathBuf>) -> io::Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(dir.join("sha256")).await?;
        let mut entries = fs::read_dir(dir.join("sha256")).await?;
        while let Some(entry) = entries.next_entry().await? {
            let modified = entry.metadata().await?.modified()?;
            let age = SystemTime::now()
                .duration_since(modified)
                .unwrap_or_default();
            let name = entry.file_name().to_string_lossy().into_owned();
            if (name.ends_with(".part") || name.ends_with(".damaged")) && age > STALE_PART {
                fs::remove_file(entry.path()).await?;
            }
        }
        Ok(Self {
            dir: Arc::new(dir),
            downloads: Arc::default(),
            verified: Verified::default(),
            uses: Uses::default(),
        })
    }

    /// Bounds the size of the cache, in bytes. A download then removes the blobs with the oldest
    /// use, once the bound has begun.
    pub fn with_bound(self, most: u64) -> Self {
        self.uses.set_bound(most);
        self
    }

    /// Begins the bound: after the first leases of a starting agent, because the jobs of an earlier
    /// process hold their blobs then.
    pub fn begin_bound(&self) {
        self.uses.begin_bound();
    }

    /// Keeps a blob in the cache, present or not, until the drop of the result.
    pub fn hold(&self, digest: Digest) -> HeldBlob {
        self.uses.hold(digest)
    }

    /// Returns the path of a blob in the cache, present or not.
    pub fn path(&self, digest: Digest) -> PathBuf {
        self.dir.join("sha256").join(digest.hex())
    }

    /// Opens a blob, or returns `None` when the blob is absent. A blob with another digest is set
    /// aside and treated as absent.
    pub async fn open(&self, digest: Digest) -> io::Result<Option<Blob>> {
        let Some((blob, stamp)) = self.find(digest).await? else {
            return Ok(None);
        };
        if self.verified.holds(digest, stamp) {
            return Ok(Some(blob));
        }
        let _one_at_a_time = self.verified.reading.lock().await;
        // The previous holder of the lock may have verified the file or set the file aside.
        let Some((Blob { file, size, .. }, stamp)) = self.find(digest).await? else {
            return Ok(None);
        };
        if self.verified.holds(digest, stamp) {
            return Ok(Some(Blob { digest, size, file }));
        }
        let mut file = file.into_std().await;
        let read = tokio::task::spawn_blocking(move || {
            verify::digest_of(&mut file).map(|found| (found, file))
        });
        let (found, file) = read.await.map_err(io::Error::other)??;
        if found == digest {
            self.verified.note(digest, stamp);
            return Ok(Some(Blob {
                digest,
                size,
                file: File::from_std(file),
            }));
        }
        let aside = self
            .dir
            .join("sha256")
            .join(format!(".{}.damaged", digest.hex()));
        tracing::error!(%digest, %found, aside = %aside.display(), "blob in the cache is damaged; a new copy will be fetched; check the disk of the agent");
        fs::rename(self.path(digest), aside).await?;
        Ok(None)
    }

    /// Records a report of a reader about a wrong digest. The blob is verified again before the
    /// next use.
    pub fn doubt(&self, digest: Digest) {
        self.verified.forget(digest);
    }

    async fn find(&self, digest: Digest) -> io::Result<Option<(Blob, Stamp)>> {
        match File::open(self.path(digest)).await {
            Ok(file) => {
                self.uses.note(digest);
                let metadata = file.metadata().await?;
                Ok(Some((
                    Blob {
                        digest,
                        size: metadata.len(),
                        file,
                    },
                    Stamp::of(&metadata),
                )))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a small blob into memory. A blob larger than `most` bytes is an error.
    pub async fn read(&self, digest: Digest, most: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(blob) = self.open(digest).await? else {
            return Ok(None);
        };
        if blob.size > most {
            return Err(io::Error::other(format!(
                "blob {digest} has {} bytes, more than {most}",
                blob.size
            )));
        }
        let mut bytes = Vec::new();
        blob.file.take(most).read_to_end(&mut bytes).await?;
        Ok(Some(bytes))
    }

    /// Opens a blob and fetches it when absent. Concurrent callers for the same blob share a
    /// download and all receive its progress. If the fetching caller gives up, the next caller
    /// takes over.
    pub async fn ensure(
        &self,
        digest: Digest,
        source: &BlobSource,
        progress: impl Fn(Fetched) + Send + Sync,
    ) -> Result<Blob, FetchError> {
        // No other download removes the blob before the answer.
        let _held = self.hold(digest);
        if let Some(blob) = self.open(digest).await? {
            return Ok(blob);
        }
        let download = self.download(digest);
        let mut fetched = download.fetched.subscribe();
        let turn = download.turn.lock();
        tokio::pin!(turn);
        let _turn = loop {
            tokio::select! {
                biased;
                turn = &mut turn => break turn,
                Ok(()) = fetched.changed() => progress(*fetched.borrow_and_update()),
            }
        };
        if let Some(blob) = self.open(digest).await? {
            return Ok(blob);
        }
        let told = |so_far| {
            download.fetched.send_replace(so_far);
            progress(so_far);
        };
        // A cache from before the bound, or under a larger bound, may have filled the disk.
        self.keep_bound().await;
        let mut draft = self.draft().await?;
        fetch::download(&mut draft, digest, source, &told).await?;
        draft.keep(digest, &self.verified).await?;
        self.keep_bound().await;
        self.open(digest)
            .await?
            .ok_or_else(|| io::Error::other("the blob was removed as soon as it was there").into())
    }

    /// Reduces the cache to its bound. A failure stops no download.
    async fn keep_bound(&self) {
        if let Err(error) = self.shrink().await {
            tracing::warn!(%error, "the blob cache could not be reduced to its bound; check the disk of the agent");
        }
    }

    /// Copies a local file into the cache and returns its digest.
    pub async fn put_file(&self, path: &Path) -> io::Result<Digest> {
        let mut file = File::open(path).await?;
        let mut draft = self.draft().await?;
        let mut chunk = vec![0; CHUNK];
        loop {
            let length = file.read(&mut chunk).await?;
            if length == 0 {
                break;
            }
            draft.write(&chunk[..length]).await?;
        }
        let digest = draft.digest();
        draft.keep(digest, &self.verified).await?;
        Ok(digest)
    }

    /// Writes bytes into the cache and returns their digest.
    pub async fn put_bytes(&self, bytes: &[u8]) -> io::Result<Digest> {
        let mut draft = self.draft().await?;
        draft.write(bytes).await?;
        let digest = draft.digest();
        draft.keep(digest, &self.verified).await?;
        Ok(digest)
    }

    /// Removes the blobs with the oldest use, until the cache is within its bound.
    async fn shrink(&self) -> io::Result<()> {
        let (uses, folder) = (self.uses.clone(), self.dir.join("sha256"));
        let shrinking = tokio::task::spawn_blocking(move || uses.shrink(&folder));
        for digest in shrinking.await.map_err(io::Error::other)?? {
            self.verified.forget(digest);
            tracing::info!(%digest, "blob removed from the cache, to keep the cache within its bound");
        }
        Ok(())
    }

    fn download(&self, digest: Digest) -> Arc<Download> {
        let mut downloads = self
            .downloads
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        downloads.retain(|_, download| download.strong_count() > 0);
        let shared = downloads.get(&digest).and_then(Weak::upgrade);
        shared.unwrap_or_else(|| {
            let download = Arc::new(Download::default());
            downloads.insert(digest, Arc::downgrade(&download));
            download
        })
    }

    async fn draft(&self) -> io::Result<Draft> {
        let path = self
            .dir
            .join("sha256")
            .join(format!(".{}.part", uuid::Uuid::new_v4().simple()));
        let file = File::options()
            .write(true)
            .read(true)
            .create_new(true)
            .open(&path)
            .await?;
        Ok(Draft {
            path,
            file,
            hasher: Sha256::new(),
            written: 0,
            kept: false,
        })
    }
}

/// A blob being written under a temporary name, deleted on drop unless kept.
struct Draft {
    path: PathBuf,
    file: File,
    hasher: Sha256,
    written: u64,
    kept: bool,
}

impl Draft {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).await?;
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Discards the content, for a server without support for range requests.
    async fn clear(&mut self) -> io::Result<()> {
        use tokio::io::AsyncSeekExt as _;

        self.file.flush().await?;
        self.file.set_len(0).await?;
        self.file.rewind().await?;
        self.hasher = Sha256::new();
        self.written = 0;
        Ok(())
    }

    fn digest(&self) -> Digest {
        Digest(self.hasher.clone().finalize().into())
    }

    /// Renames the draft to its digest, durably: content first, then the name.
    async fn keep(mut self, digest: Digest, verified: &Verified) -> io::Result<()> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        let dir = self
            .path
            .parent()
            .expect("a draft lies in the cache's directory")
            .to_owned();
        fs::rename(&self.path, dir.join(digest.hex())).await?;
        self.kept = true;
        verified.note(digest, Stamp::of(&self.file.metadata().await?));
        File::open(dir).await?.sync_all().await
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "partial blob not deleted; the file is deleted at the next start after a day");
        }
    }
}
