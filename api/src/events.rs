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
    /// Kind of the event: `node.advanced`, `alert.firing`… Webhooks filter on this value.
    pub kind: String,
    /// Id of the node concerned, if any.
    pub node: Option<Uuid>,
    /// Id of another object concerned, such as a site or a pool.
    pub object: Option<Uuid>,
    /// Id of the operation causing the event, if any.
    pub operation: Option<Uuid>,
    /// Id of the HTTP request causing the event, as in the server's log.
    pub request_id: Option<String>,
    /// One sentence for people.
    pub summary: String,
    /// Further data for programs. The fields depend on `kind`.
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
