//! Warns about an agent with an overdue certificate renewal, while an operator still has time to
//! act. Deletes the rows of ended SSH certificates.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::error::Error;

const EVERY: Duration = Duration::from_secs(60);
/// Time after which the row of an SSH certificate without an end is deleted.
const KEPT: SignedDuration = SignedDuration::from_hours(400 * 24);
/// Rows of SSH certificates deleted in one transaction.
const BATCH: i64 = 5000;

pub(super) async fn run(app: App, cancel: CancellationToken) {
    loop {
        if let Err(error) = tell_late(&app).await {
            tracing::warn!(error = ?error, "agents' certificates could not be looked at; tried again shortly");
        }
        if let Err(error) = forget_ended(&app).await {
            tracing::warn!(error = ?error, "ended SSH certificates could not be deleted; tried again shortly");
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Emits one event for each certificate past three quarters of its lifetime and still the agent's
/// newest. The agent should have renewed the certificate at half of the lifetime.
///
/// # Errors
///
/// When the database fails.
pub async fn tell_late(app: &App) -> Result<(), Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    for late in db::enrolments::mark_late(&mut tx, now).await? {
        let ends = late.until.to_jiff();
        let summary = match ends <= now {
            true => format!(
                "the certificate of agent {} of {} ended at {ends:.0}: enrol it again",
                late.name, late.site_name
            ),
            false => format!(
                "agent {} of {} has not renewed its certificate, which ends at {ends:.0}: see the agent's log",
                late.name, late.site_name
            ),
        };
        let event = NewEvent::new(now, "muster", "agent.certificate_late", summary)
            .about(late.site)
            .with(json!({ "agent": late.id, "site": late.site_name, "certified_until": ends }));
        db::events::insert(&mut tx, event).await?;
    }
    Ok(tx.commit().await?)
}

/// Deletes the rows of SSH certificates that have ended, a batch at a time. Returns the number of
/// deleted rows.
///
/// # Errors
///
/// When the database fails.
pub async fn forget_ended(app: &App) -> Result<u64, Error> {
    let now = app.clock.now();
    let mut conn = app.pool.acquire().await?;
    db::ssh_certificates::delete_ended(&mut conn, now, now - KEPT, BATCH).await
}
