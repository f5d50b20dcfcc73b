//! Background tasks of the server. Each task has bounded work per round and may run on every
//! replica at once.

pub mod certificates; // Warns about overdue agent certificates
pub mod clock; // Keeps the clock equal to the database's
pub mod drift; // Checks nodes against stacks, once a day
pub mod idempotency; // Deletes old answers
pub mod leases; // Queues jobs of silent agents again
mod looks; // Requests periodic work of nodes, a few at a time
pub mod marks; // Stores the latest event outside the database
pub mod replicas; // Creates claims until each pool has its replicas
pub mod seals; // Seals the history, and anchors the seals outside the database
pub mod sweeps; // Requests the pools' sweeps of nodes in service
pub mod webhooks; // Sends events to webhooks

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::App;

/// Runs every task until cancelled. A panic in a task ends the process, and the supervisor restarts
/// the whole process.
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
