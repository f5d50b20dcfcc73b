//! Pair runs: measurements between two nodes of a pool, as requested and as found.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::gates::GateResult;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Default and maximum number of nodes in a run.
pub const DEFAULT_MOST: u32 = 64;
pub const MOST: u32 = 256;
/// Default time limit of a run, in seconds.
pub const DEFAULT_WITHIN_S: u32 = 2 * 3600;

/// A request for a pair run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunPairs {
    /// A suite with pair gates. Other gates of the suite are skipped.
    pub suite: String,
    /// Names of nodes in the pool. Empty: all nodes of the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Maximum number of idle nodes, 2 to 256. Default: 64. The nodes with the oldest measurements
    /// are taken first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Time limit in seconds, 300 to 43200. After this time the run ends with the results so far.
    /// Default: two hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_s: Option<u32>,
    /// Reason for holding jobs back from nodes beyond the disruption budgets of the pool and of its
    /// failure domains. Needs the right `budget.override`. Absent: nodes without a free slot are
    /// left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_budget: Option<String>,
    /// Values for variables used in the suite's gates and known at the site: `rdma_device`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

/// A run of pair measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PairRun {
    /// Id of the run and of its operation. Cancelling the operation stops the run.
    pub id: Uuid,
    pub pool: String,
    /// Name and version of the suite.
    pub suite: String,
    pub actor: String,
    /// `running`; `done`; `overdue` (time limit reached, partial results); `stopped` by a person;
    /// `too_few` idle nodes.
    pub state: String,
    pub begun_at: Timestamp,
    pub deadline: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Number of idle nodes beyond the run's maximum. They are left out.
    pub beyond: u32,
    /// One sentence for each blamed node and path, then one for each unknown node and path.
    pub findings: Vec<String>,
    pub ends: Vec<PairEnd>,
    /// The measured pairs, in order of measurement. Absent in a list of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<Vec<MeasuredPair>>,
    /// The caller has not `node.evidence` at the pool, so the evidence holds no output of tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evidence_hidden: bool,
}

/// A node of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PairEnd {
    pub node: String,
    /// `good`; `blamed`; `unknown` (also while the run is in progress); `left_out`.
    pub verdict: String,
    /// Reason for leaving the node out, or for the blame.
    pub why: Option<String>,
}

/// Two nodes, measured in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MeasuredPair {
    /// Number of the round, from 1. A node is in at most one pair per round.
    pub round: u32,
    pub a: String,
    pub b: String,
    /// `pass`, `fail`, `error`. Absent while the pair is being measured.
    pub verdict: Option<String>,
    /// Set for failed pairs only. `blamed`: both ends pass with other nodes, so the path between
    /// them is faulty. `explained`: one end is blamed. `unknown`: neither could be shown.
    pub edge: Option<String>,
    /// Description of the failures. Absent for a pass.
    pub why: Option<String>,
    /// Measurements of each end, with evidence.
    pub ways: Vec<MeasuredWay>,
    pub finished_at: Option<Timestamp>,
}

/// One direction of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MeasuredWay {
    /// The node that connected and measured.
    pub from: String,
    /// The node that listened.
    pub to: String,
    pub results: Vec<GateResult>,
}
