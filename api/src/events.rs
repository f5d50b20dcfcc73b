//! Events: a record of each change, with the actor, the object and the reason. Append-only.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// One row of the event history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Increases with each event, with gaps.
    pub seq: i64,
    pub id: Uuid,
    pub at: Timestamp,
    /// The author of the change: `user:alice`, `token:ci`, `agent:a1`, `muster`.
    pub actor: String,
    pub kind: String,
    pub node: Option<Uuid>,
    pub object: Option<Uuid>,
    pub operation: Option<Uuid>,
    pub request_id: Option<String>,
    pub summary: String,
    pub detail: serde_json::Value,
}

/// A range of the event history, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    pub items: Vec<Event>,
    /// Pass as `after` to read on. A value larger than the `after` of the request means that more
    /// events may follow, even when `items` is empty. The reason: a caller with a limited read
    /// scope receives the position of the search, not only of visible events.
    pub last_seq: i64,
}
