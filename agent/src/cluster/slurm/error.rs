//! What can go wrong between an agent and a Slurm controller, in words for the person on call.

use std::time::Duration;

/// A Slurm operation that did not do what it was for.
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
    /// Whether asking the same again later can help, without anybody doing something first.
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

    /// A stable word for failures that travel to the server.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ToolMissing { .. } => "slurm_tool_missing",
            Self::Unreachable { .. } => "slurm_unreachable",
            Self::Timeout { .. } => "slurm_timeout",
            Self::Refused { .. } => "slurm_refused",
            Self::Garbage { .. } => "slurm_garbage",
            Self::Files { .. } => "slurm_files",
            Self::Unwritable { .. } => "slurm_unwritable",
            Self::NotListed { .. } => "slurm_not_listed",
            Self::WouldRemove { .. } => "slurm_would_remove",
            Self::InUse { .. } => "slurm_in_use",
            Self::NoRestart { .. } => "slurm_no_restart",
            Self::NotRestarted { .. } => "slurm_not_restarted",
            Self::DeadlinePassed { .. } => "slurm_not_clean",
            Self::Cancelled => "cancelled",
        }
    }
}
