//! Stores the id of the latest event outside the database, in a file beside the blobs. A database
//! without the stored event was restored from an older copy. Agents store the latest event as well.
//! The file also covers events not yet sent to an agent.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use muster_core::ids::EventId;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::db;
use crate::engine::caution::{self, Witness};

const EVERY: Duration = Duration::from_secs(2);

pub(super) async fn run(app: App, cancel: CancellationToken) {
    loop {
        if let Err(error) = compare(&app).await {
            tracing::warn!(error = ?error, "the latest event could not be remembered; tried again shortly");
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Checks whether the database contains the stored event, then stores the latest event. Runs before
/// all other work of a replica.
///
/// # Errors
///
/// When the database fails, or the file cannot be read or written.
pub async fn compare(app: &App) -> anyhow::Result<()> {
    let path = app.blobs.join("latest-event");
    let remembered = match tokio::fs::read_to_string(&path).await {
        Ok(text) => Some(
            text.trim()
                .parse::<EventId>()
                .with_context(|| format!("{}: not an event", path.display()))?,
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
    };
    let mut tx = app.pool.begin().await?;
    if let Some(event) = remembered
        && !db::cautions::is_known_event(&mut tx, event).await?
    {
        let because =
            format!("A server wrote down the event {event}, and the database does not have it.");
        caution::notice(
            &mut tx,
            &Witness::of_replica(event, &because),
            app.clock.now(),
        )
        .await?;
    }
    let latest = db::cautions::latest_event(&mut tx).await?;
    tx.commit().await?;
    if let Some(latest) = latest.filter(|latest| Some(*latest) != remembered) {
        write(path, latest).await?;
    }
    Ok(())
}

/// Replaces the file atomically. Replicas sharing the directory each write a draft file of their
/// own first.
async fn write(path: PathBuf, event: EventId) -> anyhow::Result<()> {
    let draft = path.with_extension(format!("{:016x}", rand::random::<u64>()));
    let place = format!("write {}", draft.display());
    tokio::fs::write(&draft, event.to_string())
        .await
        .context(place)?;
    tokio::fs::rename(&draft, &path)
        .await
        .with_context(|| format!("replace {}", path.display()))
}
