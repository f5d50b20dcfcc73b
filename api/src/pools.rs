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
}

impl Kind for PoolSpec {
    const KIND: &'static str = "pool";
    const COLLECTION: &'static str = "pools";
    const SCHEMA: &'static str = "Pool";
    type Status = NoStatus;
}
