//! Gate runs: a suite on a node, with what each gate measured.

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
    /// Of the hardware and software it ran on.
    pub fingerprint: String,
    pub finished_at: Timestamp,
    /// Since when it says nothing of the node any more: parts were replaced.
    #[serde(default)]
    pub voided_at: Option<Timestamp>,
    pub results: Vec<GateResult>,
}
