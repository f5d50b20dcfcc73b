//! The scheduler's controller in the simulated fleet.

use std::collections::BTreeSet;

use muster_core::wire::scheduler::ClusterJob;
use serde::{Deserialize, Serialize};

/// The state of the scheduler's controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scheduler {
    /// Nodes in the list written by Muster.
    pub members: BTreeSet<String>,
    /// Nodes in a configuration that Muster does not manage.
    pub others: BTreeSet<String>,
    /// Jobs that use nodes.
    #[serde(default)]
    pub jobs: Vec<ClusterJob>,
    /// Revision of the list in `members`; a newer list has a higher revision.
    pub revision: i64,
    /// Broken promises as sentences, such as a wipe of a listed node. Empty in a correct run.
    pub violations: Vec<String>,
}

impl Scheduler {
    /// Whether the configuration lists a node, in Muster's list or in the other.
    pub fn lists(&self, name: &str) -> bool {
        self.members.contains(name) || self.others.contains(name)
    }
}
