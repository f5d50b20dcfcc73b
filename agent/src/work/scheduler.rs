//! Reports nodes out of service and running jobs, as seen by the schedulers of the site, to the
//! server. The agent only reads. The server decides about the owner of a drain and the consequences.

use std::sync::Arc;
use std::time::Duration;

use muster_core::wire::failure::Failure;
use muster_core::wire::scheduler::{
    ClusterLook, JobsLook, JobsReply, SchedulerWatch, WatchedCluster,
};

use super::agent::Agent;
use super::client::error::CallError;
use super::reservations::Reports;

/// Interval before the first answer of the server, and after an error.
const EVERY: Duration = Duration::from_secs(60);
/// Limits for the interval requested by the server.
const SOONEST_S: u64 = 10;
const LATEST_S: u64 = 3600;

/// Reports forever. An older server does not support the call. The call is repeated, because the
/// server can be upgraded in the meantime.
pub(super) async fn watch(agent: Arc<Agent>) {
    let mut clusters: Vec<WatchedCluster> = Vec::new();
    let mut reports = Reports::default();
    loop {
        let mut looks = Vec::with_capacity(clusters.len());
        for WatchedCluster { id, cluster } in &clusters {
            match agent.clusters.open(cluster).list_out().await {
                Ok(out) => looks.push(ClusterLook { cluster: *id, out }),
                // The state of the nodes is unknown, so no report is sent for this cluster.
                Err(error) => {
                    tracing::warn!(%error, cluster = %id, "the scheduler gave no list; nodes out of service are unknown for this cluster")
                }
            }
        }
        report_jobs(&agent, &clusters, &mut reports).await;
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
                    tracing::debug!(%error, "scheduler report not accepted by the server; retrying later");
                }
                EVERY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Reports the jobs of the clusters. Reports about nodes out of service go on without their jobs, if
/// a scheduler gives no list or the server knows no such call.
async fn report_jobs(agent: &Agent, clusters: &[WatchedCluster], reports: &mut Reports) {
    reports.keep(clusters);
    let mut looks = Vec::with_capacity(clusters.len());
    for WatchedCluster { id, cluster } in clusters {
        match agent.clusters.open(cluster).list_jobs().await {
            Ok(jobs) => looks.push(JobsLook {
                cluster: *id,
                jobs,
                reservations: reports.find(*id),
            }),
            Err(error) => {
                tracing::debug!(%error, cluster = %id, "the scheduler gave no list; jobs are unknown for this cluster")
            }
        }
    }
    if looks.is_empty() {
        return;
    }
    match agent.server.report_jobs(looks).await {
        Ok(reply) => {
            reports.heed(&reply);
            hold_back_jobs(agent, clusters, &reply, reports).await;
        }
        Err(error) => {
            reports.heed_error(&error);
            agent.heed(&error);
            tracing::debug!(%error, "jobs not accepted by the server; retrying later");
        }
    }
}

/// Keeps long jobs away from the nodes that wait for their change. A failure is reported, and repaired
/// by the next reply.
async fn hold_back_jobs(
    agent: &Agent,
    clusters: &[WatchedCluster],
    reply: &JobsReply,
    reports: &mut Reports,
) {
    for waits in &reply.clusters {
        // The reply can list only clusters of the report.
        let id = waits.cluster;
        let Some(watched) = clusters.iter().find(|watched| watched.id == id) else {
            continue;
        };
        let cluster = agent.clusters.open(&watched.cluster);
        let result = cluster.hold_back_jobs(waits, agent.clock.now()).await;
        if let Err(error) = &result {
            tracing::warn!(%error, cluster = %id, "reservations of waiting nodes not changed; retrying later");
        }
        let failure = result.err().map(|error| Failure {
            code: error.code(),
            message: error.to_string(),
            retryable: error.retryable(),
        });
        reports.record(waits, failure);
    }
}
