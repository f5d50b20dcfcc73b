//! Recoveries: the ladder of steps applied to failing nodes, and the fleet's circuit breaker.

use jiff::Timestamp;
use muster_core::recovery::Tried;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A recovery of a node: a ladder of rungs, running or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Recovery {
    pub id: Uuid,
    pub node: Uuid,
    /// Group of equal failures: `gate:disk.smart`, `step:sweep`, `unreachable`, `asked`.
    pub signature: String,
    /// The finding that started the recovery.
    pub because: String,
    /// `true` if requested by a person. The limits of the policy apply only to automatic
    /// recoveries.
    pub asked: bool,
    /// The rungs, in order: `collect`, `restart_services`, `reboot`, `power_cycle`, `reimage`,
    /// `rma`.
    pub rungs: Vec<String>,
    /// Results of the completed rungs.
    pub tried: Vec<Tried>,
    pub begun_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// `recovered`, `spent`, `held_back`, `stopped` or `failed`. Absent while the recovery is
    /// running.
    pub ended: Option<String>,
    /// The operation of a running recovery. Cancelling the operation stops the recovery between two
    /// rungs.
    pub operation: Option<Uuid>,
}

/// A circuit breaker for a kind of failure. The breaker opens when too many nodes fail at once for
/// the cause to be the nodes themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Breaker {
    pub id: Uuid,
    /// Signature as in recoveries, or `alert:` and a name for an alert from monitoring.
    pub signature: String,
    /// The finding that opened the breaker, in one sentence.
    pub because: String,
    /// `open`: automation does not act on this kind of failure. Or `closed`.
    pub state: String,
    pub opened_at: Timestamp,
    /// Time at which the breaker closes automatically. Absent if a person must close the breaker.
    pub closes_at: Option<Timestamp>,
    pub closed_at: Option<Timestamp>,
    pub closed_by: Option<String>,
}
