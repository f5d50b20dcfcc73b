//! Machines running the live image after a successful boot. Such a machine fetches no boot script,
//! so a fetch is an alarm: the machine started over, or another machine uses the MAC.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use muster_core::ids::NodeId;
use muster_core::values::Mac;

/// Maximum time of an entry, longer than any installation. The limit also bounds the memory.
const LONGEST: Duration = Duration::from_hours(24);

/// The machines by node.
#[derive(Debug, Default)]
pub(super) struct Held {
    machines: HashMap<NodeId, Machine>,
}

/// A machine running the live image.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub macs: Vec<Mac>,
    /// Address in the live image.
    pub address: Ipv4Addr,
    /// End of the entry without an end of the work.
    until: Instant,
}

impl Machine {
    pub(super) fn new(macs: Vec<Mac>, address: Ipv4Addr, now: Instant) -> Self {
        Self {
            macs,
            address,
            until: now + LONGEST,
        }
    }
}

impl Held {
    /// Adds the machine of a node at the end of its boot.
    pub(super) fn add(&mut self, node: NodeId, machine: Machine, now: Instant) {
        self.machines.retain(|_, machine| now < machine.until);
        self.machines.insert(node, machine);
    }

    /// Removes the machine of a node, before the next start.
    pub(super) fn end(&mut self, node: NodeId) {
        self.machines.remove(&node);
    }

    /// Removes every machine with a MAC of the list, before the next boot. The machine may have
    /// another node by now.
    pub(super) fn end_by_macs(&mut self, macs: &[Mac]) {
        self.machines
            .retain(|_, machine| !machine.macs.iter().any(|mac| macs.contains(mac)));
    }

    /// Returns whether a machine with the MAC runs the live image.
    pub(super) fn has(&self, mac: Mac, now: Instant) -> bool {
        self.machines
            .values()
            .any(|machine| now < machine.until && machine.macs.contains(&mac))
    }

    /// Returns whether a machine at the address runs the live image.
    pub(super) fn is_at(&self, address: Ipv4Addr, now: Instant) -> bool {
        self.machines
            .values()
            .any(|machine| now < machine.until && machine.address == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
    const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 11);

    #[test]
    fn a_machine_is_held_until_its_next_start_or_a_day() {
        let (start, node) = (Instant::now(), NodeId::new());
        let mut held = Held::default();
        held.add(node, Machine::new(vec![MAC], HERE, start), start);
        let day = Duration::from_hours(24);
        let last = start + day - Duration::from_secs(1);
        assert!(held.has(MAC, last) && held.is_at(HERE, last));
        assert!(!held.has(MAC, start + day) && !held.is_at(HERE, start + day));
        assert!(!held.has(Mac([2; 6]), start));
        held.end(node);
        assert!(!held.has(MAC, start));
        held.add(node, Machine::new(vec![MAC], HERE, start), start);
        held.end_by_macs(&[Mac([2; 6])]);
        assert!(held.has(MAC, start));
        held.end_by_macs(&[Mac([2; 6]), MAC]);
        assert!(!held.has(MAC, start));
    }
}
