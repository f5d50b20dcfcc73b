//! One file per kind of job. Each says what a crash in it may leave behind: `idempotent` (done again), `observe, then act` (looks first), or
//! `once` (its act is committed with the server first, and never repeated blindly).
//!
//! Dropping an executor at any point is safe: that is what a killed agent does. Every wait says what it waits for and ends with the job.

mod adopt; // A machine that somebody else installed
mod boot_disk; // Into the installed OS
mod boot_live; // Into the live image
mod firmware; // Firmware and BIOS as a stack wants them
mod gates; // The suite, with a peer for its network gate
mod identity; // Whether a machine is the one we mean
mod inventory; // What the node has
pub(super) mod node_job; // Work that muster-node does, followed
mod pair; // Two nodes that measure each other
mod power; // What the BMC says and does, within the rules for acts
mod power_off; // Off, and seen to be off
mod power_on; // On, or off and on, because somebody asked for it
mod reach; // A session on a node that is up, or coming up
mod reboot; // Out of one boot and into another
mod rotate_bmc; // Another password for its BMC
mod slurm; // Into and out of the scheduler
mod supply; // What a node will ask for, fetched beforehand
#[cfg(test)]
mod tests; // Power acts through BMCs that fail

use muster_core::stacks::ConvergePlan;
use muster_core::wire::job::JobSpec;
use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, FailureCode, Work, WorkResult, WriteImage};
use muster_core::wire::result::JobResult;

use super::context::{JobContext, fatal};

/// Does what the job's spec says.
pub(super) async fn execute(context: &JobContext) -> Result<JobResult, Failure> {
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
        // The controller's view is what counts; the node itself was judged by its gates.
        JobSpec::SlurmAdmit {
            cluster,
            revision,
            name,
            login: _,
            lifts,
        } => slurm::admit(context, cluster, *revision, name, lifts.as_deref()).await,
        JobSpec::SlurmDrain {
            cluster,
            name,
            reason,
        } => slurm::drain(context, cluster, name, reason).await,
        JobSpec::SlurmRemove {
            cluster,
            revision,
            name,
        } => slurm::remove(context, cluster, *revision, name).await,
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
    // The blob is damaged here or was damaged on its way: the next attempt checks the blob first.
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
    // A dry run only compares, and needs no bundle.
    if !plan.dry_run {
        // The node gets muster-node while the site gets the bundle.
        tokio::try_join!(
            supply::hold_bundle(context, plan),
            node_job::prepare(context, login)
        )?;
    }
    follow(context, login, Work::Converge(plan.clone())).await
}

/// Whether the job may act without asking the server at that moment: such a job stops when it cannot be sure that it still holds its lease.
/// The others commit every act with the server first, or follow work on the node that a successor would find there too.
pub(super) fn acts_unasked(spec: &JobSpec) -> bool {
    match spec {
        JobSpec::PowerOff { .. }
        | JobSpec::Reboot { .. }
        | JobSpec::SlurmAdmit { .. }
        | JobSpec::SlurmDrain { .. }
        | JobSpec::SlurmRemove { .. }
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

/// Whether the job may be stopped while it runs. One that writes firmware ends first: a machine that loses its power meanwhile may never start again.
pub(super) fn may_be_stopped(spec: &JobSpec) -> bool {
    !matches!(spec, JobSpec::Firmware(order) if order.permit.is_some())
}

/// After a cancellation: the node is told to stop as well.
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
        | JobSpec::SlurmAdmit { .. }
        | JobSpec::SlurmDrain { .. }
        | JobSpec::Pair(_)
        | JobSpec::SlurmRemove { .. } => None,
    }
}

/// Idempotent: muster-node keeps one process per job and refuses stale ones; the plan's own permit guards what is written.
async fn follow(context: &JobContext, login: &Login, work: Work) -> Result<JobResult, Failure> {
    let asked = context.job.spec.kind();
    match (asked, node_job::run(context, login, work).await?) {
        // The word is the agent's own: a database that was put back is known by it.
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
                results,
                fingerprint,
            },
        ) => Ok(JobResult::Gated {
            results,
            fingerprint,
        }),
        ("wipe", WorkResult::Wiped { disks }) => Ok(JobResult::Wiped { disks }),
        (asked, _) => Err(fatal(
            FailureCode::NodeProtocol,
            format!("the node answered {asked} with another job's result"),
        )),
    }
}
