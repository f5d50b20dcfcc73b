//! Tokens of machines: `mst_<id>_<secret><crc32>`, with a role and an expiry.

use jiff::Timestamp;
use muster_core::values::{Name, Secret};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use crate::access::Role;
use crate::access::Scope;

/// The body of `POST /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    pub name: Name,
    pub role: Role,
    /// Scope of the role; at most the scope of the token's creator.
    #[serde(default)]
    pub scope: Scope,
    /// Lifetime in seconds; at most a year. A token created by another token expires no later than
    /// the other token.
    pub expires_in_s: u32,
    /// Number of nodes that the token may release, wipe or reinstall per hour. Each further node
    /// needs a second person.
    #[serde(default = "default_releases_per_hour")]
    pub releases_per_hour: u32,
}

fn default_releases_per_hour() -> u32 {
    DEFAULT_RELEASES_PER_HOUR
}

/// Default for nodes released, wiped or reinstalled per hour by one person.
pub const DEFAULT_RELEASES_PER_HOUR: u32 = 20;

/// A token, without the secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    pub id: Uuid,
    pub name: String,
    pub role: Role,
    #[serde(default)]
    pub scope: Scope,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// Time of the latest use. Absent for an unused token.
    pub last_used: Option<Timestamp>,
    /// Time of the revocation. Absent for a token still in effect.
    pub revoked_at: Option<Timestamp>,
    /// Number of nodes that the token alone may release, wipe or reinstall per hour. Absent:
    /// unlimited.
    pub releases_per_hour: Option<u32>,
    /// The token that created this token. This token expires no later and is revoked together with
    /// the creator. Absent for tokens created by a person or outside the database.
    #[serde(default)]
    pub made_by: Option<Uuid>,
    /// Always 1: a token can be revoked but not changed. The ETag is `"1"`.
    #[serde(default = "first_generation")]
    pub generation: i64,
}

/// Generation of immutable objects.
pub const FIRST: i64 = 1;

fn first_generation() -> i64 {
    FIRST
}

/// The response to a creation. The token is shown only here.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    pub token: Token,
    #[schema(value_type = String)]
    pub secret: Secret,
}
