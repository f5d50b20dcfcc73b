//! The current holders of addresses, kept only in memory. Fixed addresses come from the
//! reservations of the site. After a restart of the agent, a machine renewing a dynamic address
//! receives the same address again if the address is free.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use muster_core::values::Mac;

/// Time until an unused offer expires.
const OFFER: Duration = Duration::from_secs(30);
/// Time for which an address in use by another machine is not offered.
const DECLINED: Duration = Duration::from_secs(600);
/// Maximum number of addresses tried for an offer, and of remembered leases.
const MOST: u32 = 16_384;

#[derive(Clone, Copy, Debug)]
struct Lease {
    /// `None` for an address in use by a machine without a lease.
    holder: Option<Mac>,
    until: Instant,
}

/// The addresses leased on the subnets of the agent.
#[derive(Debug, Default)]
pub struct Leases {
    by_address: HashMap<Ipv4Addr, Lease>,
    by_mac: HashMap<Mac, Ipv4Addr>,
}

impl Leases {
    /// Returns the known holder of an address.
    pub fn holder(&self, address: Ipv4Addr, now: Instant) -> Option<Mac> {
        self.by_address
            .get(&address)
            .filter(|lease| lease.until > now)?
            .holder
    }

    /// Picks an address of `range` for a machine without a reservation. Prefers the current
    /// address, then the requested address, then the first free address after a position derived
    /// from the MAC. The derived position often gives a machine the same address after a restart.
    pub fn pick(
        &self,
        mac: Mac,
        range: (Ipv4Addr, Ipv4Addr),
        action: Option<Ipv4Addr>,
        taken: impl Fn(Ipv4Addr) -> bool,
        now: Instant,
    ) -> Option<Ipv4Addr> {
        let (first, last) = (u32::from(range.0), u32::from(range.1));
        let size = last.checked_sub(first)?.saturating_add(1);
        let in_range = |address: &Ipv4Addr| (first..=last).contains(&u32::from(*address));
        let has = self.by_mac.get(&mac).copied();
        let spread = u32::from_be_bytes([mac.0[2], mac.0[3], mac.0[4], mac.0[5]]);
        let others =
            (0..size.min(MOST)).map(|step| Ipv4Addr::from(first + (spread % size + step) % size));
        let mut candidates = has.into_iter().chain(action).filter(in_range).chain(others);
        candidates.find(|address| !taken(*address) && self.is_free_for(mac, *address, now))
    }

    fn is_free_for(&self, mac: Mac, address: Ipv4Addr, now: Instant) -> bool {
        self.by_address
            .get(&address)
            .is_none_or(|lease| lease.until <= now || lease.holder == Some(mac))
    }

    /// Reserves an address for a machine until the offer is accepted or expires.
    pub fn offer(&mut self, mac: Mac, address: Ipv4Addr, now: Instant) {
        let holds = self.holder(address, now) == Some(mac);
        if !holds {
            self.hold(mac, address, OFFER, now);
        }
    }

    /// Records the lease of an address for `time`.
    pub fn hold(&mut self, mac: Mac, address: Ipv4Addr, time: Duration, now: Instant) {
        self.forget(mac);
        if self.by_address.len() >= MOST as usize {
            self.by_address.retain(|_, lease| lease.until > now);
            self.by_mac
                .retain(|_, address| self.by_address.contains_key(address));
        }
        if self.by_address.len() < MOST as usize {
            if let Some(Lease {
                holder: Some(before),
                ..
            }) = self.by_address.insert(
                address,
                Lease {
                    holder: Some(mac),
                    until: now + time,
                },
            ) {
                self.by_mac.remove(&before);
            }
            self.by_mac.insert(mac, address);
        }
    }

    /// Releases the lease of a machine.
    pub fn forget(&mut self, mac: Mac) {
        if let Some(address) = self.by_mac.remove(&mac) {
            self.by_address.remove(&address);
        }
    }

    /// Blocks an address after a report of its holder about use by another machine. A report of any
    /// other machine is ignored.
    pub fn decline(&mut self, mac: Mac, address: Ipv4Addr, now: Instant) {
        if self.holder(address, now) == Some(mac) {
            self.by_mac.remove(&mac);
            self.by_address.insert(
                address,
                Lease {
                    holder: None,
                    until: now + DECLINED,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: (Ipv4Addr, Ipv4Addr) =
        (Ipv4Addr::new(10, 0, 0, 100), Ipv4Addr::new(10, 0, 0, 101));

    fn mac(last: u8) -> Mac {
        Mac([0x52, 0x54, 0, 0, 0, last])
    }

    #[test]
    fn a_full_range_gives_nothing_until_a_lease_ends() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        for last in 1..=2 {
            let address = leases.pick(mac(last), RANGE, None, |_| false, now).unwrap();
            leases.hold(mac(last), address, Duration::from_secs(60), now);
        }
        assert_eq!(leases.pick(mac(3), RANGE, None, |_| false, now), None);
        assert!(
            leases.pick(mac(1), RANGE, None, |_| false, now).is_some(),
            "a holder keeps its own"
        );
        assert!(
            leases
                .pick(
                    mac(3),
                    RANGE,
                    None,
                    |_| false,
                    now + Duration::from_secs(61)
                )
                .is_some()
        );
    }

    #[test]
    fn a_declined_address_is_set_aside_and_only_its_holder_can_decline_it() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        leases.hold(mac(1), RANGE.0, Duration::from_secs(60), now);
        leases.decline(mac(2), RANGE.0, now);
        assert_eq!(leases.holder(RANGE.0, now), Some(mac(1)));
        leases.decline(mac(1), RANGE.0, now);
        assert_eq!(
            leases.pick(mac(1), RANGE, Some(RANGE.0), |_| false, now),
            Some(RANGE.1)
        );
    }

    #[test]
    fn a_reversed_range_is_empty_and_a_reserved_address_is_never_lent() {
        let (leases, now) = (Leases::default(), Instant::now());
        assert_eq!(
            leases.pick(mac(1), (RANGE.1, RANGE.0), None, |_| false, now),
            None
        );
        assert_eq!(
            leases.pick(
                mac(1),
                RANGE,
                Some(RANGE.0),
                |address| address == RANGE.0,
                now
            ),
            Some(RANGE.1)
        );
    }
}
