//! Waivers: a gate that does not pass on a node, a rack or a pool, admitted all the same; by two people, and for a time.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// What is asked for: one of node, rack and pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWaiver {
    /// Names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The gate's id, as suites have it.
    pub gate: String,
    /// Why, for whoever is to agree, and for whoever reads the verdict later.
    pub reason: String,
    /// It counts no more from then on; at most 90 days away.
    pub until: Timestamp,
}

/// A waiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiver {
    pub id: Uuid,
    /// One of the three.
    pub node: Option<String>,
    pub rack: Option<String>,
    pub pool: Option<String>,
    pub gate: String,
    pub reason: String,
    pub requested_by: String,
    pub requested_at: Timestamp,
    pub until: Timestamp,
    pub state: WaiverState,
    /// What a second person agrees to it by.
    pub approval: Option<Uuid>,
    /// Who did, or turned it down.
    pub decided_by: Option<String>,
    pub ended_by: Option<String>,
    /// Always 1: a waiver is never changed, only ended. Its ETag is `"1"`.
    #[serde(default)]
    pub generation: i64,
}

/// How a waiver stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaiverState {
    /// It waits for a second person and counts for nothing.
    Asked,
    /// It counts.
    Active,
    Denied,
    /// Its time is over.
    Over,
    /// Somebody ended it before its time.
    Ended,
}
