//! Reconciles due nodes: reads a node, asks the lifecycle for a decision, and stores the result.
//! The engine never calls external systems. Every external action is a job.

#![warn(clippy::wildcard_enum_match_arm)]

mod cabling; // Misplaced cables
pub mod caution; // A database older than other systems remember
pub mod compatibility; // Compatibility of stacks with nodes
mod decisions; // The decision of a pass
pub mod disruption; // Slots of the disruption budget
mod drift; // Nodes with drift
mod firmware; // Firmware and BIOS reported by BMCs
mod moves; // State transitions
pub mod node_clocks; // Clocks of installed systems
mod observations; // Records the observations of a successful job
pub mod orders; // Builds the order of a job when an agent leases the job
pub mod outcomes; // Applies the outcomes reported by agents
mod pairs; // Measurements between two nodes
mod pass; // A reconcile pass over a node, in one transaction
pub mod permits; // Decides whether a permit may be redeemed
mod recoveries; // Recoveries of failed nodes
pub mod releases; // The beginning of a release
pub mod remains; // Facts of deleted nodes, merged into the next record of the machine
pub mod replacements; // Claims moving to another node
pub mod revocations; // Nodes that refuse the SSH certificates of removed agents
pub mod signatures; // Signatures of images, and the keys trusted by the fleet
mod snapshot; // The lifecycle's view of a node
pub mod strangers; // Machines that discovered themselves, within limits
mod waivers; // Gates counted as passed by a waiver
mod work; // Jobs and permits

use std::time::Duration;

use jiff::SignedDuration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::pass::Pass;
pub use self::pass::{Reconciled, reconcile_now};
use crate::app::App;
use crate::error::Error;

/// Interval of the poll. Correctness depends only on the poll. Waking the engine shortens the wait.
const POLL: Duration = Duration::from_secs(1);

/// Time after which a waiting node is checked again without a wake-up.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// Concurrent passes of one process. Most of a pass is waiting for the database.
pub const WORKERS: usize = 8;

/// Shortest time between two notices to readers during continuous work.
const TELL_READERS: Duration = Duration::from_millis(200);

/// Works until cancelled. Several engines may run, in one process or many. Row locks share the due
/// nodes among the engines.
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
            Ok(passes) => metrics::counter!("muster_engine_turns_total").increment(passes),
            Err(error) => {
                tracing::warn!(error = ?error, "the engine stopped with an error and continues at the next poll")
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = app.wake_engine.notified() => {}
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

/// Runs a pass for every due node, and returns the number of passes. Tests drive the engine with
/// this function.
///
/// # Errors
///
/// When the database fails.
pub async fn run_until_idle(app: &App) -> Result<u64, Error> {
    let mut passes = 0;
    let mut told = Instant::now();
    loop {
        while let Some(result) = pass::run_next(app).await? {
            passes += 1;
            if result == Pass::QueuedJob {
                app.wake_agents.notify_waiters();
            }
            if told.elapsed() >= TELL_READERS {
                told = Instant::now();
                app.wake_readers.send_modify(|revision| *revision += 1);
            }
        }
        // Settling a replacement or a pair run can make nodes due, so the loop starts again.
        if !(replacements::take(app).await? || pairs::advance_runs(app).await?) {
            break;
        }
        passes += 1;
    }
    if passes > 0 {
        app.wake_readers.send_modify(|revision| *revision += 1);
    }
    Ok(passes)
}
