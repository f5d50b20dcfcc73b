//! Approvals: what erases more disks than one person may do alone in an hour, and waivers of gates, until a second person decides.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A release, a wipe, a new installation or a waiver that waits for a second person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    pub id: Uuid,
    /// Of a release.
    pub claim: Option<String>,
    /// Of all but a waiver for a rack or a pool.
    pub node: Option<String>,
    /// Of a release: another node comes first, and takes the claim.
    #[serde(default)]
    pub replaces: bool,
    /// Of a release: the disks are erased at once, without the time in which it can be undone.
    #[serde(default)]
    pub erase_now: bool,
    /// What would be done to the node: `wipe` or `reinstall`. Neither of a release, which has its claim, nor of a waiver.
    #[serde(default)]
    pub action: Option<String>,
    /// Why it was asked for, of an action or a replacement, where that was said.
    #[serde(default)]
    pub reason: Option<String>,
    /// The waiver, where it is about one.
    #[serde(default)]
    pub waiver: Option<Uuid>,
    /// Why one person is not enough.
    pub because: String,
    pub requested_by: String,
    pub requested_at: Timestamp,
    /// Nobody can approve it after this; whoever wants it asks again.
    pub expires_at: Timestamp,
    pub state: ApprovalState,
    pub decided_by: Option<String>,
    /// What was begun, once approved.
    pub operation: Option<Uuid>,
}

/// How an approval stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    Open,
    Approved,
    Denied,
}
