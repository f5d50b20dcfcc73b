//! Approvals: releases beyond what one person may do alone in an hour, until a second person decides.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A release that waits for a second person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    pub id: Uuid,
    pub claim: String,
    pub node: String,
    /// Why one person is not enough.
    pub because: String,
    pub requested_by: String,
    pub requested_at: Timestamp,
    /// Nobody can approve it after this; deleting the claim asks again.
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
