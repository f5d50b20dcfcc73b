//! Scheduler reports about nodes out of service, and about running jobs. The agent queries the
//! schedulers and the server compares, so a drain not requested by Muster becomes visible.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clusters::{ClusterSpec, SlurmCluster};
use crate::ids::ObjectId;
use crate::wire::failure::Failure;

/// `POST /agent/v1/scheduler`: the current answers of the schedulers at the agent's site. The first
/// report of a process is empty. The response lists the clusters to query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerReport {
    pub epoch: i64,
    /// One entry per scheduler with an answer. The nodes of a missing scheduler have an unknown
    /// state.
    pub looks: Vec<ClusterLook>,
}

/// The answer of one scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterLook {
    pub cluster: ObjectId,
    /// Nodes of the cluster that accept no jobs, by a person's request or by the scheduler's
    /// decision. All other nodes accept jobs.
    pub out: Vec<NodeOut>,
}

/// A node that accepts no jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeOut {
    pub name: String,
    /// State in the scheduler's terms: `drained`, `draining`, `down`.
    pub state: String,
    pub reason: Option<String>,
}

/// `POST /agent/v1/scheduler/jobs`: the jobs on the nodes of the watched clusters. The call is apart
/// from [`SchedulerReport`], because a server of the version before refuses unknown fields. Such a
/// server refuses only this call. Without the call the jobs of all nodes are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobsReport {
    pub epoch: i64,
    /// One entry per scheduler with an answer. The jobs of a missing scheduler are unknown.
    pub looks: Vec<JobsLook>,
}

/// The jobs of one scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobsLook {
    pub cluster: ObjectId,
    /// Every job that uses a node: running, suspended or completing. A node without a job is idle.
    pub jobs: Vec<ClusterJob>,
    /// Whether the reservations of the waiting nodes are as needed. Absent before the first reply, and for
    /// a server that does not take the field ([`JobsReply::takes_reservations`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Reservations>,
}

/// The reservations of the waiting nodes of a cluster, after the last reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reservations {
    AsNeeded,
    Failed(Failure),
}

/// The reply to [`JobsReport`]: the nodes waiting for a change. An empty body, of a server of the
/// version before, contains nothing about any node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsReply {
    /// One entry per cluster of the agent. A missing cluster stays unchanged.
    pub clusters: Vec<ClusterWaits>,
    /// The server takes [`JobsLook::reservations`]. A server of the version before refuses a report with
    /// the field, and does not say this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_reservations: bool,
}

/// The waiting nodes of a cluster. All other nodes get jobs of any length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterWaits {
    pub cluster: ObjectId,
    pub waits: Vec<Wait>,
    /// Nodes waiting for a maintenance window. An agent of the version before skips the field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub window_waits: Vec<WindowWait>,
}

/// Nodes waiting for a change. The nodes serve, but get only short jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Longest time limit of a job allowed to start, in seconds. At least 1.
    pub lead_s: u32,
    /// Sorted names.
    pub nodes: Vec<String>,
}

/// Nodes waiting for the opening of a maintenance window. The nodes serve, but get only jobs that end
/// before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowWait {
    pub opens_at: Timestamp,
    /// Sorted names.
    pub nodes: Vec<String>,
}

/// A job that uses nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterJob {
    /// The id in the scheduler's terms: `17`, `18_4`.
    pub id: String,
    pub user: String,
    /// State in the scheduler's terms: `RUNNING`.
    pub state: String,
    /// The latest end; `None` for a job without a time limit, and for a suspended job.
    pub ends: Option<Timestamp>,
    /// The names of the nodes, each written out.
    pub nodes: Vec<String>,
    /// The scheduler requeues the job on request. False if unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requeues: bool,
}

/// The clusters to query, and the interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerWatch {
    pub clusters: Vec<WatchedCluster>,
    /// Seconds until the next report.
    pub every_s: u64,
}

/// A cluster of the agent's site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Watched", into = "Watched")]
pub struct WatchedCluster {
    pub id: ObjectId,
    pub cluster: ClusterSpec,
}

/// The JSON form: the field's name is the kind of the cluster.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Watched {
    id: ObjectId,
    slurm: SlurmCluster,
}

impl From<Watched> for WatchedCluster {
    fn from(Watched { id, slurm }: Watched) -> Self {
        Self {
            id,
            cluster: ClusterSpec::Slurm(slurm),
        }
    }
}

impl From<WatchedCluster> for Watched {
    fn from(WatchedCluster { id, cluster }: WatchedCluster) -> Self {
        let ClusterSpec::Slurm(slurm) = cluster;
        Self { id, slurm }
    }
}
