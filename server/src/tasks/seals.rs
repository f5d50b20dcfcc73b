//! Seals the history after the writers, and anchors the newest seal in a file outside the database.
//! An attacker with write access to every row cannot change the anchor as well.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use muster_core::audit::{BEGINNING, Seal};
use sqlx::PgConnection;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::audit::Anchor;
use crate::db;
use crate::db::events::NewEvent;
use crate::error::Error;

const EVERY: Duration = Duration::from_secs(5);
/// Most events of one seal.
const BATCH: i64 = 2000;
/// Most seals of one round: a busy fleet's events of half a minute, on one core. Further events
/// wait for the next round.
const SEALS: usize = 50;
/// Type of the event that takes a seal out of the database.
const SEALED: &str = "audit.sealed";

pub(super) async fn run(app: App, cancel: CancellationToken) {
    let mut anchored = 0;
    loop {
        match round(&app, anchored).await {
            Ok(number) => anchored = number,
            Err(error) => {
                tracing::warn!(error = ?error, "the history could not be sealed; tried again shortly")
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Seals the complete part of the history. Anchors the newest seal unless the seal's number equals
/// `anchored`. Returns the number of the newest seal.
///
/// # Errors
///
/// When the database fails, or the anchors cannot be written.
pub async fn round(app: &App, anchored: i64) -> anyhow::Result<i64> {
    for _ in 0..SEALS {
        if !seal(app).await? {
            break;
        }
    }
    let Some(row) = db::seals::latest(&mut *app.pool.acquire().await?).await? else {
        return Ok(0);
    };
    if row.number != anchored {
        let anchor = Anchor {
            number: row.number,
            last_seq: row.seqs.last().copied().unwrap_or_default(),
            hash: hex::encode(&row.hash),
            at: app.clock.now(),
        };
        append(&app.anchors, &anchor).await?;
    }
    Ok(row.number)
}

/// Seals one batch of events. Returns `false` when no complete events remain, or another replica
/// holds the lock.
///
/// # Errors
///
/// When the database fails.
pub async fn seal(app: &App) -> Result<bool, Error> {
    let mut tx = app.pool.begin().await?;
    if !db::seals::try_lock(&mut tx).await? {
        return Ok(false);
    }
    let latest = db::seals::latest(&mut tx).await?;
    let (number, previous, after) = match &latest {
        None => (1, BEGINNING, 0),
        Some(row) => {
            let hash = row.hash.as_slice().try_into().map_err(Error::internal)?;
            (
                row.number + 1,
                hash,
                row.seqs.last().copied().unwrap_or_default(),
            )
        }
    };
    // The limit is read before the events, as `db::events::find_complete_end` requires.
    let whole = db::events::find_complete_end(&mut tx).await?;
    let events = db::seals::list_digests(&mut tx, after, whole, BATCH).await?;
    let full = i64::try_from(events.len()).unwrap_or(BATCH) == BATCH;
    if !events.is_empty() {
        let seal = Seal {
            number,
            previous,
            sealed_at: microseconds(app.clock.now())?,
            events,
        };
        db::seals::insert(&mut tx, &seal).await?;
        announce(app, &mut tx, &seal).await?;
    }
    tx.commit().await?;
    Ok(full)
}

/// Emits an event about a seal when a webhook subscribes to the topic. A delivered seal has left
/// the database. A seal covering only such events emits none, because each event would cause a
/// further seal forever.
async fn announce(app: &App, conn: &mut PgConnection, seal: &Seal) -> Result<(), Error> {
    let (Some((first, _)), Some((last, _))) = (seal.events.first(), seal.events.last()) else {
        return Ok(());
    };
    let topics = [SEALED, "audit.*", "*"].map(str::to_owned);
    if !db::webhooks::is_wanted(conn, &topics).await?
        || !db::seals::holds_others(conn, *first, *last, SEALED).await?
    {
        return Ok(());
    }
    let at = app.clock.now();
    let anchor = Anchor {
        number: seal.number,
        last_seq: *last,
        hash: hex::encode(seal.hash()),
        at,
    };
    let event = NewEvent::new(
        at,
        "muster",
        SEALED,
        format!("the history is sealed up to event {last}"),
    )
    .with(serde_json::to_value(&anchor).map_err(Error::internal)?);
    db::events::insert(conn, event).await
}

/// Truncates a time to microseconds, the precision of Postgres.
fn microseconds(at: jiff::Timestamp) -> Result<jiff::Timestamp, Error> {
    jiff::Timestamp::from_microsecond(at.as_microsecond()).map_err(Error::internal)
}

/// Appends one line. The line is synced to disk before the function returns. Replicas sharing the
/// file may write the same seal twice.
async fn append(path: &Path, anchor: &Anchor) -> anyhow::Result<()> {
    let line = serde_json::to_string(anchor)? + "\n";
    let write = async {
        let mut file = tokio::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .await?;
        file.write_all(line.as_bytes()).await?;
        file.flush().await?;
        file.sync_data().await
    };
    write
        .await
        .with_context(|| format!("write {}", path.display()))
}
