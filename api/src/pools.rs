//! Pools: the desired state for a set of nodes.

use jiff::Timestamp;
use muster_core::recovery::RecoveryPolicy;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;

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
    /// How the network of its nodes is built when they are installed. Absent: one address on the interface that a node is provisioned by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_profile: Option<String>,
    /// Seconds for which the disks of a released node are kept, so that the release can be undone; at most a week.
    #[serde(default = "default_undo_window_s")]
    pub undo_window_s: u32,
    /// How many of its nodes may be released in an hour before each needs a second person. Absent: as many as each person may.
    #[serde(default)]
    pub releases_per_hour: Option<u32>,
    /// What is watched on its nodes in service, and what is tried on those that fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<PoolHealth>,
    /// How many claims the pool keeps on itself, beside those that people make: it claims available nodes of its cluster's site until it has so many, and
    /// another one for each that is released. It releases none, whatever this becomes. At most 10,000. Absent: it makes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
}

/// How the nodes of a pool are watched once they serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolHealth {
    /// The suite by which `muster-node health` says whether a node is fit for the next job, for a scheduler's prolog and health check. It comes to a
    /// node with the next gates or sweep. Absent: none.
    #[serde(default)]
    pub smoke: Option<String>,
    /// The suite that is run on nodes in service, beside their jobs: gates that need a drained node are not run. Absent: none.
    #[serde(default)]
    pub sweep: Option<String>,
    /// Hours from one sweep of a node to the next; 1 to 720.
    #[serde(default = "default_sweep_every_h")]
    pub sweep_every_h: u32,
    /// What is tried on a node that fails its sweep, or the gates on its way into service. Absent: it is quarantined.
    #[serde(default)]
    pub recovery: Option<RecoveryPolicy>,
}

/// What holds where the spec does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// What `spec.undo_window_s` is.
    #[serde(default)]
    pub effective_undo_window_s: u32,
    /// `spec.health` with all that it leaves out.
    #[serde(default)]
    pub effective_health: Option<PoolHealth>,
    /// How it stands with what `spec.replicas` asks for; absent where it asks for none.
    #[serde(default)]
    pub replicas: Option<PoolReplicas>,
}

/// The claims that a pool makes by itself. `GET /v1/claims?filter=pool=POOL AND replica=true` lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolReplicas {
    /// What `spec.replicas` is.
    pub wanted: u32,
    /// Claims of its own that have a node and are not being released.
    pub claimed: u32,
    /// Those of them whose node is in service.
    pub in_service: u32,
    /// Claims that are made next: nodes for them are available.
    pub coming: u32,
    /// Claims that cannot be made: no node for them is available.
    pub short: u32,
    /// Since when some cannot be made.
    pub short_since: Option<Timestamp>,
    /// Claims beyond what is wanted. Nothing is released because a number was lowered: a person releases them.
    pub surplus: u32,
    /// What is in the way, and what to do; absent where nothing is.
    pub because: Option<String>,
}

fn default_sweep_every_h() -> u32 {
    DEFAULT_SWEEP_EVERY_H
}

/// Once a day, where a pool does not say.
pub const DEFAULT_SWEEP_EVERY_H: u32 = 24;

fn default_undo_window_s() -> u32 {
    DEFAULT_UNDO_WINDOW_S
}

/// A quarter of an hour: as long as it takes to see that it was the wrong node.
pub const DEFAULT_UNDO_WINDOW_S: u32 = 15 * 60;
/// More claims than this no pool makes by itself.
pub const MOST_REPLICAS: u32 = 10_000;

/// A week.
pub const LONGEST_UNDO_WINDOW_S: u32 = 7 * 24 * 3600;

impl Kind for PoolSpec {
    const KIND: &'static str = "pool";
    const COLLECTION: &'static str = "pools";
    const SCHEMA: &'static str = "Pool";
    type Status = PoolStatus;
}
