//! The world outside the server: the machines, the fabric between the machines, and the scheduler's
//! configuration.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::wire::members::ClusterMembers;
use muster_core::wire::scheduler::JobsReply;

use super::keep::Keep;
use super::machine::Machine;

pub use super::scheduler::Scheduler;

#[derive(Debug)]
pub struct Rack {
    pub machines: BTreeMap<String, Machine>,
    pub scheduler: Scheduler,
    pub fabric: Fabric,
    /// The directory for machines and scheduler; without a directory both are lost when the process
    /// ends.
    pub keep: Option<Keep>,
}

/// The network between the machines, with its slow parts.
#[derive(Clone, Debug, Default)]
pub struct Fabric {
    /// Names of machines with a slow link of their own.
    pub slow: BTreeSet<String>,
    /// Slow paths between two machines; the smaller name is first.
    pub slow_paths: BTreeSet<(String, String)>,
    /// Whether the agent forges a waiver in every result. The server must ignore such waivers,
    /// because an agent has no right to waive.
    pub waives: bool,
    /// The measurements so far, in order: requester and peer.
    pub asked: Vec<(String, String)>,
}

impl Fabric {
    /// Whether the path between two machines is slow, in either direction.
    pub fn is_slow(&self, one: &str, other: &str) -> bool {
        let path = (one.min(other).to_owned(), one.max(other).to_owned());
        self.slow.contains(one) || self.slow.contains(other) || self.slow_paths.contains(&path)
    }
}

impl Rack {
    /// Builds a rack of these machines, with a scheduler whose member list is empty.
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

    /// Reads or changes a machine and keeps the change; returns `None` if the machine does not
    /// exist.
    pub fn with<T>(&mut self, name: &str, act: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        let machine = self.machines.get_mut(name)?;
        let told = act(machine);
        if let Some(keep) = &mut self.keep {
            keep.machine(machine);
        }
        Some(told)
    }

    /// Replaces the scheduler's member list, unless the current list has the same or a newer
    /// revision.
    pub fn configure(&mut self, list: &ClusterMembers) {
        if list.revision > self.scheduler.revision {
            self.scheduler.revision = list.revision;
            self.scheduler.members = list.nodes.iter().map(|node| node.name.clone()).collect();
            self.keep_scheduler();
        }
    }

    /// Keeps new jobs away from the waiting machines, and from no other machine.
    pub fn hold_back_jobs(&mut self, reply: &JobsReply) {
        let waits = reply.clusters.iter().flat_map(|cluster| &cluster.waits);
        let waiting: BTreeSet<&String> = waits.flat_map(|wait| &wait.nodes).collect();
        for (name, machine) in &mut self.machines {
            if machine.hold_back_jobs(waiting.contains(name))
                && let Some(keep) = &mut self.keep
            {
                keep.machine(machine);
            }
        }
    }

    /// Records a violation if the scheduler still lists the machine: a wipe must not begin while
    /// the node can receive jobs.
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
