//! Pools: the desired state for a set of nodes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;
use crate::object::NoStatus;

/// A pool, by the names of what its nodes run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    pub image: String,
    pub stack: String,
    pub suite: String,
    pub cluster: String,
    /// Only nodes of this hardware profile are bound to it.
    #[serde(default)]
    pub profile: Option<String>,
    /// Seconds for which the disks of a released node are kept, so that the release can be undone; at most a week.
    #[serde(default = "default_undo_window_s")]
    pub undo_window_s: u32,
    /// How many of its nodes may be released in an hour before each needs a second person. Absent: as many as each person may.
    #[serde(default)]
    pub releases_per_hour: Option<u32>,
}

fn default_undo_window_s() -> u32 {
    DEFAULT_UNDO_WINDOW_S
}

/// A quarter of an hour: as long as it takes to see that it was the wrong node.
pub const DEFAULT_UNDO_WINDOW_S: u32 = 15 * 60;
/// A week.
pub const LONGEST_UNDO_WINDOW_S: u32 = 7 * 24 * 3600;

impl Kind for PoolSpec {
    const KIND: &'static str = "pool";
    const COLLECTION: &'static str = "pools";
    const SCHEMA: &'static str = "Pool";
    type Status = NoStatus;
}
