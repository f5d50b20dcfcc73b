//! Checks the shared file system of the admitted node. A Slurm job writes a file, and the file must
//! appear on the NFS server's own disk. The storage gates must have passed on the node.

use anyhow::{Context, ensure};
use muster_api::client::Client;
use muster_core::gates::Verdict;

use super::cast::GOOD;
use super::watch::Watch;
use crate::nfs::Nfs;
use crate::slurm::Slurm;

/// Gates for the shared file system: the mount exists, and written data is read back unchanged.
const GATES: [&str; 2] = ["storage.mounts", "storage.readback"];

pub(super) async fn is_served(
    client: &Client,
    slurm: &Slurm,
    nfs: &Nfs,
    watch: &Watch,
) -> anyhow::Result<()> {
    watch.say(&format!(
        "a job on {GOOD} writes into {}, which is mounted at /shared",
        Nfs::source()
    ));
    let write = "grep ' /shared nfs' /proc/mounts && hostname >/shared/written";
    let mounted = slurm
        .srun(&["-p", "gpu", "-D", "/", "-w", GOOD, "sh", "-c", write])
        .await?;
    let path = nfs.folder.join("written");
    let written =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    ensure!(
        written.trim() == GOOD,
        "the server holds {written:?} instead of {GOOD}'s word; mounted: {mounted}"
    );
    let runs = client.node_gate_runs(GOOD).await?.items;
    for gate in GATES {
        let passed = |run: &muster_api::gate_runs::GateRun| {
            run.results
                .iter()
                .any(|result| result.gate == gate && result.verdict == Verdict::Pass)
        };
        ensure!(runs.iter().any(passed), "{gate} has not passed on {GOOD}");
    }
    let left: Vec<_> = std::fs::read_dir(&nfs.folder)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    ensure!(
        left == ["written"],
        "more was left on the server than the job wrote: {left:?}"
    );
    Ok(())
}
