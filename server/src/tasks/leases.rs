//! A worker that went silent loses its jobs: they are queued again, and only a newer attempt may commit.

use std::time::Duration;

use muster_core::lifecycle::steps::Step;
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
    for job in expired {
        // Neither done nor failed: the next worker looks first, and until then it is said that nobody knows.
        let told = job.step.parse::<Step>().map_or("another look", Step::observation);
        let summary = format!("the agent was not heard of; how {} ended is unknown, {told} will tell", job.step);
        if let Some(operation) = job.operation {
            db::operations::set_unknown(&mut tx, operation, &summary).await?;
        }
        let event = NewEvent::node(now, "muster", "job.lease_expired", job.node, summary).under(job.operation);
        db::events::insert(&mut tx, event.with(json!({ "job": job.id }))).await?;
        db::lifecycle::make_due(&mut tx, job.node, now).await?;
    }
    tx.commit().await?;
    if some {
        app.wake_engine.notify_one();
        app.wake_agents.notify_waiters();
    }
    Ok(())
}
