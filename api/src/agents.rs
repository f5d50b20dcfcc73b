//! Agents: the processes that act for a site.

use jiff::Timestamp;
use muster_core::values::{Name, Secret};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// `POST /v1/sites/{site}/agents`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrolAgent {
    pub name: Name,
}

/// An agent as enrolled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Agent {
    pub id: Uuid,
    pub name: String,
    pub site: String,
    /// Absent until it called.
    pub version: Option<String>,
    pub last_seen: Option<Timestamp>,
    /// How far the clock of its machine is ahead of the server's time, in milliseconds. Nothing is decided by it; beyond five minutes it is told as an
    /// event.
    pub clock_offset_ms: Option<i64>,
    /// Until when its newest certificate counts. Absent until it enrolled. It renews at half of a certificate's life.
    pub certified_until: Option<Timestamp>,
    /// Counts who was enrolled under its name. The ETag is `"<generation>"`.
    #[serde(default)]
    pub generation: i64,
}

/// The answer to an enrolment: the only time the token is shown.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnrolledAgent {
    pub agent: Agent,
    #[schema(value_type = String)]
    pub token: Secret,
    /// Until when the token can be used, once.
    pub token_expires_at: Timestamp,
    /// The certificate, PEM, of the authority that certifies the server for its agents; the token carries its digest.
    pub authority: String,
}
