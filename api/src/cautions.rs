//! Caution mode: an agent remembers newer state than the database. Cause: the database was restored
//! from a backup, or a failover lost the latest commits. No node of the sites under caution is
//! powered or written until an administrator confirms the caution.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Whether the fleet or a site is in caution mode, and which agents have reported since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CautionStatus {
    /// The current caution. Absent in normal operation.
    pub caution: Option<Caution>,
    /// Every agent. Confirm only after each agent has reported: an absent agent may remember
    /// further changes.
    pub agents: Vec<Witness>,
}

/// The reason for blocking power changes and writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Caution {
    pub id: Uuid,
    /// One sentence naming the agent and the state missing from the database.
    pub because: String,
    pub noticed_at: Timestamp,
    /// Whether the caution holds for the whole fleet. Otherwise the caution holds for the sites of
    /// its witnesses.
    #[serde(default = "holds_everywhere")]
    pub whole_fleet: bool,
    /// The visible sites with a witness: an agent, or a node by the word of its agent.
    #[serde(default)]
    pub sites: Vec<String>,
}

/// A server of the previous version opens cautions of the whole fleet only.
fn holds_everywhere() -> bool {
    true
}

/// An agent, and whether the agent has reported since the database lost state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Witness {
    pub agent: String,
    pub site: String,
    /// Time of the agent's latest call. Absent until the first call.
    pub last_seen: Option<Timestamp>,
    /// Whether the agent has reported since the caution began.
    pub heard: bool,
}

/// The body of `POST /v1/caution/confirm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmCaution {
    /// The caution examined by the administrator.
    pub id: Uuid,
    /// Findings of the administrator, for the history.
    pub note: String,
}
