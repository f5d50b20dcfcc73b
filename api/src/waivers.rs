//! Waivers: a failing gate on a node, rack or pool counts as passed. A waiver needs two people and
//! has an end.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A request for a waiver. Exactly one of node, rack and pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWaiver {
    /// Name of the node; likewise for rack and pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Id of the gate, as in suites.
    pub gate: String,
    /// Reason, for the approving person and for later readers of the verdict.
    pub reason: String,
    /// End of the waiver; at most 90 days in the future.
    pub until: Timestamp,
}

/// A waiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiver {
    pub id: Uuid,
    /// Exactly one of node, rack and pool is set.
    pub node: Option<String>,
    pub rack: Option<String>,
    pub pool: Option<String>,
    pub gate: String,
    pub reason: String,
    pub requested_by: String,
    pub requested_at: Timestamp,
    /// End of the waiver.
    pub until: Timestamp,
    pub state: WaiverState,
    /// The approval by a second person.
    pub approval: Option<Uuid>,
    /// Name of the person deciding the request.
    pub decided_by: Option<String>,
    /// Name of the person ending the waiver early, as in events.
    pub ended_by: Option<String>,
    /// Always 1: a waiver can be ended but not changed. The ETag is `"1"`.
    #[serde(default)]
    pub generation: i64,
}

/// The state of a waiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaiverState {
    /// Waiting for a second person; no effect yet.
    Asked,
    /// The waiver is in effect.
    Active,
    Denied,
    /// The waiver's end time has passed.
    Over,
    /// A person ended the waiver early.
    Ended,
}
