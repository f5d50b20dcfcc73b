//! Removes blobs without a use, in two steps: a round notes the stored blobs that no document
//! names, and a later round removes the blobs noted for longer than the grace time. The removal
//! reads the documents again, under a lock that every write of a document shares.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use muster_core::values::Digest;
use serde_json::json;
use sqlx::PgConnection;

use super::blob_uses::{BlobsError, Known, find_used};
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::unused_blobs::UnusedRow;
use crate::error::Error;
use crate::retention::days_ago;

/// Blobs removed in one transaction. Writes of documents wait meanwhile.
const BLOBS: i64 = 100;
/// Transactions of one round. The next round continues.
const BATCHES: usize = 100;
/// Unused blobs of the list for administrators.
const LISTED: i64 = 1_000_000;
/// Age limit of a partial upload. An upload without data for a minute is aborted, so an older file
/// belongs to a dead server.
const STALE_UPLOAD: SignedDuration = SignedDuration::from_hours(24);

/// The memory of a replica between rounds.
#[derive(Debug, Default)]
pub struct Memory {
    known: Known,
    /// The reason of the last event about a stopped removal. Each reason is one event.
    told: Option<String>,
}

/// Removed blobs, and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedBlobs {
    pub blobs: u64,
    pub bytes: u64,
}

/// A stored blob without a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnusedBlob {
    pub digest: Digest,
    pub bytes: u64,
    /// `None`: no round has noted the blob yet.
    pub since: Option<Timestamp>,
}

/// Notes unused blobs, and removes the blobs noted for longer than the grace time. In caution mode
/// the documents may be old, and no blob is removed.
///
/// # Errors
///
/// When a document or bundle is unreadable, the database fails, or a file cannot be removed.
pub async fn remove(app: &App, memory: &mut Memory) -> anyhow::Result<RemovedBlobs> {
    let done = remove_unused(app, &mut memory.known).await;
    match done {
        Ok(removed) => {
            memory.told = None;
            Ok(removed)
        }
        Err(error @ BlobsError::Unreadable { .. }) => {
            let reason = error.to_string();
            if memory.told.as_ref() != Some(&reason) {
                let event = NewEvent::new(
                    app.clock.now(),
                    "muster",
                    "blob.removal_stopped",
                    reason.clone(),
                );
                db::events::insert(&mut *app.pool.acquire().await?, event).await?;
                memory.told = Some(reason);
            }
            Err(error.into())
        }
        Err(error @ (BlobsError::Files(_) | BlobsError::Database(_))) => Err(error.into()),
    }
}

async fn remove_unused(app: &App, known: &mut Known) -> Result<RemovedBlobs, BlobsError> {
    let now = app.clock.now();
    let mut removed = RemovedBlobs::default();
    remove_stale_uploads(&app.blobs, now).await?;
    let mut conn = app.pool.acquire().await.map_err(Error::from)?;
    if db::cautions::find_open(&mut conn).await?.is_some() {
        return Ok(removed);
    }
    note_unused(&mut conn, &app.blobs, known, now).await?;
    drop(conn);
    for _ in 0..BATCHES {
        let Some(batch) = remove_batch(app, known, now).await? else {
            break;
        };
        removed.blobs += batch.removed.blobs;
        removed.bytes += batch.removed.bytes;
        if !batch.is_full {
            break;
        }
    }
    Ok(removed)
}

/// Notes the stored blobs without a use, and ends the grace time of blobs in use.
async fn note_unused(
    conn: &mut PgConnection,
    folder: &Path,
    known: &mut Known,
    now: Timestamp,
) -> Result<(), BlobsError> {
    let used = find_used(conn, folder, known).await?;
    let stored = list_files(folder).await?;
    let (in_use, unused): (Vec<Digest>, Vec<Digest>) =
        stored.into_iter().partition(|digest| used.contains(digest));
    db::unused_blobs::delete(conn, &in_use).await?;
    db::unused_blobs::insert(conn, &unused, now).await?;
    Ok(())
}

/// The result of a transaction.
#[derive(Clone, Copy, Debug)]
struct Batch {
    removed: RemovedBlobs,
    /// The batch reached the limit, so more blobs may be left.
    is_full: bool,
}

/// Removes a batch of blobs. `None`: another replica removes, or a document is being written.
async fn remove_batch(
    app: &App,
    known: &mut Known,
    now: Timestamp,
) -> Result<Option<Batch>, BlobsError> {
    let before = days_ago(now, app.retention.unused_blobs_days);
    let mut tx = app.pool.begin().await.map_err(Error::from)?;
    if !db::unused_blobs::try_lock(&mut tx).await? {
        return Ok(None);
    }
    let old = db::unused_blobs::list_old(&mut tx, before, BLOBS).await?;
    let is_full = i64::try_from(old.len()).is_ok_and(|count| count >= BLOBS);
    if old.is_empty() {
        return Ok(None);
    }
    let used = find_used(&mut tx, &app.blobs, known).await?;
    let old = old.into_iter().map(|row| row.digest);
    let (in_use, unused): (Vec<Digest>, Vec<Digest>) =
        old.partition(|digest| used.contains(digest));
    let mut removed = RemovedBlobs::default();
    db::unused_blobs::delete(&mut tx, &in_use).await?;
    for digest in &unused {
        // A statement before each file: the database ends an idle session, and the lock with the
        // session. No file goes without the lock.
        db::unused_blobs::delete_removed(&mut tx, *digest).await?;
        removed.blobs += 1;
        removed.bytes += remove_file(&app.blobs, *digest).await?;
    }
    if !unused.is_empty() {
        let summary = format!(
            "{} blobs unused since {before:.0} are removed, {} bytes",
            removed.blobs, removed.bytes
        );
        let event = NewEvent::new(now, "muster", "blob.removed", summary);
        let detail = json!({ "blobs": unused, "bytes": removed.bytes });
        db::events::insert(&mut tx, event.with(detail)).await?;
    }
    tx.commit().await.map_err(Error::from)?;
    Ok(Some(Batch { removed, is_full }))
}

/// Removes the file of a blob. Returns the size in bytes. A missing file is a removal interrupted
/// before its commit.
async fn remove_file(folder: &Path, digest: Digest) -> io::Result<u64> {
    let path = folder.join("sha256").join(digest.hex());
    let found = unless_missing(tokio::fs::metadata(&path).await)?;
    unless_missing(tokio::fs::remove_file(&path).await)?;
    Ok(found.map_or(0, |metadata| metadata.len()))
}

/// `None`: the file is gone meanwhile.
fn unless_missing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists the stored blobs. Files with other names are no blobs.
async fn list_files(folder: &Path) -> io::Result<Vec<Digest>> {
    let opened = tokio::fs::read_dir(folder.join("sha256")).await;
    let mut stored = Vec::new();
    let Some(mut entries) = unless_missing(opened)? else {
        return Ok(stored);
    };
    while let Some(entry) = entries.next_entry().await? {
        let name = entry.file_name().to_string_lossy().into_owned();
        let digest = format!("sha256:{name}").parse::<Digest>();
        stored.extend(digest.ok().filter(|digest| digest.hex() == name));
    }
    // Replicas note the blobs in the same order, so no replica waits for the other in a circle.
    stored.sort_unstable();
    Ok(stored)
}

/// Removes partial uploads of servers that ended during the upload.
async fn remove_stale_uploads(folder: &Path, now: Timestamp) -> io::Result<()> {
    let mut entries = tokio::fs::read_dir(folder).await?;
    while let Some(entry) = entries.next_entry().await? {
        let is_upload = entry.file_name().to_string_lossy().starts_with("upload-");
        if !is_upload {
            continue;
        }
        let Some(metadata) = unless_missing(entry.metadata().await)? else {
            continue;
        };
        let modified = Timestamp::try_from(metadata.modified()?);
        if modified.is_ok_and(|at| now.duration_since(at) > STALE_UPLOAD) {
            unless_missing(tokio::fs::remove_file(entry.path()).await)?;
        }
    }
    Ok(())
}

/// Lists the stored blobs without a use, the oldest first. Changes no row and no file.
///
/// # Errors
///
/// When a document or bundle is unreadable, the folder cannot be listed, or the database fails.
pub async fn list_unused(
    conn: &mut PgConnection,
    folder: &Path,
) -> Result<Vec<UnusedBlob>, BlobsError> {
    let used = find_used(conn, folder, &mut Known::default()).await?;
    let noted = db::unused_blobs::list_old(conn, Timestamp::MAX, LISTED).await?;
    let noted: HashMap<Digest, Timestamp> = noted
        .into_iter()
        .map(|UnusedRow { digest, since }| (digest, since))
        .collect();
    let mut unused = Vec::new();
    for digest in list_files(folder).await? {
        if used.contains(&digest) {
            continue;
        }
        let path = folder.join("sha256").join(digest.hex());
        let found = tokio::fs::metadata(&path).await;
        let blob = unless_missing(found)?.map(|metadata| UnusedBlob {
            digest,
            bytes: metadata.len(),
            since: noted.get(&digest).copied(),
        });
        unused.extend(blob);
    }
    unused.sort_by_key(|blob| (blob.since.unwrap_or(Timestamp::MAX), blob.digest));
    Ok(unused)
}
