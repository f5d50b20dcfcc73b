//! Operations: something long that was asked for. Never lost, never "still running" for ever.

use jiff::Timestamp;
use muster_core::wire::node::{Failure, Progress};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// An operation and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    pub id: Uuid,
    #[serde(rename = "self")]
    pub link: String,
    /// `accept`, `claim`, `release`, `inspect`…
    pub kind: String,
    pub target: Option<Target>,
    pub state: OperationState,
    /// Whether `state` is final.
    pub done: bool,
    pub progress: OperationProgress,
    pub error: Option<Failure>,
    pub steps: Vec<Step>,
    /// When the step it is at counts as stuck.
    pub deadline: Option<Timestamp>,
    pub actor: String,
    pub request_id: Option<String>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// What came of it, once it is done: where to read it.
    #[serde(default)]
    pub result: Option<OperationResult>,
    /// What it waits for while nothing of it is being done.
    #[serde(default)]
    pub blocked_by: Option<BlockedBy>,
}

/// What came of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationResult {
    pub links: Vec<ResultLink>,
}

/// Something that an operation made or saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResultLink {
    /// `node`, `claim`, `facts`, `drift`, `gate_run` or `log`.
    pub of: String,
    #[serde(rename = "self")]
    pub link: String,
    /// What it says in short, as a run of gates its suite and verdict.
    pub told: Option<String>,
}

/// What keeps an operation from going on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockedBy {
    /// `agent` (a job that nobody has leased), `caution`, `protection`, `rack_power`, `undo_window`, `person`, or `muster`.
    pub by: String,
    /// The code of the node's wait, as `status.why.reason` of the node has it.
    pub reason: Option<String>,
    /// One sentence.
    pub detail: String,
    pub since: Option<Timestamp>,
    /// Where more is told of it.
    pub link: Option<String>,
}

/// What an operation acts on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Target {
    /// `node`.
    pub kind: String,
    pub id: Uuid,
    pub name: String,
    #[serde(rename = "self")]
    pub link: String,
}

/// How an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    Queued,
    Running,
    Succeeded,
    Failed,
    Cancelled,
    /// Nobody heard how its step ended; the message says what will tell. Not an end: it goes on once that was looked at.
    Unknown,
}

impl OperationState {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }

    /// Whether it is final.
    pub fn done(self) -> bool {
        !matches!(self, Self::Queued | Self::Running | Self::Unknown)
    }
}

impl std::str::FromStr for OperationState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [
            Self::Queued,
            Self::Running,
            Self::Succeeded,
            Self::Failed,
            Self::Cancelled,
            Self::Unknown,
        ];
        all.into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not the state of an operation"))
    }
}

/// How far it is, for a progress bar.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationProgress {
    /// The step it is at.
    pub step: Option<String>,
    /// Steps begun so far; the rest is not known beforehand.
    pub steps: u32,
    /// Of the step it is at, where the work has a size.
    pub percent: Option<f64>,
    pub message: String,
}

/// One unit of its work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    pub job: Uuid,
    pub step: String,
    pub kind: String,
    /// `queued`, `leased`, `succeeded`, `failed` or `cancelled`.
    pub state: String,
    pub attempt: i32,
    pub round: i32,
    pub progress: Option<Progress>,
    pub waiting_for: Option<String>,
    pub failure: Option<Failure>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

/// One line of an operation's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationLogLine {
    /// Pass the last one as `after` to read on.
    pub id: i64,
    pub job: Uuid,
    pub step: String,
    pub attempt: i32,
    pub at: Timestamp,
    pub text: String,
}

/// A stretch of an operation's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationLog {
    pub items: Vec<OperationLogLine>,
}
