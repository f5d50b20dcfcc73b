//! Approvals: releases beyond what one person may do alone in an hour, and waivers of gates, until a second person decides.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A release or a waiver that waits for a second person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    pub id: Uuid,
    /// Of a release.
    pub claim: Option<String>,
    /// Of a release, and of a waiver for one node.
    pub node: Option<String>,
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
    /// The release, once approved.
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
