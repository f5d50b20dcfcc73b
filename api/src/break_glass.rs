//! Break-glass: the local administrator's sign-in, for when the identity provider is unreachable.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether the local administrator may sign in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BreakGlass {
    /// Whether sign-in requires arming first. `true` when an identity provider is configured.
    pub needed: bool,
    /// The current arming. Absent while disarmed.
    pub armed: Option<ArmedUntil>,
}

/// An arming of the local administrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArmedUntil {
    pub armed_at: Timestamp,
    /// Time at which the arming ends automatically.
    pub until: Timestamp,
    /// `USER@HOST` of the shell session used for arming.
    pub by: String,
    /// Reason given while arming, for the history.
    pub reason: String,
}
