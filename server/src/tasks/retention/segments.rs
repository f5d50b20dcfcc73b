//! Removes old events in segments: runs of seals with all covered events. A segment is exported to
//! a file, then removed in a single transaction. A second export writes the same file.

use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::json;
use sqlx::PgConnection;
use tokio::io::AsyncWriteExt as _;

use crate::app::App;
use crate::audit::segments::{digest_of, render};
use crate::db;
use crate::db::events::NewEvent;
use crate::db::seals::SealRow;
use crate::db::segments::SegmentRow;
use crate::error::Error;
use crate::retention::days_ago;

/// Events of a segment. A seal has at most 2000, so a segment has at most 4999.
const EVENTS: usize = 3000;
/// Seals of one read.
const SEALS: i64 = 200;
/// Segments of one round: the events of a busy fleet's day. The next round continues.
const SEGMENTS: usize = 500;
/// Marks removed in one transaction.
const MARKS: i64 = 5000;

/// The folder of the exported files, beside the blobs.
pub const FOLDER: &str = "removed-events";

/// Exports and removes the old segments. Segments with an event of a node under a legal hold stay.
/// Returns the number of removed events.
///
/// # Errors
///
/// When the database fails, a file cannot be written, or the history differs from its seals.
pub async fn remove(app: &App) -> anyhow::Result<u64> {
    let before = days_ago(app.clock.now(), app.retention.events_days);
    let (mut removed, mut after) = (0, 0);
    for _ in 0..SEGMENTS {
        let Some(run) = find_run(app, after, before).await? else {
            break;
        };
        after = run.last().map_or(after, |seal| seal.number);
        let Some(segment) = export(app, &run).await? else {
            continue;
        };
        if !commit(app, &segment).await? {
            break;
        }
        removed += segment.events.unsigned_abs();
    }
    db::segments::delete_old_marks(&mut *app.pool.acquire().await?, MARKS).await?;
    Ok(removed)
}

/// Finds the next run of old seals without a hold, after a seal. `None`: no such run is left.
async fn find_run(
    app: &App,
    mut after: i64,
    before: Timestamp,
) -> Result<Option<Vec<SealRow>>, Error> {
    let mut conn = app.pool.acquire().await?;
    let (mut run, mut events): (Vec<SealRow>, usize) = (Vec::new(), 0);
    loop {
        let seals = db::segments::list_old_seals(&mut conn, after, before, SEALS).await?;
        let Some(last) = seals.last() else {
            return Ok((!run.is_empty()).then_some(run));
        };
        after = last.number;
        for seal in seals {
            let follows = run.last().is_none_or(|last| last.number + 1 == seal.number);
            let is_held = is_held(&mut conn, &seal).await?;
            match (run.is_empty(), is_held || !follows) {
                (true, true) => {}
                (false, true) => return Ok(Some(run)),
                (_, false) => {
                    events += seal.seqs.len();
                    run.push(seal);
                }
            }
            if events >= EVENTS {
                return Ok(Some(run));
            }
        }
    }
}

async fn is_held(conn: &mut PgConnection, seal: &SealRow) -> Result<bool, Error> {
    match (seal.seqs.first(), seal.seqs.last()) {
        (Some(first), Some(last)) => db::legal_holds::is_segment_held(conn, *first, *last).await,
        (None, _) | (_, None) => Ok(false),
    }
}

/// Writes the file of a run. `None`: the events of the run are gone, because another replica was
/// first.
async fn export(app: &App, run: &[SealRow]) -> anyhow::Result<Option<SegmentRow>> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return Ok(None);
    };
    let (Some(first_seq), Some(last_seq)) = (first.seqs.first(), last.seqs.last()) else {
        return Ok(None);
    };
    let count: usize = run.iter().map(|seal| seal.seqs.len()).sum();
    let events = i64::try_from(count)?;
    let mut conn = app.pool.acquire().await?;
    // An event without a seal makes the list longer than the run, and the run differs.
    let entries = db::seals::list_entries(&mut conn, *first_seq - 1, *last_seq, events + 1).await?;
    drop(conn);
    if entries.is_empty() {
        return Ok(None);
    }
    let text = render(run, entries)?;
    let digest = digest_of(&text);
    // With the digest in the name, no file is replaced by a file with other content.
    let short = hex::encode(&digest[..8]);
    let file = format!("events-{first_seq:012}-{last_seq:012}-{short}.jsonl");
    write(&app.blobs.join(FOLDER), &file, &text).await?;
    Ok(Some(SegmentRow {
        first_seal: first.number,
        last_seal: last.number,
        first_seq: *first_seq,
        last_seq: *last_seq,
        events,
        previous: first.previous.clone(),
        hash: last.hash.clone(),
        file,
        digest: digest.to_vec(),
        removed_at: app.clock.now(),
    }))
}

/// Removes an exported segment. `false`: another replica removes, or a hold came meanwhile.
async fn commit(app: &App, segment: &SegmentRow) -> anyhow::Result<bool> {
    let mut tx = app.pool.begin().await?;
    if !db::retention::try_lock(&mut tx).await?
        || db::legal_holds::is_segment_held(&mut tx, segment.first_seq, segment.last_seq).await?
    {
        return Ok(false);
    }
    let gone = db::segments::remove(&mut tx, segment).await?;
    anyhow::ensure!(
        i64::try_from(gone)? == segment.events,
        "the events of the seals {} to {} changed during the export: see `muster audit verify`",
        segment.first_seal,
        segment.last_seal
    );
    let summary = format!(
        "{} events up to event {} are removed from the database, and kept in {}",
        segment.events, segment.last_seq, segment.file
    );
    let detail = json!({
        "first_seal": segment.first_seal,
        "last_seal": segment.last_seal,
        "first_event": segment.first_seq,
        "last_event": segment.last_seq,
        "events": segment.events,
        "hash": hex::encode(&segment.hash),
        "file": segment.file,
        "sha256": hex::encode(&segment.digest),
    });
    let event = NewEvent::new(
        segment.removed_at,
        "muster",
        "audit.events_removed",
        summary,
    );
    db::events::insert(&mut tx, event.with(detail)).await?;
    tx.commit().await?;
    Ok(true)
}

/// Writes a file with the folder, synced to disk. Replicas sharing the folder write separate drafts
/// first.
async fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let draft = folder.join(format!("{name}.{:016x}", rand::random::<u64>()));
    let writing = async {
        tokio::fs::create_dir_all(folder).await?;
        let mut file = tokio::fs::File::create(&draft).await?;
        file.write_all(text.as_bytes()).await?;
        file.flush().await?;
        file.sync_all().await?;
        tokio::fs::rename(&draft, folder.join(name)).await?;
        // The entry of a new folder is in the folder above.
        if let Some(above) = folder.parent() {
            tokio::fs::File::open(above).await?.sync_all().await?;
        }
        tokio::fs::File::open(folder).await?.sync_all().await
    };
    let written: std::io::Result<()> = writing.await;
    written.with_context(|| format!("export events to {}", folder.join(name).display()))
}
