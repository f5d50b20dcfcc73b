//! Approvals: requests waiting for a second person. Two cases: waivers of gates, and erasing the
//! disks of more nodes than one person may erase alone in an hour.

use jiff::Timestamp;
use muster_core::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A release, wipe, reinstallation or waiver waiting for a second person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    pub id: Uuid,
    /// The claim. Set only for a release.
    pub claim: Option<String>,
    /// The node. Absent for a waiver covering a rack or a pool.
    pub node: Option<String>,
    /// For a release: `true` if another node is installed first and takes over the claim.
    #[serde(default)]
    pub replaces: bool,
    /// For a release: `true` if the disks are erased at once, without an undo window.
    #[serde(default)]
    pub erase_now: bool,
    /// The requested action on the node: `wipe` or `reinstall`. Absent for a release (see `claim`)
    /// and for a waiver.
    #[serde(default)]
    pub action: Option<String>,
    /// Reason given by the requester. Set only for actions and replacements, and only when given.
    #[serde(default)]
    pub reason: Option<String>,
    /// The waiver, if a waiver is to be approved.
    #[serde(default)]
    pub waiver: Option<Uuid>,
    /// Reason for requiring a second person.
    pub because: String,
    /// The person or token asking, as in events: `user:alice`.
    pub requested_by: String,
    pub requested_at: Timestamp,
    /// Expiry of the request. Later approvals are rejected; the requester must ask again.
    pub expires_at: Timestamp,
    pub state: ApprovalState,
    /// The second person, as in events. Absent while the request is open.
    pub decided_by: Option<String>,
    /// The operation started by the approval.
    pub operation: Option<Uuid>,
}

words! {
    /// The state of an approval.
    #[derive(ToSchema)]
    ApprovalState, "state of an approval" {
        Open = "open",
        Approved = "approved",
        Denied = "denied",
    }
}
