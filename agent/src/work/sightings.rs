//! Sends the sightings of the boot listeners to the server in batches. The listeners never wait:
//! the queue is limited and drops sightings when full.

use std::sync::Arc;
use std::time::Duration;

use muster_core::wire::calls::{Seen, Sighting};
use tokio::sync::mpsc;

use super::agent::Agent;
use super::backoff::Backoff;
use super::client::error::CallError;

/// Maximum number of sightings kept while the server is unreachable, about 1 MB.
pub(super) const QUEUE: usize = 4096;
const BATCH: usize = 256;
/// Delay before a call. A booting machine is seen several times per second, and a single call
/// reports all sightings.
const GATHER: Duration = Duration::from_millis(500);

/// Sends sightings until the other end of the queue is dropped.
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

async fn tell(agent: &Agent, mut batch: Vec<Sighting>) {
    let mut backoff = Backoff::new(Duration::from_secs(15));
    while let Err(error) = agent.server.report_sightings(batch.clone()).await {
        agent.heed(&error);
        if is_of_content(&error) && use_former_kinds(&mut batch) {
            continue;
        }
        if !error.retryable() {
            tracing::warn!(%error, dropped = batch.len(), "sightings rejected by the server and dropped");
            return;
        }
        backoff.pause().await;
    }
}

/// Returns whether the server refuses the content of the call. Only such an answer may come from a
/// server that does not know a word.
fn is_of_content(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Refused {
            status: 400 | 422,
            ..
        }
    )
}

/// Replaces the kinds of sighting that a server of the previous version refuses. Returns whether
/// the batch had such a kind.
fn use_former_kinds(batch: &mut [Sighting]) -> bool {
    let mut has_changed = false;
    for sighting in batch {
        if sighting.what == Seen::FetchedTwice {
            sighting.what = Seen::Script;
            has_changed = true;
        }
    }
    has_changed
}

#[cfg(test)]
mod tests {
    use muster_core::values::Mac;

    use super::*;

    #[test]
    fn only_a_refusal_of_the_content_changes_the_kinds() {
        let refused = |status| CallError::Refused {
            status,
            code: "refused".to_owned(),
            detail: String::new(),
        };
        for (error, is_content) in [
            (refused(400), true),
            (refused(422), true),
            (refused(401), false),
            (refused(403), false),
            (refused(409), false),
            (CallError::StaleEpoch, false),
            (CallError::Away(String::new()), false),
        ] {
            assert_eq!(is_of_content(&error), is_content, "{error}");
        }
    }

    #[test]
    fn a_refused_batch_is_written_in_the_former_kinds_once() {
        let seen = |what| Sighting {
            at: jiff::Timestamp::UNIX_EPOCH,
            mac: Mac([0x52, 0x54, 0, 0, 0, 1]),
            what,
            uuid: None,
            serial: None,
            detail: String::new(),
        };
        let mut batch = vec![seen(Seen::Dhcp), seen(Seen::FetchedTwice)];
        assert!(use_former_kinds(&mut batch));
        assert_eq!(batch, [seen(Seen::Dhcp), seen(Seen::Script)]);
        assert!(!use_former_kinds(&mut batch));
    }
}
