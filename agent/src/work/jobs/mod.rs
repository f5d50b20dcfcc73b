//! A file per kind of job. Each file states the behaviour after a crash: `idempotent` (repeated),
//! `observe, then act` (checked first), or `once` (the act is committed on the server first and
//! never repeated without a check).
//!
//! An executor can be dropped at any point, as in a killed agent. Every wait reports the awaited
//! condition and ends with the job.

mod adopt; // Adopts a machine installed by others
mod boot_disk; // Boots the installed OS
mod boot_live; // Boots the live image
mod cluster; // Membership in a cluster
mod firmware; // Sets firmware and BIOS settings
mod gates; // Runs gates, with a network peer
mod identity; // Checks the identity of a machine
mod inventory; // Reads the inventory of a node
pub(super) mod node_job; // Follows work done by muster-node
mod pair; // Measures between two nodes
mod power; // Power acts through a BMC
mod power_off; // Powers off, with confirmation
mod power_on; // Powers on or cycles on request
mod reach; // Opens a session on a node
mod reboot; // Reboots into a new boot
mod revoke; // Writes the list of revoked keys
mod rotate_bmc; // Changes the password of a BMC
mod signed_live; // Signatures of live images
mod supply; // Fetches blobs before a node needs them
#[cfg(test)]
mod tests; // Power acts through failing BMCs

use muster_core::clusters::Drain;
use muster_core::gates::{RUN_BYTES, cut_evidence};
use muster_core::stacks::ConvergePlan;
use muster_core::wire::job::JobSpec;
use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, FailureCode, Work, WorkResult, WriteImage};
use muster_core::wire::result::JobResult;

use super::context::{JobContext, fatal};

/// Executes the job.
pub(super) async fn execute(context: &JobContext) -> Result<JobResult, Failure> {
    if ends_live_image(&context.job.spec) {
        context.agent.boots.end_live(context.job.node);
    }
    match &context.job.spec {
        JobSpec::BootLive(spec) => boot_live::run(context, spec).await,
        JobSpec::Inventory { login, cabled } => inventory::run(context, login, cabled).await,
        JobSpec::PowerOff {
            power,
            login,
            permit,
        } => power_off::run(context, power, login.as_ref(), *permit).await,
        JobSpec::WriteImage { login, plan } => write_image(context, login, plan).await,
        JobSpec::BootDisk {
            power,
            login,
            live,
            permit,
        } => boot_disk::run(context, power, login, live.as_ref(), *permit).await,
        JobSpec::Converge { login, plan } => converge(context, login, plan).await,
        JobSpec::Reboot {
            power,
            login,
            permit,
        } => reboot::run(context, power, login, *permit).await,
        JobSpec::Gates { login, plan } => gates::run(context, login, plan).await,
        // The view of the controller decides. The gates have already checked the node.
        JobSpec::Admit {
            cluster,
            revision,
            name,
            login: _,
            lifts,
        } => cluster::admit(context, cluster, *revision, name, *lifts).await,
        JobSpec::Drain {
            cluster,
            name,
            reason,
            requeue,
        } => {
            let drain = Drain {
                reason: *reason,
                requeue: *requeue,
            };
            cluster::drain(context, cluster, name, drain).await
        }
        JobSpec::Remove {
            cluster,
            revision,
            name,
        } => cluster::remove(context, cluster, *revision, name).await,
        JobSpec::Wipe { login, plan } => follow(context, login, Work::Wipe(plan.clone())).await,
        JobSpec::Adopt(adopt) => adopt::run(context, adopt).await,
        JobSpec::PowerOn { power, permit } => power_on::run(context, power, *permit).await,
        JobSpec::PowerCycle { power, permit } => power_on::cycle(context, power, *permit).await,
        JobSpec::RotateBmc(order) => rotate_bmc::run(context, order).await,
        JobSpec::Pair(order) => pair::run(context, order).await,
        JobSpec::Firmware(order) => firmware::run(context, order).await,
    }
}

async fn write_image(
    context: &JobContext,
    login: &Login,
    plan: &WriteImage,
) -> Result<JobResult, Failure> {
    supply::hold_blob(context, plan.digest).await?;
    let written = follow(context, login, Work::WriteImage(plan.clone())).await;
    // The blob was damaged in the cache or during the transfer. The next attempt checks the blob
    // first.
    if written
        .as_ref()
        .is_err_and(|failure| failure.code == FailureCode::DigestMismatch)
    {
        context.agent.blobs.doubt(plan.digest);
    }
    written
}

async fn converge(
    context: &JobContext,
    login: &Login,
    plan: &ConvergePlan,
) -> Result<JobResult, Failure> {
    // A dry run only compares and needs no bundle.
    if !plan.dry_run {
        // The node receives muster-node while the site fetches the bundle.
        tokio::try_join!(
            supply::hold_bundle(context, plan),
            node_job::prepare(context, login)
        )?;
    }
    follow(context, login, Work::Converge(plan.clone())).await
}

/// Returns whether the job ends the run of the live image. The next start of the machine then
/// fetches a boot script without an alarm. `BootLive` ends the run itself, when the next boot is
/// armed.
fn ends_live_image(spec: &JobSpec) -> bool {
    match spec {
        JobSpec::PowerOff { .. }
        | JobSpec::BootDisk { .. }
        | JobSpec::Reboot { .. }
        | JobSpec::PowerOn { .. }
        | JobSpec::PowerCycle { .. }
        | JobSpec::Firmware(_) => true,
        JobSpec::BootLive(_)
        | JobSpec::Inventory { .. }
        | JobSpec::WriteImage { .. }
        | JobSpec::Converge { .. }
        | JobSpec::Gates { .. }
        | JobSpec::Admit { .. }
        | JobSpec::Drain { .. }
        | JobSpec::Remove { .. }
        | JobSpec::Wipe { .. }
        | JobSpec::Adopt(_)
        | JobSpec::RotateBmc(_)
        | JobSpec::Pair(_) => false,
    }
}

/// Returns whether the job can act without asking the server first. Such a job stops when the lease
/// is uncertain. Other jobs commit every act on the server first, or follow work on the node that a
/// later attempt also finds there.
pub(super) fn acts_unasked(spec: &JobSpec) -> bool {
    match spec {
        JobSpec::PowerOff { .. }
        | JobSpec::Reboot { .. }
        | JobSpec::Admit { .. }
        | JobSpec::Drain { .. }
        | JobSpec::Remove { .. }
        | JobSpec::Pair(_) => true,
        JobSpec::BootLive(_)
        | JobSpec::Inventory { .. }
        | JobSpec::WriteImage { .. }
        | JobSpec::BootDisk { .. }
        | JobSpec::Converge { .. }
        | JobSpec::Gates { .. }
        | JobSpec::Adopt(_)
        | JobSpec::PowerOn { .. }
        | JobSpec::PowerCycle { .. }
        | JobSpec::RotateBmc(_)
        | JobSpec::Firmware(_)
        | JobSpec::Wipe { .. } => false,
    }
}

/// Returns whether the job can be stopped while running. A job writing firmware must finish first,
/// because a machine losing power during the write may never start again.
pub(super) fn may_be_stopped(spec: &JobSpec) -> bool {
    !matches!(spec, JobSpec::Firmware(order) if order.permit.is_some())
}

/// Cancels the work on the node after a cancellation of the job.
pub(super) async fn cancel(context: &JobContext) {
    if let Some(login) = node_side(&context.job.spec) {
        node_job::cancel(context, login).await;
    }
}

fn node_side(spec: &JobSpec) -> Option<&Login> {
    match spec {
        JobSpec::WriteImage { login, .. }
        | JobSpec::Converge { login, .. }
        | JobSpec::Gates { login, .. }
        | JobSpec::Wipe { login, .. } => Some(login),
        JobSpec::BootLive(_)
        | JobSpec::Adopt(_)
        | JobSpec::Inventory { .. }
        | JobSpec::PowerOff { .. }
        | JobSpec::PowerOn { .. }
        | JobSpec::PowerCycle { .. }
        | JobSpec::RotateBmc(_)
        | JobSpec::Firmware(_)
        | JobSpec::BootDisk { .. }
        | JobSpec::Reboot { .. }
        | JobSpec::Admit { .. }
        | JobSpec::Drain { .. }
        | JobSpec::Pair(_)
        | JobSpec::Remove { .. } => None,
    }
}

/// Follows work on the node. Idempotent: muster-node keeps a single process per job and refuses
/// stale attempts. The permit of the plan protects the written disks.
async fn follow(context: &JobContext, login: &Login, work: Work) -> Result<JobResult, Failure> {
    let asked = context.job.spec.kind();
    match (asked, node_job::run(context, login, work).await?) {
        // Only the agent may use the code `StaleOnNode`, because the server detects a restored
        // database by the code.
        (_, WorkResult::Failed(failure)) if failure.code == FailureCode::StaleOnNode => {
            Err(Failure {
                code: FailureCode::NodeProtocol,
                ..failure
            })
        }
        (_, WorkResult::Failed(failure)) => Err(failure),
        ("write_image", WorkResult::ImageWritten(written)) => Ok(JobResult::ImageWritten(written)),
        ("converge", WorkResult::Converged(report)) => Ok(JobResult::Converged(report)),
        (
            "gates",
            WorkResult::Gated {
                mut results,
                fingerprint,
            },
        ) => {
            // The result stays in memory until the server has accepted it.
            cut_evidence(&mut results, RUN_BYTES);
            Ok(JobResult::Gated {
                results,
                fingerprint,
            })
        }
        ("wipe", WorkResult::Wiped { disks }) => Ok(JobResult::Wiped { disks }),
        (asked, _) => Err(fatal(
            FailureCode::NodeProtocol,
            format!("the node answered {asked} with another job's result"),
        )),
    }
}
