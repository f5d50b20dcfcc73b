//! The seal over the history.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The newest seal: whoever keeps this can show later that nothing up to it was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditHead {
    /// From one on, without a gap; 0 before anything was sealed.
    pub number: i64,
    /// The last event under it.
    pub last_seq: i64,
    /// 64 hex digits; empty before anything was sealed.
    pub hash: String,
    pub sealed_at: Option<Timestamp>,
}
