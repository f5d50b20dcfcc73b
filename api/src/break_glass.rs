//! The local administrator, for when nobody can be vouched for.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether the local administrator may sign in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BreakGlass {
    /// Whether it must be armed first: an identity provider vouches for people.
    pub needed: bool,
    /// Absent while it is not.
    pub armed: Option<ArmedUntil>,
}

/// That it is armed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArmedUntil {
    pub armed_at: Timestamp,
    pub until: Timestamp,
    /// `USER@HOST` of the shell that armed it.
    pub by: String,
    pub reason: String,
}
