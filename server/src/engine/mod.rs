//! Takes due nodes, asks the lifecycle, persists the answer. Never calls the outside world: what must act is a job.

#![warn(clippy::wildcard_enum_match_arm)]

mod cabling; // Cables that are not where they should be
pub mod caution; // When the database is older than what others remember
pub mod compatibility; // Stacks held against the nodes they go onto
mod decisions; // The decision of a turn
mod drift; // Nodes that differ from their stack
mod firmware; // What BMCs said of firmware and BIOS
mod moves; // From one state to the next
mod observations; // Records the observations of a successful job
pub mod orders; // Builds the order of a job when an agent leases the job
pub mod outcomes; // Applies the outcomes reported by agents
mod pairs; // Nodes measured against each other
pub mod permits; // Decides whether a permit may be redeemed
mod recoveries; // What is tried on nodes that fail
pub mod releases; // A claim is given up
pub mod replacements; // Claims that get another node
mod snapshot; // The lifecycle's view of a node
mod turn; // A node's turn, in one transaction
mod waivers; // Gates that count as passed all the same
mod work; // Jobs and their permits

use std::time::Duration;

use jiff::SignedDuration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::turn::Turn;
pub use self::turn::{Taken, take_at_once};
use crate::app::App;
use crate::error::Error;

/// The poll is the truth; being woken only shortens the wait.
const POLL: Duration = Duration::from_secs(1);

/// A waiting node is looked at again after this time even if nothing woke it.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// Turns under way at once in one process: most of a turn is waiting for the database.
pub const WORKERS: usize = 8;

/// Readers are told of changes this often while there is no end of them.
const TELL_READERS: Duration = Duration::from_millis(200);

/// Works until cancelled. Several may run, in one process or many: due nodes are shared out by row locks.
pub async fn run(app: App, cancel: CancellationToken) {
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        workers.spawn(work(app.clone(), cancel.clone()));
    }
    while let Some(ended) = workers.join_next().await {
        ended.expect("a worker of the engine does not panic");
    }
}

async fn work(app: App, cancel: CancellationToken) {
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
    let mut told = Instant::now();
    loop {
        while let Some(turn) = turn::take(app).await? {
            turns += 1;
            if turn == Turn::QueuedJob {
                app.wake_agents.notify_waiters();
            }
            if told.elapsed() >= TELL_READERS {
                told = Instant::now();
                app.wake_readers.send_modify(|revision| *revision += 1);
            }
        }
        // Nodes that changed owners have their turn, and what a run of pairs decides, its nodes do in theirs.
        if !(replacements::take(app).await? || pairs::advance_runs(app).await?) {
            break;
        }
        turns += 1;
    }
    if turns > 0 {
        app.wake_readers.send_modify(|revision| *revision += 1);
    }
    Ok(turns)
}
