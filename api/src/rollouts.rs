//! Rollouts: the claims of a pool move to a revision in waves, within the disruption budgets.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::rollout::{Mark, MonitorState, NotCompared, RolloutPolicy};
use muster_core::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

words! {
    /// The state of a rollout.
    #[derive(ToSchema)]
    RolloutState, "rollout state" {
        /// Waits for a person's start.
        Planned = "planned",
        Running = "running",
        /// Starts no work on a node. Work under way ends. Only a resume ends a halt.
        Halted = "halted",
        /// Every node has ended.
        Done = "done",
        /// Another rollout of the pool has taken over.
        Superseded = "superseded",
        /// The plan was not started in time.
        Expired = "expired",
    }
}

/// The body of `POST /v1/rollouts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRollout {
    /// Name of the pool.
    pub pool: String,
    /// Number of the revision for every claim of the pool, also an earlier one.
    pub revision: i32,
    /// The rules of the rollout. Each absent member has a careful default.
    #[serde(default)]
    pub policy: RolloutPolicy,
}

/// The body of `actions/start` of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRollout {
    /// The digest of the plan as confirmed: `plan` of the rollout. A fleet that has changed since
    /// refuses the start.
    pub plan: String,
    /// Takes over from the rollout of the pool that is running or halted.
    #[serde(default)]
    pub supersede: bool,
}

/// The body of `actions/halt`, `actions/resume` and `actions/promote` of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SteerRollout {
    /// Reason, for the history.
    pub reason: String,
}

/// The body of `actions/adjust` of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdjustRollout {
    /// Changes to the policy, as a JSON merge patch: absent members stay. `null` removes a member: the
    /// default applies, and in `failure_budget` the limit is removed. May change: `budgets`, `drain`,
    /// `drain_lead_s`, `failure_budget`, `halt_when`, `maintenance_window`, `stall_after_s` and
    /// `visit_by`.
    #[schema(value_type = Object)]
    pub policy: serde_json::Map<String, serde_json::Value>,
    /// Reason, for the history.
    pub reason: String,
}

/// The body of `actions/skip`, `actions/retry` and `actions/requeue` of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SteerNode {
    /// Name of the node.
    pub node: String,
    /// Reason, for the history.
    pub reason: String,
}

/// A rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rollout {
    pub id: Uuid,
    /// The pool's name and a number: `gpu-3`.
    pub name: String,
    #[serde(rename = "self")]
    pub link: String,
    pub pool: String,
    /// Number of the revision that the rollout brings to every node.
    pub revision: i32,
    /// Numbers of the revisions that the nodes were assigned before, ascending.
    #[serde(default)]
    pub from: Vec<i32>,
    pub state: RolloutState,
    /// Digest of the plan: the nodes with their effects, and the policy.
    pub plan: String,
    /// A plan not started until then has no effect any more.
    pub expires_at: Timestamp,
    pub policy: RolloutPolicy,
    /// Number of nodes that change, as planned. Percentages of the policy refer to this number.
    pub planned: u32,
    /// A person ended the canary and its soak early.
    pub promoted: bool,
    /// Number of nodes by mark.
    pub marks: BTreeMap<String, u32>,
    /// The reason of the halt.
    #[serde(default)]
    pub halt: Option<RolloutReason>,
    /// The view of the planner. Absent after the end.
    #[serde(default)]
    pub now: Option<RolloutNow>,
    /// The estimated end. Absent in lists, in answers to an act, and after the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<RolloutEstimate>,
    /// Start of the time without progress, after the policy's deadline.
    #[serde(default)]
    pub stalled_since: Option<Timestamp>,
    /// Author of the plan.
    pub actor: String,
    pub created_at: Timestamp,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// The nodes, ordered by name. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<RolloutNode>>,
}

/// The view of the planner at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutNow {
    /// The rule that keeps further nodes from going on.
    #[serde(default)]
    pub binding: Option<RolloutReason>,
    /// The failure budget as a sentence: `stops at the 4th failure over the whole run; 1 so far`.
    pub failure_rule: String,
    /// Nodes that change.
    pub changing: u32,
    /// Nodes that could change at the same time if no jobs ran, under the present rules.
    pub most_changing: u32,
    /// The rule that limits `most_changing`. Absent if every node could change at the same time.
    #[serde(default)]
    pub bound_by: Option<RolloutReason>,
    /// The maintenance windows. Nodes are taken while all of them are open.
    #[serde(default)]
    pub windows: Vec<RolloutWindow>,
    /// The alerts, monitors and regressions that halt the rollout, by the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<RolloutSignal>,
    /// The GPU time lost by nodes that wait now. Absent without a loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<RolloutLosses>,
    /// Why the reservations that keep long jobs away from the waiting nodes fail. Absent while they are
    /// as needed, and without a waiting node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations_failed: Option<ReservationFailure>,
}

/// Failing reservations of waiting nodes: the nodes may get jobs that are too long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationFailure {
    pub since: Timestamp,
    /// Code of the failure: `slurm_refused`, `slurm_unreachable`…
    pub code: String,
    /// The failure, with the answer of the scheduler.
    pub sentence: String,
}

/// GPU time lost by waiting: the time without jobs of nodes that are kept for their change. A node that
/// runs jobs while it waits loses none. Waits that are over do not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutLosses {
    /// GPUs times seconds.
    pub gpu_seconds: u64,
    /// Number of waiting nodes with an unknown loss, missing in `gpu_seconds`.
    pub unknown: u32,
    /// `12.0 GPU-hours lost by waiting; unknown for 1 node`.
    pub sentence: String,
}

/// A signal of the policy's `halt_when` at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutSignal {
    pub kind: SignalKind,
    /// Name of the alert or of the monitor, or gate and metric of a regression: `GATE/METRIC`.
    pub name: String,
    /// `firing` and `silent` halt the rollout; `unknown` keeps further nodes from going on. An alert is
    /// `firing` or `quiet`, and a regression never `silent`.
    pub state: MonitorState,
    /// `monitor gpu-errors fires since 2026-12-01T10:00:00Z: 2 series`.
    pub sentence: String,
}

words! {
    /// The kind of a signal.
    #[derive(ToSchema)]
    SignalKind, "kind of a signal" {
        Alert = "alert",
        Monitor = "monitor",
        Regression = "regression",
    }
}

/// A maintenance window of a rollout at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutWindow {
    /// Name of the maintenance window.
    pub name: String,
    /// `site`, `pool` or `rollout`: the kind of the object that names the window.
    pub named_by: String,
    /// Name of the site, of the pool or of the rollout.
    #[serde(default)]
    pub namer: String,
    /// Whether nodes may be taken now.
    pub open: bool,
    /// The window was removed, or its spec cannot be read. The window is closed.
    #[serde(default)]
    pub unreadable: bool,
    /// The end of the open time, or the next opening. Absent if the window stays open for 15 days, and
    /// if no opening follows.
    #[serde(default)]
    pub changes_at: Option<Timestamp>,
    /// The reason of the freeze of today. Absent without a freeze.
    #[serde(default)]
    pub frozen: Option<String>,
}

/// The estimated end of a rollout: of a plan, the end after a start now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutEstimate {
    /// The early end. Absent without an estimate.
    #[serde(default)]
    pub early: Option<Timestamp>,
    /// The late end, not before `early`.
    #[serde(default)]
    pub late: Option<Timestamp>,
    /// The assumptions, as sentences.
    #[serde(default)]
    pub assumes: Vec<String>,
    /// Why the end cannot be estimated, as a sentence.
    #[serde(default)]
    pub unknown: Option<String>,
    /// Time of the calculation: up to minutes ago for a rollout of 250 nodes or more. Absent for an
    /// estimate of this answer.
    #[serde(default)]
    pub as_of: Option<Timestamp>,
}

/// A code for programs, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutReason {
    pub code: String,
    pub sentence: String,
}

/// A node of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RolloutNode {
    pub node: String,
    pub mark: Mark,
    /// Number of the wave: 0 for the canary, 1 for the first wave. Estimated until the rollout takes
    /// the node. Absent for a node without a wave: the node needs no change, or is left out.
    #[serde(default)]
    pub wave: Option<u32>,
    /// Time of the last change of the mark.
    pub since: Timestamp,
    /// Number of the revision that the node runs. Absent while unknown.
    #[serde(default)]
    pub running: Option<i32>,
    /// The computed effect of bringing the node to the revision: `none`, `in_place`, `reboot`,
    /// `reinstall` or `wipe`. Absent while the running revision is unknown. At least `in_place` for a
    /// failed node that the rollout takes. A node taken by the rollout keeps the effect of its change.
    #[serde(default)]
    pub effect: Option<String>,
    /// Lifecycle state of the node.
    pub state: String,
    /// Why the node does not go on now, or is left out. A reason of the node itself, such as a hold or
    /// `incompatible`, comes before a rule of the rollout, and is in the plan.
    #[serde(default)]
    pub why: Option<RolloutReason>,
    /// Time at which a person agreed to requeue the node's jobs. Absent without an agreement, and after
    /// the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_agreed_at: Option<Timestamp>,
    /// Values of gates from before and after the change, for the regressions of the policy. Empty for a
    /// node that the rollout has not changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<NodeComparison>,
    /// The reason of the last act on the node.
    #[serde(default)]
    pub last: Option<RolloutReason>,
    /// The node has not ended, and the date `visit_by` of the policy has passed.
    #[serde(default)]
    pub overdue: bool,
    /// GPUs times seconds that the node has lost while it waits now. Absent for a node that does not
    /// wait, and while the loss is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_gpu_seconds: Option<u64>,
}

/// A value of a gate on a changed node, compared with the value before the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeComparison {
    pub gate: String,
    pub metric: String,
    /// The disk, GPU or link with the largest loss. Absent for a value of the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// Absent without a comparison, as `after`, `unit` and `loss_percent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The loss in percent of the value before. Negative for a better value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<f64>,
    /// Whether the loss is larger than the policy tolerates.
    #[serde(default)]
    pub is_worse: bool,
    /// Why no values could be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<NotCompared>,
    /// `gpu.nvbandwidth: nvbandwidth.host_to_device of 3 was 55.3 and is 50.1 GB/s (9.4 % worse)`.
    pub sentence: String,
}
