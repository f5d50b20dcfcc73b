//! Agents: the processes acting for a site.

use jiff::Timestamp;
use muster_core::values::{Name, Secret};
use muster_core::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The body of `POST /v1/sites/{site}/agents`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrolAgent {
    pub name: Name,
}

/// An enrolled agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Agent {
    pub id: Uuid,
    pub name: String,
    pub site: String,
    /// Version of the agent's software. Absent until the agent's first call.
    pub version: Option<String>,
    /// Time of the agent's latest call. Absent until the first call.
    pub last_seen: Option<Timestamp>,
    /// Lead of the agent's clock over the server's clock, in milliseconds. No decision depends on
    /// this number; an offset of more than five minutes emits an event.
    pub clock_offset_ms: Option<i64>,
    /// Expiry of the agent's newest certificate. Absent before enrolment. The agent renews after
    /// half of the certificate's lifetime.
    pub certified_until: Option<Timestamp>,
    /// Why the server refuses every call of the agent. The refusal ends when the agent is removed
    /// and enrolled anew. Absent for an admitted agent.
    #[serde(default)]
    pub refused: Option<AgentRefusal>,
    /// Number of enrolments under this name. The ETag is `"<generation>"`.
    #[serde(default)]
    pub generation: i64,
}

words! {
    /// The reason for refusing every call of an agent.
    #[derive(ToSchema)]
    AgentRefusal, "refusal of an agent" {
        /// A certificate was requested with a former key: the agent's identity exists twice.
        Cloned = "cloned",
        /// The agent showed an event with a wrong seal, or an unknown event without a seal.
        Lies = "lies",
    }
}

/// The response to an enrolment. The token is shown only here.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnrolledAgent {
    pub agent: Agent,
    #[schema(value_type = String)]
    pub token: Secret,
    /// Expiry of the token. The token works once.
    pub token_expires_at: Timestamp,
    /// Certificate (PEM) of the authority that signs the server's certificate for agents. The token
    /// contains the digest of this certificate.
    pub authority: String,
}
