//! Places of clients at a listener: a bound per source and a bound per share. Machines with an
//! armed boot have a share of their own, so a flood from other sources leaves those places free.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The share of the places that a source uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// The address of a machine with an armed boot, or with a running live image.
    Armed,
    /// Another address inside of the subnets of the site.
    Subnet,
    /// An address outside of the subnets, such as the address of a BMC.
    Outside,
}

/// The maximum numbers of places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Places of a source.
    pub per_source: usize,
    /// Places of all machines with an armed boot.
    pub armed: usize,
    /// Places of all other addresses inside of the subnets.
    pub subnet: usize,
    /// Places of all addresses outside of the subnets.
    pub outside: usize,
}

/// The reason why a source receives no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The source has all of its places.
    Source,
    /// The share of the source has no free place.
    Share,
}

/// The taken places of a listener.
#[derive(Debug)]
pub(super) struct Places {
    bounds: Bounds,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    by_source: HashMap<Ipv4Addr, usize>,
    armed: usize,
    subnet: usize,
    outside: usize,
}

impl Taken {
    fn of(&mut self, share: Share) -> &mut usize {
        match share {
            Share::Armed => &mut self.armed,
            Share::Subnet => &mut self.subnet,
            Share::Outside => &mut self.outside,
        }
    }
}

/// A taken place, free again after the drop.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    source: Ipv4Addr,
    share: Share,
}

impl Places {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            taken: Mutex::default(),
        })
    }

    /// Takes a place for a source.
    ///
    /// # Errors
    /// [`Full`] without a free place.
    pub(super) fn take(self: &Arc<Self>, source: Ipv4Addr, share: Share) -> Result<Place, Full> {
        let most = match share {
            Share::Armed => self.bounds.armed,
            Share::Subnet => self.bounds.subnet,
            Share::Outside => self.bounds.outside,
        };
        let mut taken = self.lock();
        let held = taken.by_source.get(&source).copied().unwrap_or_default();
        if held >= self.bounds.per_source {
            return Err(Full::Source);
        }
        let in_share = taken.of(share);
        if *in_share >= most {
            return Err(Full::Share);
        }
        *in_share += 1;
        taken.by_source.insert(source, held + 1);
        Ok(Place {
            places: Arc::clone(self),
            source,
            share,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // No panic is possible between the changes under the lock.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        let in_share = taken.of(self.share);
        *in_share = in_share.saturating_sub(1);
        if let Some(held) = taken.by_source.get_mut(&self.source) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                taken.by_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        per_source: 2,
        armed: 3,
        subnet: 3,
        outside: 0,
    };

    fn source(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, last)
    }

    #[test]
    fn a_source_has_two_places_and_gets_a_third_after_an_end() {
        let places = Places::new(BOUNDS);
        let first = places.take(source(1), Share::Subnet).unwrap();
        let _second = places.take(source(1), Share::Subnet).unwrap();
        assert_eq!(
            places.take(source(1), Share::Subnet).err(),
            Some(Full::Source)
        );
        drop(first);
        assert!(places.take(source(1), Share::Subnet).is_ok());
        let taken = places.lock();
        assert_eq!((taken.subnet, taken.by_source.len()), (1, 1));
    }

    #[test]
    fn a_flood_of_other_sources_leaves_the_armed_places_free() {
        let places = Places::new(BOUNDS);
        let flood: Vec<Place> = (1..=3)
            .map(|last| places.take(source(last), Share::Subnet).unwrap())
            .collect();
        assert_eq!(
            places.take(source(4), Share::Subnet).err(),
            Some(Full::Share)
        );
        assert!(places.take(source(4), Share::Armed).is_ok());
        assert_eq!(
            places.take(source(5), Share::Outside).err(),
            Some(Full::Share)
        );
        drop(flood);
        assert!(places.take(source(4), Share::Subnet).is_ok());
        assert_eq!(places.lock().by_source.len(), 0);
    }
}
