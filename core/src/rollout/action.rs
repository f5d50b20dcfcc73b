//! Actions of a plan. An executor applies each action in a transaction of its own, checks the ledger
//! there again, and records the new mark with the reason. The nodes of a unit are closed in a single
//! transaction.

use std::fmt;

use jiff::Timestamp;

use super::fleet::Mark;
use super::policy::Allow;
use super::rule::Rule;
use crate::effects::Effect;
use crate::ids::NodeId;

/// An action on a node, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub node: NodeId,
    /// The unit of the node. An executor closes the nodes of a unit in a single transaction.
    pub unit: Option<String>,
    pub act: Act,
    pub because: Because,
}

/// An act on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The node waits for its jobs, and serves meanwhile.
    Wait,
    /// The node is drained under our owner mark.
    Close {
        /// The node serves, and the act takes a slot of the ledger.
        takes_slot: bool,
        /// The scheduler requeues the node's jobs.
        requeue: bool,
    },
    /// The change is ordered, or ordered again.
    Change {
        effect: Effect,
        /// All pending changes of the node are made in the same visit.
        train: bool,
    },
    /// The gates of the pool run.
    Validate,
    /// The scheduler uses the node again.
    Readmit,
    /// Our wait or drain ends; the node is unchanged and serves again.
    GiveBack {
        /// The time from which the rollout may take the node again.
        not_before: Timestamp,
    },
    /// The node is done. A wait of ours ends.
    Finish {
        /// False if the node needed no change.
        changed: bool,
    },
    /// The rollout leaves the node out. A wait or drain of ours ends.
    Skip,
    /// The node has failed.
    Fail {
        /// The node is unchanged: our drain ends.
        give_back: bool,
    },
}

/// The reason of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// A rule keeps the node from being closed, or from going on.
    Rule(Rule),
    /// A slot is free, and the last job has ended or ends within the drain lead.
    SlotFree,
    /// The drain deadline has passed.
    DrainDeadline,
    /// The drain deadline has passed, and the scheduler requeues the jobs.
    JobsRequeued,
    /// A person agreed to requeue the jobs.
    RequeueAgreed,
    Drained,
    /// The attempt ended with a result not seen on the node before.
    WrongResult {
        result: String,
    },
    SameResultTwice {
        result: String,
    },
    TooManyAttempts {
        result: String,
        attempts: u32,
    },
    DrainFailed {
        why: String,
    },
    DrainCancelled,
    Arrived,
    GatesPassed,
    GateFailed {
        finding: String,
    },
    Serves,
    NoChangeNeeded,
    NotAllowed {
        effect: Effect,
        allow: Allow,
    },
    Superseded,
}

impl Act {
    /// Returns the code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Close { .. } => "close",
            Self::Change { .. } => "change",
            Self::Validate => "validate",
            Self::Readmit => "readmit",
            Self::GiveBack { .. } => "give_back",
            Self::Finish { .. } => "finish",
            Self::Skip => "skip",
            Self::Fail { .. } => "fail",
        }
    }

    /// Returns whether the act starts work on a node. A halted rollout starts no work.
    pub fn starts(&self) -> bool {
        match self {
            Self::Wait | Self::Close { .. } | Self::Change { .. } => true,
            Self::Validate
            | Self::Readmit
            | Self::GiveBack { .. }
            | Self::Finish { .. }
            | Self::Skip
            | Self::Fail { .. } => false,
        }
    }

    /// Returns the mark of the node after the act.
    pub fn mark(&self) -> Mark {
        match self {
            Self::Wait => Mark::Waiting,
            Self::Close { .. } | Self::Change { .. } => Mark::Changing,
            Self::Validate | Self::Readmit => Mark::Validating,
            Self::GiveBack { .. } => Mark::NotBegun,
            Self::Finish { .. } => Mark::Done,
            Self::Skip => Mark::Skipped,
            Self::Fail { .. } => Mark::Failed,
        }
    }
}

impl Because {
    /// Returns the code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Rule(rule) => rule.code(),
            Self::SlotFree => "slot_free",
            Self::DrainDeadline => "drain_deadline",
            Self::JobsRequeued => "jobs_requeued",
            Self::RequeueAgreed => "requeue_agreed",
            Self::Drained => "drained",
            Self::WrongResult { .. } => "wrong_result",
            Self::SameResultTwice { .. } => "same_result_twice",
            Self::TooManyAttempts { .. } => "too_many_attempts",
            Self::DrainFailed { .. } => "drain_failed",
            Self::DrainCancelled => "drain_cancelled",
            Self::Arrived => "arrived",
            Self::GatesPassed => "gates_passed",
            Self::GateFailed { .. } => "gate_failed",
            Self::Serves => "serves",
            Self::NoChangeNeeded => "no_change_needed",
            Self::NotAllowed { .. } => "not_allowed",
            Self::Superseded => "superseded",
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::SlotFree => f.write_str("a slot is free, and the last job ends in time"),
            Self::DrainDeadline => f.write_str("the drain deadline has passed"),
            Self::JobsRequeued => {
                f.write_str("the drain deadline has passed: the scheduler requeues the jobs")
            }
            Self::RequeueAgreed => f.write_str("a person agreed to requeue the jobs"),
            Self::Drained => f.write_str("the last job has ended"),
            Self::WrongResult { result } => write!(f, "the attempt ended wrong: {result}"),
            Self::SameResultTwice { result } => {
                write!(f, "the same wrong result twice: {result}")
            }
            Self::TooManyAttempts { result, attempts } => {
                write!(f, "wrong after {attempts} attempts: {result}")
            }
            Self::DrainFailed { why } => {
                write!(f, "the drain failed before any change: {why}")
            }
            Self::DrainCancelled => f.write_str("the drain was cancelled"),
            Self::Arrived => f.write_str("the node runs the target"),
            Self::GatesPassed => f.write_str("every gate passed"),
            Self::GateFailed { finding } => write!(f, "a gate failed: {finding}"),
            Self::Serves => f.write_str("the node passed every gate and serves"),
            Self::NoChangeNeeded => f.write_str("the node needs no change"),
            Self::NotAllowed { effect, allow } => {
                write!(
                    f,
                    "the node needs a {effect}, and at most {allow} is allowed"
                )
            }
            Self::Superseded => f.write_str("a newer rollout has taken over"),
        }
    }
}
