//! Operations: long-running requests. Every operation is stored, and every step has a deadline.

use jiff::Timestamp;
use muster_core::wire::node::{Failure, Progress};
use muster_core::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// An operation and its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    pub id: Uuid,
    #[serde(rename = "self")]
    pub link: String,
    /// Kind of the request: `accept`, `claim`, `release`, `inspect`…
    pub kind: String,
    pub target: Option<Target>,
    pub state: OperationState,
    /// Whether `state` is final.
    pub done: bool,
    pub progress: OperationProgress,
    /// The failure of a failed operation.
    pub error: Option<Failure>,
    /// Steps started so far, in order.
    pub steps: Vec<Step>,
    /// Time after which the current step counts as stuck.
    pub deadline: Option<Timestamp>,
    /// The person, token or component asking, as in events.
    pub actor: String,
    pub request_id: Option<String>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// Links to the results. Set after the end of the operation.
    #[serde(default)]
    pub result: Option<OperationResult>,
    /// The condition blocking the operation while no step is running.
    #[serde(default)]
    pub blocked_by: Option<BlockedBy>,
}

/// The results of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationResult {
    pub links: Vec<ResultLink>,
}

/// An object created or observed by an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResultLink {
    /// `node`, `claim`, `facts`, `drift`, `gate_run` or `log`.
    pub of: String,
    #[serde(rename = "self")]
    pub link: String,
    /// A short summary: for a gate run, the suite and the verdict.
    pub told: Option<String>,
}

/// The condition blocking an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockedBy {
    /// `agent` (a job not yet leased by an agent), `caution`, `protection`, `rack_power`,
    /// `disruption_budget`, `undo_window`, `person`, or `muster`.
    pub by: String,
    /// The code of the node's wait, as `status.why.reason` of the node has it.
    pub reason: Option<String>,
    /// One sentence.
    pub detail: String,
    /// Time from which the operation has been blocked, if recorded.
    pub since: Option<Timestamp>,
    /// Path with more details.
    pub link: Option<String>,
}

/// The object of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Target {
    /// Kind of the object: `node`.
    pub kind: String,
    pub id: Uuid,
    pub name: String,
    #[serde(rename = "self")]
    pub link: String,
}

words! {
    /// The state of an operation.
    #[derive(ToSchema)]
    OperationState, "state of an operation" {
        Queued = "queued",
        Running = "running",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
        /// The result of a step was not reported; the message names the check needed. Not final: the
        /// operation continues after the check.
        Unknown = "unknown",
    }
}

impl OperationState {
    /// Returns whether the state is final.
    pub fn done(self) -> bool {
        !matches!(self, Self::Queued | Self::Running | Self::Unknown)
    }
}

/// Progress of an operation, for a progress bar.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationProgress {
    /// The current step.
    pub step: Option<String>,
    /// Number of steps started so far. The total is unknown in advance.
    pub steps: u32,
    /// Progress of the current step, if the work has a known size.
    pub percent: Option<f64>,
    pub message: String,
}

/// One unit of work of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    pub job: Uuid,
    pub step: String,
    /// Kind of the job: `boot_live`, `write_image`, `gates`…
    pub kind: String,
    /// `queued`, `leased`, `succeeded`, `failed` or `cancelled`.
    pub state: String,
    /// Number of leases of the job. A new attempt starts after a lost lease.
    pub attempt: i32,
    /// Round of the job. A job queued again starts a new round, unaffected by earlier rounds.
    pub round: i32,
    pub progress: Option<Progress>,
    /// The awaited and the observed condition, in one sentence.
    pub waiting_for: Option<String>,
    pub failure: Option<Failure>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

/// One line of an operation's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationLogLine {
    /// Pass the last `id` as `after` to read on.
    pub id: i64,
    pub job: Uuid,
    pub step: String,
    pub attempt: i32,
    pub at: Timestamp,
    pub text: String,
}

/// A range of an operation's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationLog {
    pub items: Vec<OperationLogLine>,
}
