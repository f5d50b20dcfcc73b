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
        // Within the lock: the end of another answer must not mark the connection as waiting.
        self.place.work();
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
            self.place.wait();
        }
    }

    /// Records bytes accepted by the peer.
    pub(super) fn write(&self) {
        let mut now = self.lock();
        if now.stuck && now.phase == Phase::Answer {
            self.place.work();
        }
        // Idle time begins with the last byte of an answer.
        if now.phase != Phase::Head {
            (now.stuck, now.since) = (false, Instant::now());
        }
    }

    /// Records a wait of the request's body for the peer.
    pub(super) fn await_body(&self) {
        self.place.wait();
    }

    /// Records a received piece of the request's body.
    pub(super) fn take_body(&self) {
        self.place.work();
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
            self.pace.place.wait();
        }
    }
}
