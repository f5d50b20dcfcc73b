//! Adds and removes nodes in the scheduler. Idempotent: each operation compares the state of the
//! controller with the wanted state and repairs the difference.

use std::sync::Arc;

use muster_core::clusters::{SlurmCluster, SlurmNode};
use muster_core::wire::node::Failure;
use muster_core::wire::result::JobResult;

use crate::cluster::slurm::{Controller, SlurmError};
use crate::work::context::JobContext;

pub(super) async fn admit(
    context: &JobContext,
    cluster: &SlurmCluster,
    revision: i64,
    name: &str,
    lifts: Option<&str>,
) -> Result<JobResult, Failure> {
    let controller = context.agent.controllers.open(cluster);
    let nodes = members(context, &controller, revision).await?;
    let watch = context.watch(context.remaining());
    let view = match lifts {
        None => controller.admit(&nodes, name, &watch).await?,
        Some(ours) => controller.give_back(&nodes, name, ours, &watch).await?,
    };
    Ok(JobResult::Admitted {
        view: view.to_string(),
    })
}

pub(super) async fn drain(
    context: &JobContext,
    cluster: &SlurmCluster,
    name: &str,
    reason: &str,
) -> Result<JobResult, Failure> {
    let controller = context.agent.controllers.open(cluster);
    controller
        .drain(name, reason, &context.watch(context.remaining()))
        .await?;
    Ok(JobResult::Drained)
}

pub(super) async fn remove(
    context: &JobContext,
    cluster: &SlurmCluster,
    revision: i64,
    name: &str,
) -> Result<JobResult, Failure> {
    let controller = context.agent.controllers.open(cluster);
    let nodes = members(context, &controller, revision).await?;
    controller
        .remove(&nodes, name, &context.watch(context.remaining()))
        .await?;
    Ok(JobResult::Removed)
}

/// Returns a member list at least as new as the order of the job. Uses the known list, or asks the
/// server once for all waiting jobs.
async fn members(
    context: &JobContext,
    controller: &Controller,
    revision: i64,
) -> Result<Arc<[SlurmNode]>, Failure> {
    let _alone = controller.asking().await;
    if let Some(nodes) = controller.members_since(revision) {
        return Ok(nodes);
    }
    let listed = context.list_members().await?;
    controller.note_members(listed.revision, &listed.nodes);
    Ok(listed.nodes.into())
}

impl From<SlurmError> for Failure {
    fn from(error: SlurmError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            retryable: error.retryable(),
        }
    }
}
