//! Boots leased by the agent and not armed yet. A machine asking in this time is asked to repeat the
//! request: an answer for the local disk would end the boot, and a wiped disk cannot boot.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use muster_core::values::Mac;

/// Maximum wait of a machine. PXE firmware repeats a DHCP request for about 60 s before the next
/// boot device, so a machine still boots from the disk while the server is down.
const LONGEST: Duration = Duration::from_secs(20);

/// The boots still to be armed.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// End of the wait for the first leases after a start. Until then every machine may have a boot.
    leases: Option<Instant>,
    /// Machines with a leased boot, and the end of the wait.
    boots: HashMap<Mac, Instant>,
}

impl Pending {
    /// Starts the wait for the leases of an earlier process.
    pub(super) fn await_leases(&mut self, now: Instant) {
        self.leases = Some(now + LONGEST);
    }

    /// Ends the wait for the leases.
    pub(super) fn end_leases(&mut self) {
        self.leases = None;
    }

    /// Adds the machine of a leased boot.
    pub(super) fn add(&mut self, macs: &[Mac], now: Instant) {
        self.boots.retain(|_, end| now < *end);
        self.boots
            .extend(macs.iter().map(|mac| (*mac, now + LONGEST)));
    }

    /// Removes the machine of an armed boot.
    pub(super) fn remove(&mut self, macs: &[Mac]) {
        self.boots.retain(|mac, _| !macs.contains(mac));
    }

    /// Returns whether a boot of the machine may still be armed.
    pub(super) fn contains(&self, mac: Mac, now: Instant) -> bool {
        let ends = [self.leases, self.boots.get(&mac).copied()];
        ends.into_iter().flatten().any(|end| now < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([0x52, 0x54, 0, 0, 0, 2]);

    #[test]
    fn every_wait_ends_by_time() {
        let start = Instant::now();
        let mut pending = Pending::default();
        let has = |pending: &Pending, seconds| {
            [MAC, OTHER].map(|mac| pending.contains(mac, start + Duration::from_secs(seconds)))
        };
        assert_eq!(has(&pending, 0), [false, false]);
        pending.await_leases(start);
        assert_eq!(has(&pending, 19), [true, true]);
        assert_eq!(has(&pending, 20), [false, false]);
        pending.add(&[MAC], start + Duration::from_secs(10));
        pending.end_leases();
        assert_eq!(has(&pending, 29), [true, false]);
        assert_eq!(has(&pending, 30), [false, false]);
    }
}
