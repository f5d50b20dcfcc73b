//! Gate runs: one execution of a suite on a node, with the measurements of each gate.

use jiff::Timestamp;
use muster_core::gates::GateResult;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// One run of a suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GateRun {
    pub id: Uuid,
    pub node: Uuid,
    pub suite: String,
    /// `pass`, `fail` or `unknown`.
    pub verdict: String,
    /// Fingerprint of the hardware and software during the run.
    pub fingerprint: String,
    pub finished_at: Timestamp,
    /// Time from which the run is void. A run becomes void when parts of the node are replaced.
    #[serde(default)]
    pub voided_at: Option<Timestamp>,
    pub results: Vec<GateResult>,
    /// The caller has not `node.evidence` at the node, so the evidence holds no output of tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evidence_hidden: bool,
}
