//! Time as a value: rules take `now`, programs hold a [`Clock`], tests hold one they move by hand.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

/// A machine's clock that is further from its server's than this is wrong: certificates are made and read with less to spare.
pub const WRONG: SignedDuration = SignedDuration::from_mins(5);

/// Where a program takes its time from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's own clock.
    System,
    /// Microseconds since the epoch, moved by the test that owns it.
    Manual(Arc<AtomicI64>),
    /// Somebody else's clock: that of the database for a server, that of the server for an agent.
    Followed(Followed),
}

/// A clock that goes on from the time it was told last by the monotonic clock: setting the machine's own clock does not touch it.
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
    /// A clock that stands still until [`Clock::advance`] moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.as_microsecond())))
    }

    /// A clock that is the machine's own until it is told another's time.
    pub fn following(own: Self) -> Self {
        Self::Followed(Followed {
            own: Box::new(own),
            told: Arc::default(),
        })
    }

    /// The time now, to the microsecond, which is what Postgres keeps.
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

    /// The time of this machine's own clock, which is only looked at to say that it is wrong.
    pub fn own(&self) -> Timestamp {
        match self {
            Self::Followed(followed) => followed.own.now(),
            Self::System | Self::Manual(_) => self.now(),
        }
    }

    /// Goes on from another's time, unless it is within `tolerance` of it already. A clock that follows nobody stays what it is.
    pub fn follow(&self, time: Timestamp, tolerance: SignedDuration) {
        if let Self::Followed(followed) = self {
            let known = followed.told().is_some();
            if !known || self.now().duration_since(time).abs() > tolerance {
                *followed.told() = Some((Instant::now(), time));
            }
        }
    }

    /// Moves a manual clock forward; a system clock moves by itself.
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
