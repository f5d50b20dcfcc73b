//! What schedulers say of nodes that take no jobs. The agent asks them, and the server compares: a drain that Muster did not ask for must not go unseen.

use serde::{Deserialize, Serialize};

use crate::clusters::SlurmCluster;
use crate::ids::ObjectId;

/// `POST /agent/v1/scheduler`: what the schedulers of the agent's site said just now. The first call of a process has seen nothing yet, and learns where
/// to look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerReport {
    pub epoch: i64,
    /// One that did not answer is left out: nothing is known of its nodes.
    pub looks: Vec<ClusterLook>,
}

/// A scheduler that answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterLook {
    pub cluster: ObjectId,
    /// Its nodes that take no jobs, by somebody's wish or by the scheduler's own. All others do.
    pub out: Vec<NodeOut>,
}

/// A node that takes no jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeOut {
    pub name: String,
    /// As the scheduler calls it: `drained`, `draining`, `down`.
    pub state: String,
    pub reason: Option<String>,
}

/// Where to look, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerWatch {
    pub clusters: Vec<WatchedCluster>,
    /// Seconds until the next report.
    pub every_s: u64,
}

/// A cluster of the agent's site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchedCluster {
    pub id: ObjectId,
    pub slurm: SlurmCluster,
}
