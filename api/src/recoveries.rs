//! What is tried on nodes that fail, and the fleet's circuit breaker.

use jiff::Timestamp;
use muster_core::recovery::Tried;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A ladder that is or was climbed on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Recovery {
    pub id: Uuid,
    pub node: Uuid,
    /// Which failures are the same: `gate:disk.smart`, `step:sweep`, `unreachable`, `asked`.
    pub signature: String,
    /// What was found.
    pub because: String,
    /// By a person: the bounds are for what begins by itself.
    pub asked: bool,
    /// What is tried, in this order: `collect`, `restart_services`, `reboot`, `power_cycle`, `reimage`, `rma`.
    pub rungs: Vec<String>,
    /// How those behind it went.
    pub tried: Vec<Tried>,
    pub begun_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// `recovered`, `spent`, `held_back`, `stopped` or `failed`; none while it is under way.
    pub ended: Option<String>,
    /// While it is under way: cancelling this operation stops it between two rungs.
    pub operation: Option<Uuid>,
}

/// A kind of failure that too many nodes have at once for it to be theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Breaker {
    pub id: Uuid,
    /// Of recoveries as they have it; `alert:` and a name for one that monitoring tells of.
    pub signature: String,
    pub because: String,
    /// `open`: nothing is done by itself about this kind of failure; or `closed`.
    pub state: String,
    pub opened_at: Timestamp,
    /// When it closes by itself; none where a person must say so.
    pub closes_at: Option<Timestamp>,
    pub closed_at: Option<Timestamp>,
    pub closed_by: Option<String>,
}
