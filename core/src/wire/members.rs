//! Who is in a cluster: what its scheduler's configuration is written from.

use serde::{Deserialize, Serialize};

use crate::clusters::SlurmNode;

/// `POST /agent/v1/jobs/{job}/members`: all members of the cluster that the job puts its node into, or takes it out of. Asked for when what the
/// agent has is older than the job's revision: however many nodes come and go at once, a list serves all whose jobs were there before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskMembers {
    pub epoch: i64,
    pub attempt: i32,
}

/// The members of a cluster as its scheduler must know them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterMembers {
    /// Orders the lists: an agent never replaces a list by one with a lower revision.
    pub revision: i64,
    pub nodes: Vec<SlurmNode>,
}
