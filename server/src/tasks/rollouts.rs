//! Ticks of the open rollouts.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::error::Error;
use crate::intents::rollouts;

/// Interval of the ticks. Acts on nodes take minutes.
const EVERY: Duration = Duration::from_secs(5);

/// Runs one tick of every open rollout. Returns whether a rollout has changed.
///
/// # Errors
///
/// When the database is unavailable.
pub async fn round(app: &App) -> Result<bool, Error> {
    rollouts::advance(app).await
}

pub(super) async fn run(app: App, cancel: CancellationToken) {
    loop {
        if let Err(error) = round(&app).await {
            tracing::warn!(error = ?error, "rollouts could not go on; tried again in a few seconds");
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}
