//! Events: who or what did what to which object, and why. Append-only.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// One row of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Grows; not every number is used.
    pub seq: i64,
    pub id: Uuid,
    pub at: Timestamp,
    /// `user:alice`, `token:ci`, `agent:a1`, `muster`.
    pub actor: String,
    pub kind: String,
    pub node: Option<Uuid>,
    pub object: Option<Uuid>,
    pub operation: Option<Uuid>,
    pub request_id: Option<String>,
    pub summary: String,
    pub detail: serde_json::Value,
}

/// A stretch of the history, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    pub items: Vec<Event>,
    /// Pass it as `after` to read on. Where it is more than what was passed, there may be more, even when no event is here: who may see a part of
    /// the fleet is told how far was looked.
    pub last_seq: i64,
}
