//! Pairs of a pool's nodes, measured against each other: what is asked for, and what was found.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::gates::GateResult;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Nodes of a run when nothing else is said, and the most that one may take.
pub const DEFAULT_MOST: u32 = 64;
pub const MOST: u32 = 256;
/// Seconds a run may last when nothing else is said.
pub const DEFAULT_WITHIN_S: u32 = 2 * 3600;

/// A run that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunPairs {
    /// A suite with pair gates; its others are not run.
    pub suite: String,
    /// Nodes of the pool, by name; all of them when none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// So many idle nodes at most, 2 to 256; 64 when absent. Those that were not measured for longest come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Seconds after which the run ends with what it has, 300 to 43200; two hours when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_s: Option<u32>,
    /// Words that the suite's gates name and the site knows: `rdma_device`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

/// A run of pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PairRun {
    /// Of its operation too: cancelling that one stops it.
    pub id: Uuid,
    pub pool: String,
    /// Name and version.
    pub suite: String,
    pub actor: String,
    /// `running`; `done`; `overdue`, with what it had by then; `stopped` by a person; `too_few` idle nodes.
    pub state: String,
    pub begun_at: Timestamp,
    pub deadline: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Idle nodes that were more than the run takes.
    pub beyond: u32,
    /// A sentence for each node and path that is blamed, then for those that are unknown.
    pub findings: Vec<String>,
    pub ends: Vec<PairEnd>,
    /// What was measured, in its order. Absent in a list of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<Vec<MeasuredPair>>,
}

/// A node of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PairEnd {
    pub node: String,
    /// `good`; `blamed`; `unknown`, also while the run goes on; `left_out`.
    pub verdict: String,
    /// Why it was left out, or what it is blamed for.
    pub why: Option<String>,
}

/// Two nodes, measured both ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MeasuredPair {
    /// Counted from 1. No node is in two pairs of one.
    pub round: u32,
    pub a: String,
    pub b: String,
    /// `pass`, `fail`, `error`; none while it is measured.
    pub verdict: Option<String>,
    /// `blamed`: both ends pass with others, so it is what lies between them; `explained` by an end that is blamed; `unknown`. Of pairs that failed.
    pub edge: Option<String>,
    /// What is not a pass.
    pub why: Option<String>,
    /// What each end measured, with its evidence.
    pub ways: Vec<MeasuredWay>,
    pub finished_at: Option<Timestamp>,
}

/// One way of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MeasuredWay {
    /// The node that asked, and measured.
    pub from: String,
    /// The node that listened.
    pub to: String,
    pub results: Vec<GateResult>,
}
