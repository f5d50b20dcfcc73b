//! Ticks of the open rollouts, and the estimates of large ones.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::error::Error;
use crate::intents::rollouts;

/// Interval of the ticks. Acts on nodes take minutes.
const EVERY: Duration = Duration::from_secs(5);

/// Starts the due rollouts, and runs one tick of every open rollout. Returns whether a rollout has
/// changed.
///
/// # Errors
///
/// When the database is unavailable.
pub async fn round(app: &App) -> Result<bool, Error> {
    let started = rollouts::start_due(app).await?;
    Ok(rollouts::advance(app).await? || started > 0)
}

/// Interval of the looks for a due estimate.
const ESTIMATES_EVERY: Duration = Duration::from_secs(20);

/// Calculates the due estimates of large rollouts. Returns their number.
///
/// # Errors
///
/// When the database is unavailable.
pub async fn estimate(app: &App) -> Result<usize, Error> {
    rollouts::estimate_large(app).await
}

/// Calculates due estimates, beside the ticks.
pub(super) async fn run_estimates(app: App, cancel: CancellationToken) {
    loop {
        let estimated = tokio::select! {
            () = cancel.cancelled() => return,
            estimated = estimate(&app) => estimated,
        };
        if let Err(error) = estimated {
            tracing::warn!(error = ?error, "rollouts could not be estimated; tried again at the next turn");
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(ESTIMATES_EVERY) => {}
        }
    }
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
