//! Deletes the answers stored under idempotency keys after 7 days, when clients no longer repeat
//! the request.

use std::time::Duration;

use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::db;
use crate::error::Error;

const EVERY: Duration = Duration::from_mins(10);
/// Time during which a repeated request has a single effect.
const KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Rows deleted in one transaction.
const BATCH: u64 = 5000;

pub(super) async fn run(app: App, cancel: CancellationToken) {
    loop {
        if let Err(error) = forget(&app).await {
            tracing::warn!(error = ?error, "old idempotency keys could not be forgotten; tried again later");
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Deletes the old answers. Returns the number of deleted rows.
///
/// # Errors
///
/// When the database fails.
pub async fn forget(app: &App) -> Result<u64, Error> {
    let before = app.clock.now() - KEPT;
    let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
    let mut gone = 0;
    loop {
        let batch =
            db::idempotency::delete_old(&mut *app.pool.acquire().await?, before, limit).await?;
        gone += batch;
        if batch < BATCH {
            return Ok(gone);
        }
    }
}
