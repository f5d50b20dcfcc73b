//! Takes due nodes, asks the lifecycle, persists the answer. Never calls the outside world: what must act is a job.

pub mod caution; // When the database is older than what others remember
pub mod orders; // Builds what an agent is told, when it leases a job
pub mod outcomes; // Applies what an agent reports
pub mod permits; // Decides whether a permit may be redeemed
mod turn; // One node's turn, in one transaction

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::error::Error;

/// The poll is the truth; being woken only shortens the wait.
const POLL: Duration = Duration::from_secs(1);

/// Works until cancelled. Several may run, in one process or many: due nodes are shared out by row locks.
pub async fn run(app: App, cancel: CancellationToken) {
    loop {
        match run_until_idle(&app).await {
            Ok(turns) => metrics::counter!("muster_engine_turns_total").increment(turns),
            Err(error) => {
                tracing::warn!(error = ?error, "the engine could not finish its round; it goes on at the next poll")
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = app.wake_engine.notified() => {}
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

/// Gives every due node its turn; returns how many turns that took. Tests drive the engine with it.
///
/// # Errors
/// When the database fails.
pub async fn run_until_idle(app: &App) -> Result<u64, Error> {
    let mut turns = 0;
    while turn::take(app).await? {
        turns += 1;
    }
    if turns > 0 {
        app.wake_agents.notify_waiters();
        app.wake_readers.send_modify(|revision| *revision += 1);
    }
    Ok(turns)
}
