//! Places for long lines, which need memory. The places are given in the order of the requests. A
//! node with a bad long line waits behind a single place for an hour, so hostile nodes cannot hold
//! all places.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Maximum number of long lines that the agent reads at the same time, for all jobs together.
const AT_ONCE: usize = 4;
/// Maximum time for a long line, from the place to the end of the line. A line without an end gives
/// the place back.
const WITHIN: Duration = Duration::from_secs(30);
/// Time for which a bad long line is remembered.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);
/// Maximum number of remembered nodes.
const MOST: usize = 4096;

/// The places of this agent process.
pub(super) static PLACES: Places = Places::new();

/// Places, and the nodes with a bad long line.
pub(super) struct Places {
    common: Semaphore,
    marked: Semaphore,
    nodes: Mutex<BTreeMap<IpAddr, Instant>>,
}

/// The place of a long line, with the time limit of the line.
pub(super) struct LongLine {
    _place: SemaphorePermit<'static>,
    pub(super) deadline: Instant,
}

impl Places {
    const fn new() -> Self {
        Self {
            common: Semaphore::const_new(AT_ONCE),
            marked: Semaphore::const_new(1),
            nodes: Mutex::new(BTreeMap::new()),
        }
    }

    /// Waits for a place. `None` never happens, because the places are never closed.
    pub(super) async fn begin(&'static self, node: IpAddr) -> Option<LongLine> {
        let places = match self.is_marked(node) {
            true => &self.marked,
            false => &self.common,
        };
        let place = places.acquire().await.ok()?;
        Some(LongLine {
            _place: place,
            deadline: Instant::now() + WITHIN,
        })
    }

    /// Remembers a node with a long line that had no end, or was longer than any result.
    pub(super) fn mark(&self, node: IpAddr) {
        let mut nodes = self.lock();
        if nodes.len() >= MOST {
            nodes.retain(|_, at| at.elapsed() < REMEMBERED);
        }
        if nodes.len() < MOST {
            nodes.insert(node, Instant::now());
        }
    }

    fn is_marked(&self, node: IpAddr) -> bool {
        let nodes = self.lock();
        nodes.get(&node).is_some_and(|at| at.elapsed() < REMEMBERED)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Instant>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    static OWN: Places = Places::new();

    fn node(host: u8) -> IpAddr {
        [192, 0, 2, host].into()
    }

    fn try_begin(host: u8) -> Option<LongLine> {
        OWN.begin(node(host)).now_or_never().flatten()
    }

    #[tokio::test]
    async fn nodes_with_bad_long_lines_leave_the_places_to_others() {
        let hostile: Vec<u8> = (1..=4).collect();
        let mut held: Vec<LongLine> = hostile
            .iter()
            .map(|host| try_begin(*host).unwrap())
            .collect();
        assert!(try_begin(9).is_none(), "every place is taken");
        held.pop();
        held.push(try_begin(9).expect("the place of an ended line"));
        // The lines of the hostile nodes end as bad ones, and the nodes come again.
        held.clear();
        for host in &hostile {
            OWN.mark(node(*host));
        }
        let again: Vec<LongLine> = hostile.iter().filter_map(|host| try_begin(*host)).collect();
        assert_eq!(again.len(), 1);
        let honest: Vec<LongLine> = (11..=14).filter_map(try_begin).collect();
        assert_eq!(honest.len(), AT_ONCE);
    }
}
