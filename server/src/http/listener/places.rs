//! The connections of a listener, by source. A full listener ends a connection for a newcomer: the
//! longest-waiting connection of the source with the most connections. A connection with a request
//! in progress stays.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::http::source::Source;

/// The largest number of connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Of all sources.
    pub most: usize,
    /// Of one source.
    pub of_a_source: usize,
}

/// The connections of one listener.
#[derive(Debug)]
pub struct Places {
    share: Share,
    table: Mutex<Table>,
}

/// A newcomer with a place.
#[derive(Debug)]
pub struct Admitted {
    pub place: Place,
    /// Resolves when the place is revoked: the connection must end.
    pub end: oneshot::Receiver<Infallible>,
    /// Whether another connection was ended for the newcomer.
    pub ended_another: bool,
}

/// The place of a connection, released on drop. A new connection waits for its peer.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    id: u64,
}

#[derive(Debug, Default)]
struct Table {
    /// The last number assigned to a connection or to a wait.
    last: u64,
    held: HashMap<u64, Held>,
    sources: HashMap<Source, Connections>,
    /// Sources with an evictable connection, ordered by their number of connections.
    yielding: BTreeSet<(usize, Source)>,
}

#[derive(Debug)]
struct Held {
    source: Source,
    /// The number of the wait, while the connection waits for its peer.
    waits: Option<u64>,
    /// A vouched connection is never evicted.
    vouched: bool,
    /// Dropped to end the connection.
    _end: oneshot::Sender<Infallible>,
}

/// The connections of one source.
#[derive(Debug, Default)]
struct Connections {
    count: usize,
    /// Evictable connections, the longest wait first.
    yielding: BTreeMap<u64, u64>,
}

impl Places {
    pub fn new(share: Share) -> Arc<Self> {
        Arc::new(Self {
            share,
            table: Mutex::default(),
        })
    }

    /// Returns a place for a newcomer, or `None` where no connection can be evicted.
    pub fn admit(self: &Arc<Self>, source: Source) -> Option<Admitted> {
        self.admit_within(source, self.share.of_a_source)
    }

    /// The same for a trusted proxy. The connections of a proxy belong to many clients, so a proxy
    /// may have the whole share.
    pub fn admit_proxy(self: &Arc<Self>, source: Source) -> Option<Admitted> {
        self.admit_within(source, self.share.most)
    }

    fn admit_within(self: &Arc<Self>, source: Source, most_of_source: usize) -> Option<Admitted> {
        let mut table = self.lock();
        let own = table.sources.get(&source).map_or(0, |own| own.count);
        let victim = if own >= most_of_source {
            Some(table.longest_wait(source)?)
        } else if table.held.len() >= self.share.most {
            let (count, largest) = *table.yielding.last()?;
            // A source must not evict connections of a smaller source.
            Some(table.longest_wait(largest).filter(|_| count >= own)?)
        } else {
            None
        };
        if let Some(victim) = victim {
            table.remove(victim);
        }
        let (end, ended) = oneshot::channel();
        let id = table.insert(source, end);
        drop(table);
        Some(Admitted {
            place: Place {
                places: Arc::clone(self),
                id,
            },
            end: ended,
            ended_another: victim.is_some(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Records a wait of the connection for its peer: for a request, for the rest of a body, or for
    /// room to send an answer.
    pub fn wait(&self) {
        self.places.lock().wait(self.id);
    }

    /// Records work of the server on a request of the connection.
    pub fn work(&self) {
        self.places.lock().work(self.id);
    }

    /// Marks the connection as vouched, because the peer showed a certificate of this installation.
    /// The connection is then never evicted.
    pub fn vouch(&self) {
        let mut table = self.places.lock();
        table.work(self.id);
        if let Some(held) = table.held.get_mut(&self.id) {
            held.vouched = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().remove(self.id);
    }
}

impl Table {
    fn longest_wait(&self, source: Source) -> Option<u64> {
        let connections = self.sources.get(&source)?;
        connections.yielding.first_key_value().map(|(_, id)| *id)
    }

    fn insert(&mut self, source: Source, end: oneshot::Sender<Infallible>) -> u64 {
        self.last += 1;
        let id = self.last;
        let held = Held {
            source,
            waits: None,
            vouched: false,
            _end: end,
        };
        self.held.insert(id, held);
        self.change(source, |connections| connections.count += 1);
        self.wait(id);
        id
    }

    fn remove(&mut self, id: u64) {
        if let Some(held) = self.held.remove(&id) {
            self.change(held.source, |connections| {
                connections.count -= 1;
                if let Some(wait) = held.waits {
                    connections.yielding.remove(&wait);
                }
            });
        }
    }

    fn wait(&mut self, id: u64) {
        self.last += 1;
        let wait = self.last;
        if let Some(held) = self.held.get_mut(&id)
            && !held.vouched
            && held.waits.is_none()
        {
            held.waits = Some(wait);
            let source = held.source;
            self.change(source, |connections| {
                connections.yielding.insert(wait, id);
            });
        }
    }

    fn work(&mut self, id: u64) {
        if let Some(held) = self.held.get_mut(&id)
            && let Some(wait) = held.waits.take()
        {
            let source = held.source;
            self.change(source, |connections| {
                connections.yielding.remove(&wait);
            });
        }
    }

    /// Changes the connections of a source, and updates the source's rank.
    fn change(&mut self, source: Source, change: impl FnOnce(&mut Connections)) {
        let connections = self.sources.entry(source).or_default();
        self.yielding.remove(&(connections.count, source));
        change(connections);
        if connections.count == 0 {
            self.sources.remove(&source);
        } else if !connections.yielding.is_empty() {
            self.yielding.insert((connections.count, source));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source(number: u8) -> Source {
        Source::of([192, 0, 2, number].into())
    }

    fn places(most: usize, of_a_source: usize) -> Arc<Places> {
        Places::new(Share { most, of_a_source })
    }

    fn has_ended(admitted: &mut Admitted) -> bool {
        admitted.end.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_longest_wait_of_the_largest_source_ends_for_a_newcomer() {
        let places = places(4, 4);
        let mut other = places.admit(source(2)).unwrap();
        let mut large: Vec<Admitted> = (0..3).map(|_| places.admit(source(1)).unwrap()).collect();
        // The first one has a request by now, and waits again.
        large[0].place.work();
        large[0].place.wait();
        let newcomer = places.admit(source(3)).unwrap();
        assert!(newcomer.ended_another);
        let ended: Vec<bool> = large.iter_mut().map(has_ended).collect();
        assert_eq!(ended, [false, true, false]);
        assert!(!has_ended(&mut other));
    }

    #[test]
    fn a_connection_with_a_request_stays_and_the_newcomer_is_closed() {
        let places = places(2, 2);
        let mut held: Vec<Admitted> = (1..3)
            .map(|number| places.admit(source(number)).unwrap())
            .collect();
        for admitted in &held {
            admitted.place.work();
        }
        assert!(places.admit(source(3)).is_none());
        assert!(!held.iter_mut().any(has_ended));
        held[0].place.wait();
        assert!(places.admit(source(3)).is_some());
        assert!(has_ended(&mut held[0]));
        drop(held);
        assert!(places.lock().held.is_empty());
    }

    #[test]
    fn a_source_that_has_its_share_ends_a_connection_of_its_own() {
        let places = places(10, 2);
        let mut other = places.admit(source(2)).unwrap();
        let mut first = places.admit(source(1)).unwrap();
        let second = places.admit(source(1)).unwrap();
        let third = places.admit(source(1)).unwrap();
        assert!(third.ended_another && has_ended(&mut first) && !has_ended(&mut other));
        second.place.work();
        third.place.work();
        assert!(places.admit(source(1)).is_none());
        assert!(places.admit(source(2)).is_some());
    }

    #[test]
    fn a_source_takes_no_place_of_a_smaller_one() {
        let places = places(3, 3);
        let mut small = places.admit(source(1)).unwrap();
        let large = [(); 2].map(|()| places.admit(source(2)).unwrap());
        for admitted in &large {
            admitted.place.work();
        }
        assert!(places.admit(source(2)).is_none());
        assert!(!has_ended(&mut small));
        assert!(places.admit(source(3)).is_some());
        assert!(has_ended(&mut small));
    }

    #[test]
    fn a_vouched_connection_ends_for_no_other() {
        let places = places(2, 2);
        let mut agent = places.admit(source(1)).unwrap();
        agent.place.vouch();
        agent.place.work();
        agent.place.wait();
        let mut stranger = places.admit(source(2)).unwrap();
        assert!(places.admit(source(3)).is_some());
        assert!(has_ended(&mut stranger) && !has_ended(&mut agent));
    }

    proptest! {
        /// Whatever comes, waits, works and leaves: the bounds hold, and the table agrees with itself.
        #[test]
        fn the_bounds_hold(steps in proptest::collection::vec((0..4_u8, 0..5_u8, any::<prop::sample::Index>()), 1..200)) {
            let places = places(6, 3);
            let mut held: Vec<Admitted> = Vec::new();
            for (step, number, index) in steps {
                match step {
                    0 => {
                        let mut admitted = places.admit(source(number));
                        prop_assert!(admitted.as_mut().is_none_or(|admitted| !has_ended(admitted)));
                        held.extend(admitted);
                    }
                    _ if held.is_empty() => {}
                    1 => held[index.index(held.len())].place.work(),
                    2 => held[index.index(held.len())].place.wait(),
                    _ => drop(held.swap_remove(index.index(held.len()))),
                }
                held.retain_mut(|admitted| !has_ended(admitted));
                let table = places.lock();
                prop_assert_eq!(table.held.len(), held.len());
                prop_assert!(held.len() <= 6);
                let counted: usize = table.sources.values().map(|of| of.count).sum();
                prop_assert_eq!(counted, held.len());
                prop_assert!(table.sources.values().all(|of| (1..=3).contains(&of.count)));
                let waiting = table.held.values().filter(|held| held.waits.is_some()).count();
                let yielding: usize = table.sources.values().map(|of| of.yielding.len()).sum();
                prop_assert_eq!(waiting, yielding);
                let ranked: BTreeSet<(usize, Source)> = table
                    .sources
                    .iter()
                    .filter(|(_, of)| !of.yielding.is_empty())
                    .map(|(source, of)| (of.count, *source))
                    .collect();
                prop_assert_eq!(&ranked, &table.yielding);
            }
        }
    }
}
