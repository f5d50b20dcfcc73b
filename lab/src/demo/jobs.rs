//! Jobs of Slurm on the admitted node.

use muster_api::client::Client;
use tokio::process::Child;

use super::cast::{GOOD, SHORT};
use super::watch::Watch;
use crate::slurm::Slurm;

/// Starts a job that sleeps on the admitted node, and waits until the job runs. `limits` are arguments
/// of srun, such as a time limit.
pub(super) async fn start_job(
    slurm: &Slurm,
    client: &Client,
    watch: &Watch,
    seconds: &str,
    limits: &[&str],
) -> anyhow::Result<Child> {
    let mut job = slurm.command("srun");
    job.args(["-p", "gpu", "-D", "/", "-w", GOOD]).args(limits);
    let job = job.args(["sleep", seconds]).spawn()?;
    let running = watch.until(client, "the job to run", SHORT, async |_| {
        let jobs = slurm.run("squeue", &["-h", "-w", GOOD, "-t", "R"]).await?;
        Ok(!jobs.trim().is_empty())
    });
    running.await?;
    Ok(job)
}
