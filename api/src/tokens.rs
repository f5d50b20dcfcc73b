//! Tokens of machines: `mst_<id>_<secret><crc32>`, with a role and an end.

use jiff::Timestamp;
use muster_core::values::{Name, Secret};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use crate::access::Role;
use crate::access::Scope;

/// `POST /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    pub name: Name,
    pub role: Role,
    /// Where the role holds; no more than the maker's own.
    #[serde(default)]
    pub scope: Scope,
    /// Seconds until it ends; at most a year, and no later than a token that makes it.
    pub expires_in_s: u32,
    /// How many nodes it may release, wipe or install anew in an hour before each needs a second person.
    #[serde(default = "default_releases_per_hour")]
    pub releases_per_hour: u32,
}

fn default_releases_per_hour() -> u32 {
    DEFAULT_RELEASES_PER_HOUR
}

/// What one person may release, wipe or install anew in an hour.
pub const DEFAULT_RELEASES_PER_HOUR: u32 = 20;

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    pub id: Uuid,
    pub name: String,
    pub role: Role,
    #[serde(default)]
    pub scope: Scope,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub last_used: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// How many nodes it may release, wipe or install anew in an hour alone; any number when absent.
    pub releases_per_hour: Option<u32>,
    /// The token that it was made with: it ends no later, and is revoked with it. None of what a person made, or was made beside the database.
    #[serde(default)]
    pub made_by: Option<Uuid>,
    /// Always 1: a token is never changed, only ended. Its ETag is `"1"`.
    #[serde(default = "first")]
    pub generation: i64,
}

/// Of what is never changed.
pub const FIRST: i64 = 1;

fn first() -> i64 {
    FIRST
}

/// The answer to a creation: the only time the token is shown.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    pub token: Token,
    #[schema(value_type = String)]
    pub secret: Secret,
}
