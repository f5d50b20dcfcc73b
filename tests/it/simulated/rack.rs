//! Everything outside of the server: the machines and the scheduler's configuration.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::clusters::SlurmNode;

use super::machine::Machine;

#[derive(Debug)]
pub(crate) struct Rack {
    pub(crate) machines: BTreeMap<String, Machine>,
    /// Nodes the scheduler's configuration lists, and the revision of the list.
    pub(crate) members: BTreeSet<String>,
    /// Nodes that somebody else's configuration lists.
    pub(crate) others: BTreeSet<String>,
    revision: i64,
    /// What must never be, in words; empty in every test.
    pub(crate) violations: Vec<String>,
}

impl Rack {
    pub(crate) fn new(count: u8) -> Self {
        let machines = (1..=count).map(|number| (format!("n{number}"), Machine::new(number))).collect();
        Self { machines, members: BTreeSet::new(), others: BTreeSet::new(), revision: 0, violations: Vec::new() }
    }

    /// Writes the list of members, unless a newer one is there.
    pub(crate) fn configure(&mut self, revision: i64, nodes: &[SlurmNode]) -> &BTreeSet<String> {
        if revision > self.revision {
            self.revision = revision;
            self.members = nodes.iter().map(|node| node.name.clone()).collect();
        }
        &self.members
    }

    /// Nothing is wiped that jobs may still be sent to.
    pub(crate) fn wipes_begin(&mut self, name: &str) {
        if self.members.contains(name) {
            self.violations.push(format!("{name} is wiped while the scheduler lists it"));
        }
    }
}
