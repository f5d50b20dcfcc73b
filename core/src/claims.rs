//! Claims: one node bound to one pool.

use serde::{Deserialize, Serialize};

/// How far a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimState {
    /// Bound; the node is on its way to service, or there.
    Bound,
    /// Deleted by its owner; the node is being drained, wiped and inspected.
    Releasing,
    /// Gone; kept for history.
    Released,
}

impl ClaimState {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Releasing => "releasing",
            Self::Released => "released",
        }
    }
}
