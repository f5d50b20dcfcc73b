//! Time as a value: rules take `now`, programs hold a [`Clock`], tests hold one they move by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

/// Where a program takes its time from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's own clock.
    System,
    /// Microseconds since the epoch, moved by the test that owns it.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands still until [`Clock::advance`] moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.as_microsecond())))
    }

    /// The time now, to the microsecond, which is what Postgres keeps.
    pub fn now(&self) -> Timestamp {
        let micros = match self {
            #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
            Self::System => Timestamp::now().as_microsecond(),
            Self::Manual(micros) => micros.load(Ordering::SeqCst),
        };
        Timestamp::from_microsecond(micros).expect("a clock reads a time that a timestamp can hold")
    }

    /// Moves a manual clock forward; a system clock moves by itself.
    pub fn advance(&self, by: SignedDuration) {
        if let Self::Manual(micros) = self {
            micros.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::SeqCst);
        }
    }
}
