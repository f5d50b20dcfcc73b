//! Members of a cluster: the source for the scheduler's configuration.

use serde::{Deserialize, Serialize};

use crate::clusters::Member;

/// `POST /agent/v1/jobs/{job}/members`: requests all members of the cluster changed by the job. The
/// agent asks when its list is older than the job's revision. One list serves all jobs queued
/// before the list was made, so many simultaneous changes need few requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskMembers {
    pub epoch: i64,
    pub attempt: i32,
}

/// The members of a cluster, as required in the scheduler's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterMembers {
    /// Order of the lists: an agent never replaces a list by a list with a lower revision.
    pub revision: i64,
    pub nodes: Vec<Member>,
}
