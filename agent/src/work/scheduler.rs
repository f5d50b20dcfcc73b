//! Looks at the schedulers of its site for nodes that take no jobs, and tells the server. It only looks; whose drain it is, and what follows, the server
//! says.

use std::sync::Arc;
use std::time::Duration;

use muster_core::wire::scheduler::{ClusterLook, SchedulerWatch, WatchedCluster};

use super::agent::Agent;
use super::client::error::CallError;

/// Until the server says otherwise, and where it does not answer.
const EVERY: Duration = Duration::from_secs(60);
/// What the server says is kept within these.
const SOONEST_S: u64 = 10;
const LATEST_S: u64 = 3600;

/// Looks and tells for ever. An older server knows no such call, and is asked again as it may be a newer one by then.
pub(super) async fn watch(agent: Arc<Agent>) {
    let mut clusters: Vec<WatchedCluster> = Vec::new();
    loop {
        let mut looks = Vec::with_capacity(clusters.len());
        for WatchedCluster { id, slurm } in &clusters {
            match agent.controllers.open(slurm).nodes_out().await {
                Ok(out) => looks.push(ClusterLook { cluster: *id, out }),
                // Nothing is known of its nodes, and nothing is told of them.
                Err(error) => {
                    tracing::debug!(%error, conf = slurm.conf, "a scheduler does not say which nodes take no jobs")
                }
            }
        }
        let pause = match agent.server.report_scheduler(looks).await {
            Ok(SchedulerWatch {
                clusters: next,
                every_s,
            }) => {
                let first = clusters.is_empty() && !next.is_empty();
                clusters = next;
                if first {
                    Duration::ZERO
                } else {
                    Duration::from_secs(every_s.clamp(SOONEST_S, LATEST_S))
                }
            }
            Err(error) => {
                agent.heed(&error);
                if !matches!(error, CallError::StaleEpoch) {
                    tracing::debug!(%error, "the server does not take what schedulers say");
                }
                EVERY
            }
        };
        tokio::time::sleep(pause).await;
    }
}
