//! The seal over the event history.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The newest seal. A stored copy of this seal proves later that events up to `last_seq` are
/// unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditHead {
    /// Number of the seal. Seals count from 1 without a gap; 0 before the first seal.
    pub number: i64,
    /// `seq` of the last event covered by the seal.
    pub last_seq: i64,
    /// Hash of the chain, 64 hex digits. Empty before the first seal.
    pub hash: String,
    /// Time of the seal. Absent before the first seal.
    pub sealed_at: Option<Timestamp>,
}
