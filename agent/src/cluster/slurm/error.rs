//! Errors between an agent and a Slurm controller, with messages for the operator on call.

use std::time::Duration;

use muster_core::wire::node::FailureCode;

/// A failed Slurm operation.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    #[error("{program} is not installed on the agent's host: install slurm-client and munge there")]
    ToolMissing { program: String },
    #[error("the Slurm controller does not answer: {said}")]
    Unreachable { said: String },
    #[error("{command} gave no answer within {after:?}")]
    Timeout { command: String, after: Duration },
    #[error("{command} was refused: {said}")]
    Refused { command: String, said: String },
    #[error("Slurm answers what Muster does not understand: {what}")]
    Garbage { what: String },
    #[error("{path}: {source}")]
    Files {
        path: String,
        source: std::io::Error,
    },
    #[error("{field} {value:?} cannot stand in a Slurm configuration line")]
    Unwritable { field: &'static str, value: String },
    #[error("{name} is not in the list of nodes to admit")]
    NotListed { name: String },
    #[error(
        "the new list of nodes would remove {names} from the cluster, which is neither drained nor down; a newer list is needed"
    )]
    WouldRemove { names: String },
    #[error("{name} is still in use: {seen}; drain it first")]
    InUse { name: String, seen: String },
    #[error(
        "Slurm {version} takes another set of nodes only when slurmctld starts (before 23.11 a reconfigure ends it), and {hook} is missing: \
         put an executable there, owned by root and writable by nobody else, that restarts slurmctld; for instance `exec systemctl restart slurmctld`"
    )]
    NoRestart { version: String, hook: String },
    #[error(
        "the controller did not come back with the new list of nodes within {waited:?}; {seen}. Look at slurmctld's log and start it"
    )]
    NotRestarted { waited: Duration, seen: String },
    #[error("gave up waiting: {seen}")]
    DeadlinePassed { seen: String },
    #[error("the wait was cancelled")]
    Cancelled,
}

impl SlurmError {
    /// Returns whether repeating the same call later can succeed without an action of an operator.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::NotRestarted { .. } => true,
            Self::DeadlinePassed { .. } | Self::InUse { .. } | Self::WouldRemove { .. } => true,
            Self::ToolMissing { .. }
            | Self::Refused { .. }
            | Self::Garbage { .. }
            | Self::Files { .. } => false,
            Self::Unwritable { .. }
            | Self::NotListed { .. }
            | Self::NoRestart { .. }
            | Self::Cancelled => false,
        }
    }

    /// Returns the failure code sent to the server.
    pub fn code(&self) -> FailureCode {
        match self {
            Self::ToolMissing { .. } => FailureCode::SlurmToolMissing,
            Self::Unreachable { .. } => FailureCode::SlurmUnreachable,
            Self::Timeout { .. } => FailureCode::SlurmTimeout,
            Self::Refused { .. } => FailureCode::SlurmRefused,
            Self::Garbage { .. } => FailureCode::SlurmGarbage,
            Self::Files { .. } => FailureCode::SlurmFiles,
            Self::Unwritable { .. } => FailureCode::SlurmUnwritable,
            Self::NotListed { .. } => FailureCode::SlurmNotListed,
            Self::WouldRemove { .. } => FailureCode::SlurmWouldRemove,
            Self::InUse { .. } => FailureCode::SlurmInUse,
            Self::NoRestart { .. } => FailureCode::SlurmNoRestart,
            Self::NotRestarted { .. } => FailureCode::SlurmNotRestarted,
            Self::DeadlinePassed { .. } => FailureCode::SlurmNotClean,
            Self::Cancelled => FailureCode::Cancelled,
        }
    }
}
