//! Admission to a cluster: the agent adds a node to the scheduler, waits until the scheduler
//! accepts the node, and later removes the node. Every kind of cluster answers the same calls; the
//! kind is chosen here and nowhere else.

pub mod slurm; // Slurm, by scontrol, sinfo and squeue

use std::sync::Arc;

use jiff::Timestamp;
use muster_core::clusters::{ClusterSpec, Drain, DrainReason, Member};
use muster_core::wire::scheduler::{ClusterJob, ClusterWaits, NodeOut};

use self::slurm::{Controller, Controllers, SlurmError};
use crate::watch::Watch;

/// An error of a cluster's scheduler.
pub type ClusterError = SlurmError;

/// All clusters contacted by this process.
#[derive(Clone, Debug, Default)]
pub struct Clusters {
    slurm: Controllers,
}

impl Clusters {
    /// Returns a handle for a cluster. The call runs no program and opens no connection.
    pub fn open(&self, spec: &ClusterSpec) -> Cluster {
        match spec {
            ClusterSpec::Slurm(cluster) => Cluster::Slurm(self.slurm.open(cluster)),
        }
    }
}

/// A cluster of the agent's site.
#[derive(Clone, Debug)]
pub enum Cluster {
    Slurm(Controller),
}

impl Cluster {
    /// Makes `name` a node accepting jobs, and returns the scheduler's final view in the
    /// scheduler's words. `members` lists all nodes of the cluster. With `lifts`, only the drain
    /// with this reason is lifted; otherwise every drain of Muster.
    ///
    /// # Errors
    /// [`ClusterError`], with the last view when the deadline passes.
    pub async fn admit(
        &self,
        members: &[Member],
        name: &str,
        lifts: Option<DrainReason>,
        watch: &Watch,
    ) -> Result<String, ClusterError> {
        match self {
            Self::Slurm(controller) => {
                let view = match lifts {
                    None => controller.admit(members, name, watch).await?,
                    Some(reason) => controller.give_back(members, name, reason, watch).await?,
                };
                Ok(view.to_string())
            }
        }
    }

    /// Drains `name` and waits until all jobs on the node ended, or were requeued.
    ///
    /// # Errors
    /// [`ClusterError`], with the jobs still running when the deadline passes.
    pub async fn drain(&self, name: &str, drain: Drain, watch: &Watch) -> Result<(), ClusterError> {
        match self {
            Self::Slurm(controller) => controller.drain(name, drain, watch).await,
        }
    }

    /// Removes `name` from the cluster. `members` lists the nodes to keep.
    ///
    /// # Errors
    /// [`ClusterError`], also for a node that may still run jobs.
    pub async fn remove(
        &self,
        members: &[Member],
        name: &str,
        watch: &Watch,
    ) -> Result<(), ClusterError> {
        match self {
            Self::Slurm(controller) => controller.remove(members, name, watch).await,
        }
    }

    /// Returns the nodes of the cluster out of service, sorted by name.
    ///
    /// # Errors
    /// [`ClusterError`]; the state of all nodes is then unknown.
    pub async fn list_out(&self) -> Result<Vec<NodeOut>, ClusterError> {
        match self {
            Self::Slurm(controller) => controller.nodes_out().await,
        }
    }

    /// Returns the jobs that use nodes of the cluster.
    ///
    /// # Errors
    /// [`ClusterError`]; the jobs of all nodes are then unknown.
    pub async fn list_jobs(&self) -> Result<Vec<ClusterJob>, ClusterError> {
        match self {
            Self::Slurm(controller) => controller.running_jobs().await,
        }
    }

    /// Keeps long jobs away from the waiting nodes, and from no other node. Running jobs go on.
    ///
    /// # Errors
    /// [`ClusterError`]; some nodes may then get jobs of any length, or only short ones.
    pub async fn hold_back_jobs(
        &self,
        waits: &ClusterWaits,
        now: Timestamp,
    ) -> Result<(), ClusterError> {
        match self {
            Self::Slurm(controller) => controller.reserve(waits, now).await,
        }
    }

    /// Waits for the right to ask the server for the members. The lock is held until the guard is
    /// dropped.
    pub async fn asking(&self) -> tokio::sync::MutexGuard<'_, ()> {
        match self {
            Self::Slurm(controller) => controller.asking().await,
        }
    }

    /// Returns the newest list of members, if its revision is `revision` or later.
    pub fn members_since(&self, revision: i64) -> Option<Arc<[Member]>> {
        match self {
            Self::Slurm(controller) => controller.members_since(revision),
        }
    }

    /// Records the list of members for a revision.
    pub fn note_members(&self, revision: i64, members: &[Member]) {
        match self {
            Self::Slurm(controller) => controller.note_members(revision, members),
        }
    }
}
