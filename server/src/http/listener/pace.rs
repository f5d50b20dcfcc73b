//! The present wait of a connection, with its deadline. Idle time counts between requests only,
//! never within an answer. An HTTP/2 connection has several answers at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::Bounds;
use super::places::Place;

/// The timing of one connection.
#[derive(Debug)]
pub(super) struct Pace {
    place: Place,
    bounds: Bounds,
    /// The protocol is HTTP/2.
    multiplexed: bool,
    now: Mutex<Now>,
}

/// An answer in progress, from the headers of the request to the end of the answer's body.
#[derive(Debug)]
pub(super) struct Answering {
    pace: Arc<Pace>,
    id: u64,
}

#[derive(Debug)]
struct Now {
    /// Answers in progress.
    answers: usize,
    /// Bodies of requests that wait for the peer.
    bodies: usize,
    /// The number of the latest answer.
    last: u64,
    /// Answers on an HTTP/2 connection that wait for room at the peer, with the start of the wait.
    unread: BTreeMap<u64, Instant>,
    phase: Phase,
    /// The peer accepts no bytes of an answer. The server may still hold the end of an answer in
    /// the next phase.
    stuck: bool,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The peer sends the request line and headers.
    Head,
    /// The last answer is complete, and no byte of the next request has come.
    Idle,
    /// The server is answering.
    Answer,
}

impl Pace {
    /// Starts the timing of a connection, waiting for the first request.
    pub(super) fn new(place: Place, bounds: Bounds, multiplexed: bool) -> Self {
        Self {
            place,
            bounds,
            multiplexed,
            now: Mutex::new(Now {
                answers: 0,
                bodies: 0,
                last: 0,
                unread: BTreeMap::new(),
                phase: Phase::Head,
                stuck: false,
                since: Instant::now(),
            }),
        }
    }

    /// The time at which the connection ends unless the peer acts; `None` while the server answers.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let now = self.lock();
        let since = now.since;
        match now.phase {
            _ if now.stuck => Some(since + self.bounds.stall),
            Phase::Head => Some(since + self.bounds.head),
            Phase::Idle => Some(since + self.bounds.idle),
            Phase::Answer => {
                let longest = now.unread.values().min();
                longest.map(|unread| *unread + self.bounds.stall)
            }
        }
    }

    /// The time for the next look at the deadline without a deadline at present. The answers of an
    /// HTTP/2 connection do not wake the connection at each wait.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.multiplexed.then(|| Instant::now() + self.bounds.stall)
    }

    /// Whether the protocol is HTTP/2.
    pub(super) fn is_multiplexed(&self) -> bool {
        self.multiplexed
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Records received bytes.
    pub(super) fn read(&self) {
        let mut now = self.lock();
        // Frames of HTTP/2 other than requests also come between requests: a request then has the
        // rest of the idle time for its headers.
        if now.phase == Phase::Idle && !self.multiplexed {
            now.enter(Phase::Head);
        }
    }

    /// Records complete headers of a request: the server begins to answer.
    pub(super) fn begin_answer(self: &Arc<Self>) -> Answering {
        let mut now = self.lock();
        if now.answers == 0 {
            now.enter(Phase::Answer);
        }
        now.answers += 1;
        now.last += 1;
        self.settle(&now);
        Answering {
            pace: Arc::clone(self),
            id: now.last,
        }
    }

    /// Records a peer without room for more bytes.
    pub(super) fn block(&self) {
        let mut now = self.lock();
        if !now.stuck && now.phase != Phase::Head {
            (now.stuck, now.since) = (true, Instant::now());
            self.settle(&now);
        }
    }

    /// Records bytes accepted by the peer.
    pub(super) fn write(&self) {
        let mut now = self.lock();
        // Idle time begins with the last byte of an answer.
        if now.phase != Phase::Head {
            let was_stuck = std::mem::take(&mut now.stuck);
            now.since = Instant::now();
            if was_stuck {
                self.settle(&now);
            }
        }
    }

    /// Records a wait of a request's body for the peer.
    pub(super) fn await_body(&self) {
        let mut now = self.lock();
        now.bodies += 1;
        self.settle(&now);
    }

    /// Records the end of such a wait: a received piece, or the end of the request.
    pub(super) fn take_body(&self) {
        let mut now = self.lock();
        now.bodies = now.bodies.saturating_sub(1);
        self.settle(&now);
    }

    /// Marks the connection as waiting or as working. An answer in progress without a waiting body
    /// is work, also beside a slow upload on the same connection. Called with the lock held, so the
    /// marks come in the order of the changes.
    fn settle(&self, now: &Now) {
        match now.stuck || now.answers <= now.bodies {
            true => self.place.wait(),
            false => self.place.work(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Now {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.stuck = false;
        self.since = Instant::now();
    }
}

impl Answering {
    /// Records a piece of the answer given to the connection. The next piece is asked for when the
    /// peer has room.
    pub(super) fn give(&self) {
        if self.pace.multiplexed {
            let mut now = self.pace.lock();
            now.unread.insert(self.id, Instant::now());
        }
    }

    /// Records a question of the connection for the next piece.
    pub(super) fn ask(&self) {
        if self.pace.multiplexed {
            self.pace.lock().unread.remove(&self.id);
        }
    }
}

/// The end of an answer: its body was read completely, or dropped.
impl Drop for Answering {
    fn drop(&mut self) {
        let mut now = self.pace.lock();
        now.unread.remove(&self.id);
        now.answers = now.answers.saturating_sub(1);
        if now.answers == 0 {
            now.enter(Phase::Idle);
        }
        self.pace.settle(&now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::{Admitted, Places, Share};
    use super::*;
    use crate::http::source::Source;

    #[test]
    fn a_connection_waits_only_when_each_of_its_answers_waits_for_a_body() {
        let share = Share {
            most: 1,
            of_a_source: 1,
        };
        let places = Places::new(share);
        let admit = |host| places.admit(Source::of([192, 0, 2, host].into()));
        let Admitted { place, .. } = admit(1).unwrap();
        let pace = Arc::new(Pace::new(place, Bounds::of(share), true));
        let (stream, upload) = (pace.begin_answer(), pace.begin_answer());
        pace.await_body();
        assert!(admit(2).is_none(), "the stream is in progress");
        pace.take_body();
        drop(stream);
        assert!(admit(2).is_none(), "the upload is in progress");
        pace.await_body();
        let short = pace.begin_answer();
        assert!(admit(2).is_none(), "the short request is in progress");
        drop(short);
        assert!(admit(2).is_some(), "the only request waits for its peer");
        drop(upload);
    }
}
