//! Caution mode: the database knows less than somebody remembers, so it was put back to an earlier state, or a failover lost its last
//! commits. Nothing is powered or written until an administrator has confirmed it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Whether the fleet is in caution mode, and who has been heard of since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CautionStatus {
    /// Absent: everything goes on as usual.
    pub caution: Option<Caution>,
    /// Every agent. Before confirming, each should have been heard of: one that is away may know of more.
    pub agents: Vec<Witness>,
}

/// Why nothing is powered or written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Caution {
    pub id: Uuid,
    /// One sentence: who remembers what the database does not.
    pub because: String,
    pub noticed_at: Timestamp,
}

/// An agent, as far as it could tell what the database has forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Witness {
    pub agent: String,
    pub site: String,
    pub last_seen: Option<Timestamp>,
    /// Since the caution began.
    pub heard: bool,
}

/// `POST /v1/caution/confirm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmCaution {
    /// The caution that was looked into.
    pub id: Uuid,
    /// What was found, for the history.
    pub note: String,
}
