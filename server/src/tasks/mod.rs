//! Background work with an owner. Each task is bounded per round and may run on every replica at once.

pub mod certificates; // Tells of agents' certificates that are late
pub mod clock; // Keeps the time the database's
pub mod drift; // Holds nodes against their stacks, once a day
pub mod idempotency; // Forgets old answers
pub mod leases; // Puts back jobs whose worker went silent
mod looks; // What nodes in service are asked for, a few at a time
pub mod marks; // Remembers outside the database what was in it
pub mod replicas; // Has pools claim the nodes that they ask for
pub mod seals; // Seals the history, and writes down the seals outside the database
pub mod sweeps; // Has nodes in service run their pools' sweeps
pub mod webhooks; // Tells others what happened

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::App;

/// Runs every task until cancelled; a task that panics ends the process, which is restarted whole.
pub async fn run(app: App, cancel: CancellationToken) {
    let mut tasks = JoinSet::new();
    tasks.spawn(certificates::run(app.clone(), cancel.clone()));
    tasks.spawn(clock::run(app.clone(), cancel.clone()));
    tasks.spawn(drift::run(app.clone(), cancel.clone()));
    tasks.spawn(leases::run(app.clone(), cancel.clone()));
    tasks.spawn(idempotency::run(app.clone(), cancel.clone()));
    tasks.spawn(replicas::run(app.clone(), cancel.clone()));
    tasks.spawn(seals::run(app.clone(), cancel.clone()));
    tasks.spawn(sweeps::run(app.clone(), cancel.clone()));
    tasks.spawn(webhooks::run(app.clone(), cancel.clone()));
    tasks.spawn(marks::run(app, cancel));
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a background task does not panic");
    }
}
