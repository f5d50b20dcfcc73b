//! Background tasks of the server. Each task has bounded work per round and may run on every
//! replica at once.

pub mod certificates; // Warns about overdue agent certificates, deletes ended SSH certificates
pub mod clock; // Keeps the clock equal to the database's
pub mod drift; // Checks nodes against stacks, once a day
pub mod idempotency; // Deletes old answers
pub mod keys; // Follows rotations of the master key
pub mod leases; // Queues jobs of silent agents again
mod looks; // Requests periodic work of nodes, a few at a time
pub mod marks; // Stores the latest event outside the database
pub mod monitors; // Asks the monitors
pub mod overdue; // Reports nodes past the deadline of their state
pub mod replicas; // Creates claims until each pool has its replicas
pub mod retention; // Removes old records and events
mod revisions; // Adds revisions missed by servers of the version before
pub mod rollouts; // Ticks of the open rollouts
mod row_seals; // Seals rows written by servers of the version before
pub mod seals; // Seals the history, and anchors the seals outside the database
pub mod sign_ins; // Sums up the failed logins of each minute and source
mod strangers; // Sums up minutes with many unknown machines
pub mod sweeps; // Requests the pools' sweeps of nodes in service
pub mod webhooks; // Sends events to webhooks

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use crate::app::App;

/// Runs every task until cancelled. A panic in a task ends the process, and the supervisor restarts
/// the whole process.
pub async fn run(app: App, cancel: CancellationToken) {
    let mut tasks = JoinSet::new();
    let running = certificates::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("certificates")));
    let running = clock::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("clock")));
    let running = drift::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("drift")));
    let running = keys::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("keys")));
    let running = leases::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("leases")));
    let running = idempotency::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("idempotency")));
    let running = monitors::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("monitors")));
    let running = overdue::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("overdue nodes")));
    let running = replicas::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("replicas")));
    let running = retention::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("retention")));
    let running = revisions::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("revisions")));
    let running = rollouts::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("rollouts")));
    let running = rollouts::run_estimates(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("rollout estimates")));
    let running = row_seals::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("row seals")));
    let running = seals::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("seals")));
    let running = strangers::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("strangers")));
    let running = sign_ins::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("sign-ins")));
    let running = sweeps::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("sweeps")));
    let running = webhooks::run(app.clone(), cancel.clone());
    tasks.spawn(running.instrument(span_of("webhooks")));
    let running = marks::run(app, cancel);
    tasks.spawn(running.instrument(span_of("marks")));
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a background task does not panic");
    }
}

/// Returns the span of a background task. A span at the level `error` is kept by every filter, so a
/// warning always names the task.
fn span_of(task: &'static str) -> Span {
    tracing::error_span!("task", task)
}
