//! Nodes, programs and machines of the recovery scenarios, with the requests and checks shared by
//! all scenarios.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use muster_api::recoveries::{Breaker, Recovery};

use super::super::cast::{SHORT, state};
use super::super::programs::Programs;
use super::super::veteran::Veteran;
use super::super::watch::Watch;
use crate::Rack;
use crate::machine::Machine;
use crate::machine::oracle::{Cause, Entry, Happening};
use crate::slurm::Slurm;

/// Longest duration of a node's recovery. A ladder climbed to its end has two boots, on emulated
/// CPUs.
pub(super) const RECOVERY: Duration = Duration::from_secs(15 * 60);
pub(super) const SMART: &str = "gate:disk.smart";

/// All participants of a scenario.
pub(super) struct Cast<'run> {
    pub(super) rack: &'run Rack,
    pub(super) slurm: &'run Slurm,
    pub(super) programs: &'run Programs,
    pub(super) veterans: Vec<Veteran<'run>>,
    pub(super) watch: Watch,
    /// The run's directory.
    pub(super) dir: PathBuf,
}

/// Returns the attempted rungs of a recovery, each as `RUNG OUTCOME`, the format expected by the
/// scenarios.
pub(super) fn rungs(recovery: &Recovery) -> Vec<String> {
    recovery
        .tried
        .iter()
        .map(|tried| format!("{} {}", tried.rung, tried.outcome))
        .collect()
}

impl<'run> Cast<'run> {
    pub(super) fn veteran(&self, node: &str) -> anyhow::Result<&Veteran<'run>> {
        self.veterans
            .iter()
            .find(|veteran| veteran.name == node)
            .with_context(|| format!("there is no {node}"))
    }

    pub(super) fn machine(&self, node: &str) -> anyhow::Result<&std::sync::Arc<Machine>> {
        Ok(&self.rack.slot(node)?.machine)
    }

    pub(super) fn nodes(&self) -> Vec<String> {
        self.veterans
            .iter()
            .map(|veteran| veteran.name.clone())
            .collect()
    }

    /// Returns the power entries in the machine's log after the first `since` entries. Injected
    /// faults and actions by the lab are left out.
    pub(super) fn power_acts(&self, node: &str, since: usize) -> anyhow::Result<Vec<Entry>> {
        let told = self.machine(node)?.oracle()?.into_iter().skip(since);
        Ok(told
            .filter(|entry| {
                !matches!(entry.what, Happening::Fault { .. }) && entry.cause != Cause::Lab
            })
            .collect())
    }

    /// Returns the recoveries of a node, newest first.
    pub(super) async fn recoveries(&self, node: &str) -> anyhow::Result<Vec<Recovery>> {
        Ok(self.programs.client().node_recoveries(node).await?.items)
    }

    pub(super) async fn breakers(&self) -> anyhow::Result<Vec<Breaker>> {
        let page = self.programs.client().get_value(&["breakers"], &[]).await?;
        Ok(serde_json::from_value(page["items"].clone())?)
    }

    /// Runs `muster node VERB NODES OPTIONS` and returns its output.
    pub(super) async fn ask(
        &self,
        verb: &str,
        nodes: &[&str],
        options: &[&str],
    ) -> anyhow::Result<String> {
        self.programs
            .cli(&[&["node", verb], nodes].concat(), options)
            .await
    }

    /// Sweeps a node, and waits until the following recovery has ended. Returns the recovery. Fails
    /// when the node fails without a recovery.
    pub(super) async fn recovery_of(&mut self, node: &str) -> anyhow::Result<Recovery> {
        let before = self.recoveries(node).await?.len();
        self.ask("sweep", &[node], &["--reason", "the rehearsal"])
            .await?;
        let (client, what) = (self.programs.client(), format!("the recovery of {node}"));
        let ended = self.watch.until(client, &what, RECOVERY, async |fleet| {
            let all = client.node_recoveries(node).await?.items;
            let over = all.len() > before && all[0].ended.is_some();
            ensure!(over || state(fleet, node) != "failed", "{node} failed");
            Ok(over)
        });
        ended.await?;
        Ok(self.recoveries(node).await?.remove(0))
    }

    /// Checks that the node is in service: by the API state, by the state `idle` in Slurm, and by a
    /// Slurm job on the node.
    pub(super) async fn serves(&mut self, node: &str) -> anyhow::Result<()> {
        let (client, slurm, what) = (
            self.programs.client(),
            self.slurm,
            format!("{node} to serve"),
        );
        let serves = self.watch.until(client, &what, SHORT, async |fleet| {
            ensure!(
                !matches!(state(fleet, node), "failed" | "quarantined"),
                "{node} is {}",
                state(fleet, node)
            );
            let listed = slurm.run("sinfo", &["-h", "-n", node, "-o", "%T"]).await?;
            Ok(state(fleet, node) == "in_service" && listed.trim() == "idle")
        });
        serves.await?;
        let said = slurm
            .srun(&[
                "-p",
                super::declare::PARTITION,
                "-D",
                "/",
                "-w",
                node,
                "hostname",
            ])
            .await?;
        ensure!(said.trim() == node, "srun on {node} ran elsewhere: {said}");
        Ok(())
    }

    /// Checks that Slurm has no entry for the node.
    pub(super) async fn is_out_of_slurm(&self, node: &str) -> anyhow::Result<()> {
        let listed = self.slurm.sinfo().await?;
        ensure!(
            !listed.split_whitespace().any(|word| word == node),
            "{node} is still in Slurm:\n{listed}"
        );
        Ok(())
    }
}
