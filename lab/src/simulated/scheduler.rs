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
    /// Ids of jobs that an agent had requeued.
    #[serde(default)]
    pub requeued: Vec<String>,
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

    /// Requeues the jobs of a node, except for jobs that cannot be requeued.
    pub fn requeue(&mut self, name: &str) {
        let leaves =
            |job: &mut ClusterJob| job.requeues && job.nodes.iter().any(|node| node == name);
        let gone = self.jobs.extract_if(.., leaves);
        self.requeued.extend(gone.map(|job| job.id));
    }
}
