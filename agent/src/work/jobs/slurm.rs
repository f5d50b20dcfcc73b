//! Into and out of the scheduler. Idempotent: each looks at what the controller knows and mends the difference.

use muster_core::clusters::{SlurmCluster, SlurmNode};
use muster_core::wire::agent::JobResult;
use muster_core::wire::node::Failure;

use crate::cluster::slurm::SlurmError;
use crate::work::context::JobContext;

pub(super) async fn admit(
    context: &JobContext,
    cluster: &SlurmCluster,
    (revision, nodes): (i64, &[SlurmNode]),
    name: &str,
) -> Result<JobResult, Failure> {
    let controller = context.agent.controllers.open(cluster);
    controller.note_members(revision, nodes);
    let view = controller.admit(nodes, name, &context.watch(context.remaining())).await?;
    Ok(JobResult::Admitted { view: view.to_string() })
}

pub(super) async fn drain(
    context: &JobContext,
    cluster: &SlurmCluster,
    name: &str,
    reason: &str,
) -> Result<JobResult, Failure> {
    let controller = context.agent.controllers.open(cluster);
    controller.drain(name, reason, &context.watch(context.remaining())).await?;
    Ok(JobResult::Drained)
}

pub(super) async fn remove(
    context: &JobContext,
    cluster: &SlurmCluster,
    (revision, nodes): (i64, &[SlurmNode]),
    name: &str,
) -> Result<JobResult, Failure> {
    let controller = context.agent.controllers.open(cluster);
    controller.note_members(revision, nodes);
    controller.remove(nodes, name, &context.watch(context.remaining())).await?;
    Ok(JobResult::Removed)
}

impl From<SlurmError> for Failure {
    fn from(error: SlurmError) -> Self {
        Self { code: error.code().into(), message: error.to_string(), retryable: error.retryable() }
    }
}
