//! Jobs on the machines during the rollouts, and an observer beside the server: how many nodes serve,
//! and whether a job runs.

use std::time::Duration;

use anyhow::{Context, ensure};
use muster_api::client::Client;
use muster_api::nodes::NodeSpec;
use tokio_util::sync::CancellationToken;

use super::super::super::cast::state;
use super::super::super::watch::Fleet;
use super::super::declare::PARTITION;
use crate::slurm::Slurm;

const EVERY: Duration = Duration::from_secs(1);
/// Longest time without a running job, in seconds. A new job needs a moment to start.
const NO_JOB_S: u32 = 60;
/// Time limit of a job, with the wait for a node.
const JOB_LIMIT: Duration = Duration::from_secs(600);
/// Most failed starts of a job one after the other.
const REFUSED: u32 = 5;

/// The findings of the observer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observed {
    /// Number of looks at the nodes, one each second.
    pub(super) looks: u32,
    /// Most nodes out of service at the same time.
    pub(super) most_out: usize,
    /// Longest time without a running job, in seconds.
    pub(super) longest_pause_s: u32,
}

/// Runs jobs of the given length one after the other until `enough`, on any node but `left_out`.
/// Returns their number.
///
/// # Errors
/// When a begun job does not end by itself, or Slurm starts no job.
pub(super) async fn keep_running(
    slurm: &Slurm,
    seconds: u32,
    left_out: &str,
    enough: &CancellationToken,
) -> anyhow::Result<u32> {
    let script = format!("echo begun; sleep {seconds} && echo whole");
    let (mut ended, mut refused) = (0, 0);
    while !enough.is_cancelled() {
        let mut job = slurm.command("srun");
        job.args(["-p", PARTITION, "-D", "/"]);
        // A node that changes has left Slurm, and srun refuses its name.
        let listed = slurm
            .run("sinfo", &["-h", "-n", left_out, "-o", "%N"])
            .await;
        if !listed.is_ok_and(|names| names.trim().is_empty()) {
            job.args(["-x", left_out]);
        }
        job.args(["sh", "-c", &script]);
        let ran = tokio::time::timeout(JOB_LIMIT, job.output());
        let ran = ran.await.context("a job does not end")??;
        match String::from_utf8_lossy(&ran.stdout).trim() {
            "begun\nwhole" => (ended, refused) = (ended + 1, 0),
            // A loaded machine starts no job in time, so no job was harmed.
            "" if refused < REFUSED => refused += 1,
            _ => anyhow::bail!(
                "job {} of {seconds} s did not end by itself: {ran:?}",
                ended + 1
            ),
        }
    }
    Ok(ended)
}

/// Looks at the nodes and the jobs each second until `enough`.
///
/// # Errors
/// When more than `most_out` nodes are out of service at the same time, or no job runs for
/// [`NO_JOB_S`].
pub(super) async fn observe(
    slurm: &Slurm,
    client: &Client,
    most_out: usize,
    enough: &CancellationToken,
) -> anyhow::Result<Observed> {
    let (mut observed, mut pause_s) = (Observed::default(), 0);
    while !enough.is_cancelled() {
        tokio::time::sleep(EVERY).await;
        // The server is killed now and then.
        if let Ok(nodes) = client.list_all::<NodeSpec>(None).await {
            let fleet: Fleet = nodes
                .into_iter()
                .map(|node| (node.name.to_string(), node.status))
                .collect();
            let out: Vec<&String> = fleet
                .keys()
                .filter(|name| state(&fleet, name) != "in_service")
                .collect();
            ensure!(out.len() <= most_out, "{out:?} are out at the same time");
            observed.looks += 1;
            observed.most_out = observed.most_out.max(out.len());
        }
        let running = slurm.run("squeue", &["-h", "-t", "R", "-o", "%N"]).await;
        pause_s = match running {
            Ok(nodes) if nodes.trim().is_empty() => pause_s + 1,
            Ok(_) => 0,
            // A restarting controller gives no answer, and jobs run on.
            Err(_) => pause_s,
        };
        observed.longest_pause_s = observed.longest_pause_s.max(pause_s);
        ensure!(pause_s <= NO_JOB_S, "no job has run for {pause_s} s");
    }
    Ok(observed)
}
