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
    /// The peer takes nothing of the answer.
    Stuck,
}

impl Pace {
    /// A connection whose first request is awaited from now on.
    pub(super) fn new(place: Place, bounds: Bounds) -> Self {
        Self {
            place,
            bounds,
            now: Mutex::new(Now {
                phase: Phase::Head,
                since: Instant::now(),
            }),
        }
    }

    /// When the connection ends, unless its peer does something before; `None` while the server answers.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Now { phase, since } = *self.lock();
        match phase {
            Phase::Head => Some(since + self.bounds.head),
            Phase::Idle => Some(since + self.bounds.idle),
            Phase::Stuck => Some(since + self.bounds.stall),
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
        if now.phase == Phase::Answer {
            now.enter(Phase::Stuck);
            drop(now);
            self.place.wait();
        }
    }

    /// The peer took bytes.
    pub(super) fn write(&self) {
        let mut now = self.lock();
        match now.phase {
            Phase::Stuck => {
                now.enter(Phase::Answer);
                drop(now);
                self.place.work();
            }
            // The end of an answer leaves the server's buffers.
            Phase::Idle => now.enter(Phase::Idle),
            Phase::Answer | Phase::Head => {}
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
        (self.phase, self.since) = (phase, Instant::now());
    }
}
