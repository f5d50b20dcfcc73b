//! Time as a value: rules take `now`, programs hold a [`Clock`], and tests use a clock moved by
//! hand.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

/// Maximum difference between a machine's clock and its server's clock before the machine's clock
/// is reported as wrong. Certificates are issued and checked with a smaller margin.
pub const WRONG: SignedDuration = SignedDuration::from_mins(5);

/// The time source of a program.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's own clock.
    System,
    /// Microseconds since the epoch, advanced by the test that owns the clock.
    Manual(Arc<AtomicI64>),
    /// A remote clock: the database clock for a server, and the server clock for an agent.
    Followed(Followed),
}

/// A clock that continues from the last received time with the monotonic clock. Changing the
/// machine's own clock has no effect.
#[derive(Clone, Debug)]
pub struct Followed {
    own: Box<Clock>,
    told: Arc<Mutex<Option<(Instant, Timestamp)>>>,
}

impl Followed {
    fn told(&self) -> MutexGuard<'_, Option<(Instant, Timestamp)>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock {
    /// Returns a clock that stays at `start` until [`Clock::advance`] moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.as_microsecond())))
    }

    /// Returns a clock that uses the machine's own time until a remote time is received.
    pub fn following(own: Self) -> Self {
        Self::Followed(Followed {
            own: Box::new(own),
            told: Arc::default(),
        })
    }

    /// Returns the current time in microseconds, the precision of Postgres.
    pub fn now(&self) -> Timestamp {
        let micros = match self {
            #[expect(
                clippy::disallowed_methods,
                reason = "the one place that reads the machine's clock"
            )]
            Self::System => Timestamp::now().as_microsecond(),
            Self::Manual(micros) => micros.load(Ordering::SeqCst),
            Self::Followed(followed) => {
                let told = *followed.told();
                told.map_or_else(|| followed.own.now(), |(at, time)| time + at.elapsed())
                    .as_microsecond()
            }
        };
        Timestamp::from_microsecond(micros).expect("a clock reads a time that a timestamp can hold")
    }

    /// Returns the time of the machine's own clock, used only to report a wrong clock.
    pub fn own(&self) -> Timestamp {
        match self {
            Self::Followed(followed) => followed.own.now(),
            Self::System | Self::Manual(_) => self.now(),
        }
    }

    /// Continues from a remote time, unless the clock is already within `tolerance` of the remote
    /// time. Clocks of other kinds ignore the call.
    pub fn follow(&self, time: Timestamp, tolerance: SignedDuration) {
        if let Self::Followed(followed) = self {
            let known = followed.told().is_some();
            if !known || self.now().duration_since(time).abs() > tolerance {
                *followed.told() = Some((Instant::now(), time));
            }
        }
    }

    /// Moves a manual clock forward. Clocks of other kinds ignore the call.
    pub fn advance(&self, by: SignedDuration) {
        if let Self::Manual(micros) = self {
            micros.fetch_add(
                i64::try_from(by.as_micros()).unwrap_or(i64::MAX),
                Ordering::SeqCst,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_the_machines_clock_does_not_touch_one_that_follows_another() {
        let start: Timestamp = "2026-01-05T08:00:00Z".parse().unwrap();
        let own = Clock::manual(start);
        let clock = Clock::following(own.clone());
        assert_eq!(clock.now(), start, "its own until it is told");
        let told = start + SignedDuration::from_mins(10);
        let (second, hour) = (SignedDuration::from_secs(1), SignedDuration::from_hours(1));
        clock.follow(told, second);
        for jump in [hour, -hour, -hour] {
            own.advance(jump);
            let since = clock.now().duration_since(told);
            assert!(
                since >= SignedDuration::ZERO && since < SignedDuration::from_mins(1),
                "{since}"
            );
        }
        assert_eq!(clock.own(), start - hour);
        clock.follow(told + SignedDuration::from_millis(900), second);
        assert!(
            clock.now() < told + SignedDuration::from_millis(900),
            "what is near enough is not set"
        );
        clock.follow(told - hour, second);
        assert!(clock.now() < told - hour + SignedDuration::from_mins(1));
    }
}
