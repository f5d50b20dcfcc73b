//! A worker that went silent loses its jobs: they are queued again, and only a newer attempt may commit.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::error::Error;

const EVERY: Duration = Duration::from_secs(2);

pub(super) async fn run(app: App, cancel: CancellationToken) {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = expire(&app).await {
            tracing::warn!(error = ?error, "leases could not be looked at; tried again shortly");
        }
    }
}

/// Puts back what has expired.
///
/// # Errors
/// When the database fails.
pub async fn expire(app: &App) -> Result<(), Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let expired = db::jobs::expire_leases(&mut tx, now).await?;
    let some = !expired.is_empty();
    for (job, node) in expired {
        let summary = "the agent was not heard of; its job is queued again".to_owned();
        let event = NewEvent::node(now, "muster", "job.lease_expired", node, summary).with(json!({ "job": job }));
        db::events::insert(&mut tx, event).await?;
    }
    tx.commit().await?;
    if some {
        app.wake_agents.notify_waiters();
    }
    Ok(())
}
