//! Pools: the desired software and health checks for a set of nodes.

use jiff::Timestamp;
use muster_core::recovery::RecoveryPolicy;
use muster_core::rollout::Amount;
use muster_core::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;

words! {
    /// What a changed image, stack or network profile does to a pool.
    #[derive(Default, ToSchema)]
    OnChange, "reaction to a change" {
        /// The pool gets a revision. A person plans and starts the rollout.
        #[default]
        Propose = "propose",
        /// The pool gets a revision, and a rollout of the revision starts by itself, with the default
        /// policy.
        Start = "start",
        /// The pool gets no revision until the value is changed.
        Hold = "hold",
    }
}

/// A pool, referring by name to the image, stack, suite and cluster of the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Name of the image installed on the nodes.
    pub image: String,
    /// Name of the stack installed over the image.
    pub stack: String,
    /// Name of the suite to pass before service.
    pub suite: String,
    /// Name of the cluster admitting the nodes.
    pub cluster: String,
    /// Name of a hardware profile. If set, only nodes with this profile can be bound to the pool.
    #[serde(default)]
    pub profile: Option<String>,
    /// Network layout of installed nodes. Absent: one address, on the provisioning interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_profile: Option<String>,
    /// Undo window of a release, in seconds, at most a week. The disks of a released node are kept
    /// for this time.
    #[serde(default = "default_undo_window_s")]
    pub undo_window_s: u32,
    /// Number of nodes of the pool that may be released per hour. Each further release needs a
    /// second person. Absent: only the limit of each person applies.
    #[serde(default)]
    pub releases_per_hour: Option<u32>,
    /// Nodes of the pool that may be out of service at a time, for any reason: a number, or a
    /// percentage of the nodes that have been in service (rounded down, at least 1). Muster takes no
    /// further node out of service beyond this number. Default: `"10%"`.
    #[serde(default = "default_max_unavailable")]
    pub max_unavailable: Amount,
    /// Name of a maintenance window for the rollouts of the pool, beside the window of the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_window: Option<String>,
    /// What a changed image, stack or network profile does to the pool: `propose`, `start` or `hold`.
    /// Default: `propose`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_change: OnChange,
    /// Whether only images with a valid signature of a trusted signing key are installed. A change
    /// from `true` to `false` needs `pool.drop-signature`. Default: `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_signature: bool,
    /// Health checks for nodes in service, and recovery of failing nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<PoolHealth>,
    /// Number of claims that the pool creates and keeps, besides claims created by people; at most
    /// 10,000. The pool claims available nodes of its cluster's site up to this number, and
    /// replaces each released claim. Lowering the number releases no claim. Absent: the pool
    /// creates no claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
}

/// Health checks for a pool's nodes in service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolHealth {
    /// Name of the suite used by `muster-node health`. The result tells a scheduler's prolog and
    /// health check whether a node is fit for the next job. The suite is copied to a node with the
    /// next gate run or sweep. Absent: no suite.
    #[serde(default)]
    pub smoke: Option<String>,
    /// Name of the suite for sweeps. A sweep runs on nodes in service beside their jobs; gates that
    /// need a drained node are skipped. Absent: no sweeps.
    #[serde(default)]
    pub sweep: Option<String>,
    /// Hours between two sweeps of a node; 1 to 720.
    #[serde(default = "default_sweep_every_h")]
    pub sweep_every_h: u32,
    /// Recovery policy for a node that fails a sweep, or fails the gates on the way into service.
    /// Absent: the node is quarantined.
    #[serde(default)]
    pub recovery: Option<RecoveryPolicy>,
}

/// Effective values of omitted fields, and the state of replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Value of `spec.undo_window_s` with the default applied.
    #[serde(default)]
    pub effective_undo_window_s: u32,
    /// Value of `spec.on_change` with the default applied.
    #[serde(default)]
    pub effective_on_change: OnChange,
    /// Value of `spec.health` with all defaults applied.
    #[serde(default)]
    pub effective_health: Option<PoolHealth>,
    /// Number of the revision assigned to new claims.
    #[serde(default)]
    pub present_revision: Option<i32>,
    /// Number of the newest revision. A number above `present_revision`: a change is proposed and
    /// affects no node yet.
    #[serde(default)]
    pub newest_revision: Option<i32>,
    /// The pool is on `hold`, and its image, stack or network profile differ from the newest revision.
    #[serde(default)]
    pub change_held: bool,
    /// The rollout that starts by itself. Absent after the start.
    #[serde(default)]
    pub due_rollout: Option<DueRollout>,
    /// Progress towards `spec.replicas`. Absent if `spec.replicas` is absent.
    #[serde(default)]
    pub replicas: Option<PoolReplicas>,
}

/// A rollout of a pool with `on_change: start`, before the start. The start is tried a minute after the
/// last change; then every 10 minutes, or every minute while another rollout of the pool is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DueRollout {
    /// Number of the revision.
    pub revision: i32,
    /// Time of the change.
    pub since: Timestamp,
    /// Code of the last refusal, as of `POST /v1/rollouts`, `rollout_open` while another rollout of the
    /// pool is open, or `not_allowed` if every node needs a reinstall. Absent before the first attempt.
    pub code: Option<String>,
    /// The refusal as a sentence.
    pub because: Option<String>,
}

/// The claims created by the pool. `GET /v1/claims?filter=pool=POOL AND replica=true` lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolReplicas {
    /// Value of `spec.replicas`.
    pub wanted: u32,
    /// Number of the pool's own claims having a node and not being released.
    pub claimed: u32,
    /// Number of claims in `claimed` whose node is in service.
    pub in_service: u32,
    /// Number of claims to be created next: nodes are available.
    pub coming: u32,
    /// Number of missing claims without an available node.
    pub short: u32,
    /// Time from which `short` has been above zero.
    pub short_since: Option<Timestamp>,
    /// Number of claims above `wanted`. Lowering the number releases no claim: a person must
    /// release the surplus.
    pub surplus: u32,
    /// The obstacle and the action needed. Absent without an obstacle.
    pub because: Option<String>,
}

fn default_sweep_every_h() -> u32 {
    DEFAULT_SWEEP_EVERY_H
}

/// Default for hours between sweeps: once a day.
pub const DEFAULT_SWEEP_EVERY_H: u32 = 24;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn default_max_unavailable() -> Amount {
    DEFAULT_MAX_UNAVAILABLE
}

/// Default budget of a pool for nodes out of service.
pub const DEFAULT_MAX_UNAVAILABLE: Amount = Amount::Percent(10);

fn default_undo_window_s() -> u32 {
    DEFAULT_UNDO_WINDOW_S
}

/// Default undo window: a quarter of an hour, enough to notice the release of a wrong node.
pub const DEFAULT_UNDO_WINDOW_S: u32 = 15 * 60;
/// Maximum number of claims created by one pool.
pub const MOST_REPLICAS: u32 = 10_000;

/// Maximum undo window in seconds: a week.
pub const LONGEST_UNDO_WINDOW_S: u32 = 7 * 24 * 3600;

impl Kind for PoolSpec {
    const KIND: &'static str = "pool";
    const COLLECTION: &'static str = "pools";
    const SCHEMA: &'static str = "Pool";
    type Status = PoolStatus;
}
