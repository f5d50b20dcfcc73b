//! Clusters: the schedulers for admitted nodes. The room declares the kinds of clusters, the
//! description of a member, and the owners of a drain. A file per kind knows the scheduler's own
//! files and words.

pub mod slurm; // Slurm: controller, files of the members, drain reasons

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};

pub use self::slurm::SlurmCluster;
use crate::profiles::HardwareProfile;

/// A declared cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClusterSpec {
    Slurm(SlurmCluster),
}

impl ClusterSpec {
    /// Returns the site whose agent contacts the scheduler.
    pub fn site(&self) -> &str {
        match self {
            Self::Slurm(cluster) => &cluster.site,
        }
    }

    /// Returns the scheduler's address for nodes.
    pub fn address(&self) -> &str {
        match self {
            Self::Slurm(cluster) => &cluster.address,
        }
    }
}

/// Reads the cluster of an order. Servers of the previous version send a Slurm cluster without
/// `kind`.
///
/// # Errors
/// When the value is neither form.
pub fn read_ordered<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ClusterSpec, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Ordered {
        Declared(ClusterSpec),
        Bare(SlurmCluster),
    }
    Ok(match Ordered::deserialize(deserializer)? {
        Ordered::Declared(cluster) => cluster,
        Ordered::Bare(cluster) => ClusterSpec::Slurm(cluster),
    })
}

/// The reason of a drain by Muster. The scheduler stores the text, and orders carry the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DrainReason {
    /// A measurement on a node in service. The end of the measurement lifts only this drain.
    #[serde(rename = "muster: measured, back in a while")]
    Measurement,
    /// The node leaves service. Undoing the departure lifts only this drain.
    #[serde(rename = "muster: leaving service")]
    Leaving,
}

impl DrainReason {
    pub const ALL: [Self; 2] = [Self::Measurement, Self::Leaving];

    /// Returns the text stored by the scheduler.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Measurement => "muster: measured, back in a while",
            Self::Leaving => "muster: leaving service",
        }
    }
}

/// A drain by Muster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    pub reason: DrainReason,
    /// The scheduler requeues the jobs on the node.
    pub requeue: bool,
}

impl From<DrainReason> for Drain {
    /// A drain that waits for the end of every job.
    fn from(reason: DrainReason) -> Self {
        Self {
            reason,
            requeue: false,
        }
    }
}

/// The owner of a drain: decides whether Muster may act on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainedBy {
    /// An order of Muster.
    Muster(DrainReason),
    /// The node's own health check, with the finding as written by the node
    /// ([`Unfit`](crate::recovery::Unfit)).
    HealthCheck(String),
    /// The scheduler, after losing contact with the node.
    Scheduler,
    /// A person or another program.
    Others,
    /// The scheduler stores no reason, or a reason of Muster unknown to this version.
    Unknown,
}

impl DrainedBy {
    /// Reads the owner from the reason stored by a scheduler. Slurm is the only kind of cluster so
    /// far.
    pub fn read(reason: Option<&str>) -> Self {
        reason.map_or(Self::Unknown, slurm::drained_by)
    }
}

/// A member of a cluster, as described to its scheduler. The values come from the hardware profile,
/// never from facts: a node with a lost GPU must be refused by the scheduler, not described as smaller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub name: String,
    pub address: IpAddr,
    pub sockets: u32,
    pub cores_per_socket: u32,
    pub threads_per_core: u32,
    /// Memory in MiB.
    pub real_memory: u64,
    /// GPU model and count; `None` on CPU nodes.
    pub gpus: Option<(String, u32)>,
    pub features: Vec<String>,
    /// The switch of the node's topology line: the rack.
    pub switch: Option<String>,
    /// The switch that connects the racks' switches, as declared by the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spine: Option<String>,
}

impl Member {
    /// Builds the scheduler's description of a node with the given profile.
    pub fn new(
        name: &str,
        address: IpAddr,
        profile: &HardwareProfile,
        switch: Option<String>,
        features: Vec<String>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            address,
            sockets: profile.sockets,
            cores_per_socket: profile.cores_per_socket,
            threads_per_core: profile.threads_per_core,
            real_memory: profile.schedulable_memory_mib,
            gpus: profile
                .gpus
                .as_ref()
                .map(|gpus| (gpus.model.to_lowercase().replace(' ', "_"), gpus.count)),
            features,
            switch,
            spine: None,
        }
    }

    /// Returns the number of CPUs the controller must see.
    pub fn cpus(&self) -> u32 {
        self.sockets * self.cores_per_socket * self.threads_per_core
    }
}
