//! Carries what the boot listener saw to the server, in batches. Nothing waits for it: the queue it reads is bounded and drops.

use std::sync::Arc;
use std::time::Duration;

use muster_core::wire::calls::Sighting;
use tokio::sync::mpsc;

use super::agent::Agent;
use super::backoff::Backoff;

/// Sightings kept while the server is away: some 1 MB.
pub(super) const QUEUE: usize = 4096;
const BATCH: usize = 256;
/// A booting machine is seen several times in one second: one call tells them all.
const GATHER: Duration = Duration::from_millis(500);

/// Forwards until the queue's other end is gone.
pub(super) async fn forward(agent: Arc<Agent>, mut queue: mpsc::Receiver<Sighting>) {
    let mut batch = Vec::new();
    while let Some(first) = queue.recv().await {
        batch.push(first);
        tokio::time::sleep(GATHER).await;
        while batch.len() < BATCH
            && let Ok(next) = queue.try_recv()
        {
            batch.push(next);
        }
        tell(&agent, std::mem::take(&mut batch)).await;
    }
}

async fn tell(agent: &Agent, batch: Vec<Sighting>) {
    let mut backoff = Backoff::new(Duration::from_secs(15));
    while let Err(error) = agent.server.report_sightings(batch.clone()).await {
        agent.heed(&error);
        if !error.retryable() {
            tracing::warn!(%error, dropped = batch.len(), "the server does not take these sightings");
            return;
        }
        backoff.pause().await;
    }
}
