//! What a connection waits for, and until when. Idle time counts between requests and never within an answer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::Bounds;
use super::places::Place;

/// The time of one connection.
#[derive(Debug)]
pub(super) struct Pace {
    place: Place,
    bounds: Bounds,
    now: Mutex<Now>,
}

#[derive(Clone, Copy, Debug)]
struct Now {
    phase: Phase,
    /// The peer takes nothing of an answer, or of its end, which the server still holds in the phase after it.
    stuck: bool,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The peer sends a request's line and headers.
    Head,
    /// The last answer was given; no byte of a next request came.
    Idle,
    /// The server answers.
    Answer,
}

impl Pace {
    /// A connection whose first request is awaited from now on.
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

    /// When the connection ends, unless its peer does something before; `None` while the server answers.
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

    /// Bytes came.
    pub(super) fn read(&self) {
        let mut now = self.lock();
        if now.phase == Phase::Idle {
            now.enter(Phase::Head);
        }
    }

    /// A request's headers are complete.
    pub(super) fn begin_answer(&self) {
        self.lock().enter(Phase::Answer);
        self.place.work();
    }

    /// The answer's body was read to its end, or given up.
    pub(super) fn end_answer(&self) {
        self.lock().enter(Phase::Idle);
        self.place.wait();
    }

    /// The peer takes no more bytes for now.
    pub(super) fn block(&self) {
        let mut now = self.lock();
        if !now.stuck && now.phase != Phase::Head {
            (now.stuck, now.since) = (true, Instant::now());
            self.place.wait();
        }
    }

    /// The peer took bytes.
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

    /// The request's body waits for the peer.
    pub(super) fn await_body(&self) {
        self.place.wait();
    }

    /// A piece of the request's body came.
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
