//! The present wait of a connection, with its deadline. Idle time counts between requests only,
//! never within an answer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::Bounds;
use super::places::Place;

/// The timing of one connection.
#[derive(Debug)]
pub(super) struct Pace {
    place: Place,
    bounds: Bounds,
    now: Mutex<Now>,
}

#[derive(Clone, Copy, Debug)]
struct Now {
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
    pub(super) fn new(place: Place, bounds: Bounds) -> Self {
        Self {
            place,
            bounds,
            now: Mutex::new(Now {
                phase: Phase::Head,
                stuck: false,
                since: Instant::now(),
            }),
        }
    }

    /// The time at which the connection ends unless the peer acts; `None` while the server answers.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Now {
            phase,
            stuck,
            since,
        } = *self.lock();
        match phase {
            _ if stuck => Some(since + self.bounds.stall),
            Phase::Head => Some(since + self.bounds.head),
            Phase::Idle => Some(since + self.bounds.idle),
            Phase::Answer => None,
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Records received bytes.
    pub(super) fn read(&self) {
        let mut now = self.lock();
        if now.phase == Phase::Idle {
            now.enter(Phase::Head);
        }
    }

    /// Records complete headers of a request: the server begins to answer.
    pub(super) fn begin_answer(&self) {
        self.lock().enter(Phase::Answer);
        self.place.work();
    }

    /// Records the end of an answer: its body was read completely, or dropped.
    pub(super) fn end_answer(&self) {
        self.lock().enter(Phase::Idle);
        self.place.wait();
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
        *self = Self {
            phase,
            stuck: false,
            since: Instant::now(),
        };
    }
}
