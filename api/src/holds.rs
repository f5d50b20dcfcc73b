//! Legal holds: the records of a node stay at any age.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of `POST /v1/nodes/{node}/hold`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldRecords {
    /// Reason, for the history, in at most 500 bytes: `case 2026-114`.
    #[schema(min_length = 1, max_length = 500)]
    pub reason: String,
}

/// A node under a legal hold. Logs, evidence, facts, console output and events of the node stay at
/// any age, and the node cannot be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeHold {
    /// Name of the node.
    pub node: String,
    /// Reason of the first request for the hold.
    pub reason: String,
    /// Author of the hold: `user:alice`, `token:legal`, `host:ada@db`.
    pub held_by: String,
    pub held_at: Timestamp,
}
