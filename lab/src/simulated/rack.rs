//! Everything outside of the server: the machines and the scheduler's configuration.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::wire::members::ClusterMembers;

use super::keep::Keep;
use super::machine::Machine;

pub use super::scheduler::Scheduler;

#[derive(Debug)]
pub struct Rack {
    pub machines: BTreeMap<String, Machine>,
    pub scheduler: Scheduler,
    pub fabric: Fabric,
    /// Where both are kept; without it they end with their process.
    pub keep: Option<Keep>,
}

/// What lies between the machines, where it is slow.
#[derive(Clone, Debug, Default)]
pub struct Fabric {
    /// Machines whose own link is slow.
    pub slow: BTreeSet<String>,
    /// Paths between two machines, the one with the smaller name first.
    pub slow_paths: BTreeSet<(String, String)>,
    /// Whether the agent says of what failed that it is waived, which is not an agent's to say.
    pub waives: bool,
    /// What was measured, in order: who asked whom.
    pub asked: Vec<(String, String)>,
}

impl Fabric {
    /// Whether one machine is slow to reach from another.
    pub fn is_slow(&self, one: &str, other: &str) -> bool {
        let path = (one.min(other).to_owned(), one.max(other).to_owned());
        self.slow.contains(one) || self.slow.contains(other) || self.slow_paths.contains(&path)
    }
}

impl Rack {
    /// These machines and a scheduler that knows none of them.
    pub fn of(machines: impl IntoIterator<Item = Machine>) -> Self {
        let machines = machines
            .into_iter()
            .map(|machine| (machine.name.clone(), machine))
            .collect();
        Self {
            machines,
            scheduler: Scheduler::default(),
            fabric: Fabric::default(),
            keep: None,
        }
    }

    /// Looks at a machine or does something to it; `None` where there is no such machine.
    pub fn with<T>(&mut self, name: &str, act: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        let machine = self.machines.get_mut(name)?;
        let told = act(machine);
        if let Some(keep) = &mut self.keep {
            keep.machine(machine);
        }
        Some(told)
    }

    /// Writes a list of members, unless a newer one is there.
    pub fn configure(&mut self, list: &ClusterMembers) {
        if list.revision > self.scheduler.revision {
            self.scheduler.revision = list.revision;
            self.scheduler.members = list.nodes.iter().map(|node| node.name.clone()).collect();
            self.keep_scheduler();
        }
    }

    /// Nothing is wiped that jobs may still be sent to.
    pub fn wipes_begin(&mut self, name: &str) {
        if self.scheduler.members.contains(name) {
            self.scheduler
                .violations
                .push(format!("{name} is wiped while the scheduler lists it"));
            self.keep_scheduler();
        }
    }

    fn keep_scheduler(&mut self) {
        if let Some(keep) = &mut self.keep {
            keep.scheduler(&self.scheduler);
        }
    }
}
