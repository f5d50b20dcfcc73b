//! Adds and removes nodes in the scheduler of a cluster of any kind. Idempotent: each operation
//! compares the state of the scheduler with the wanted state and repairs the difference.

use std::sync::Arc;

use muster_core::clusters::{ClusterSpec, Drain, DrainReason, Member};
use muster_core::wire::node::Failure;
use muster_core::wire::result::JobResult;

use crate::cluster::{Cluster, ClusterError};
use crate::work::context::JobContext;

pub(super) async fn admit(
    context: &JobContext,
    cluster: &ClusterSpec,
    revision: i64,
    name: &str,
    lifts: Option<DrainReason>,
) -> Result<JobResult, Failure> {
    let cluster = context.agent.clusters.open(cluster);
    let members = list_members(context, &cluster, revision).await?;
    let watch = context.watch(context.remaining());
    let view = cluster.admit(&members, name, lifts, &watch).await?;
    Ok(JobResult::Admitted { view })
}

pub(super) async fn drain(
    context: &JobContext,
    cluster: &ClusterSpec,
    name: &str,
    drain: Drain,
) -> Result<JobResult, Failure> {
    let cluster = context.agent.clusters.open(cluster);
    cluster
        .drain(name, drain, &context.watch(context.remaining()))
        .await?;
    Ok(JobResult::Drained)
}

pub(super) async fn remove(
    context: &JobContext,
    cluster: &ClusterSpec,
    revision: i64,
    name: &str,
) -> Result<JobResult, Failure> {
    let cluster = context.agent.clusters.open(cluster);
    let members = list_members(context, &cluster, revision).await?;
    cluster
        .remove(&members, name, &context.watch(context.remaining()))
        .await?;
    Ok(JobResult::Removed)
}

/// Returns a member list at least as new as the order of the job. Uses the known list, or asks the
/// server once for all waiting jobs.
async fn list_members(
    context: &JobContext,
    cluster: &Cluster,
    revision: i64,
) -> Result<Arc<[Member]>, Failure> {
    let _alone = cluster.asking().await;
    if let Some(members) = cluster.members_since(revision) {
        return Ok(members);
    }
    let listed = context.list_members().await?;
    cluster.note_members(listed.revision, &listed.nodes);
    Ok(listed.nodes.into())
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            retryable: error.retryable(),
        }
    }
}
