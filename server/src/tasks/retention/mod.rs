//! Removes old records once an hour: records of nodes first, then blobs, events last. Each batch is
//! a separate transaction. Nodes under a legal hold keep all records. The first round is an hour
//! after the start, because a server of the version before still decides by events.

pub mod blob_uses; // Blobs in use, and the bundles with their files
pub mod blobs; // Blobs without a use
pub mod pairs; // Evidence of pair runs
pub mod records; // Job logs, evidence, facts and consoles
pub mod segments; // Events, in sealed segments

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;

const EVERY: Duration = Duration::from_hours(1);

pub(super) async fn run(app: App, cancel: CancellationToken) {
    let mut memory = blobs::Memory::default();
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        let removing = async {
            if let Err(error) = records::remove(&app).await {
                tracing::warn!(error = ?error, "old records were not removed; tried again in an hour");
            }
            if let Err(error) = pairs::remove(&app).await {
                tracing::warn!(error = ?error, "old evidence of pair runs was not removed; tried again in an hour");
            }
            if let Err(error) = blobs::remove(&app, &mut memory).await {
                tracing::warn!(error = ?error, "unused blobs were not removed; tried again in an hour");
            }
            if let Err(error) = segments::remove(&app).await {
                tracing::warn!(error = ?error, "old events were not removed; tried again in an hour");
            }
        };
        // A round over a large fleet takes minutes; a stop of the server ends the round.
        tokio::select! {
            () = cancel.cancelled() => return,
            () = removing => {}
        }
    }
}
