//! The scheduler's controller, as the simulated fleet has it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// What the scheduler's controller knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scheduler {
    /// Nodes its configuration lists, and the revision of the list.
    pub members: BTreeSet<String>,
    /// Nodes that somebody else's configuration lists.
    pub others: BTreeSet<String>,
    pub revision: i64,
    /// What must never be, in words; empty unless a promise was broken.
    pub violations: Vec<String>,
}

impl Scheduler {
    /// Whether its configuration lists a node, ours or somebody else's.
    pub fn lists(&self, name: &str) -> bool {
        self.members.contains(name) || self.others.contains(name)
    }
}
