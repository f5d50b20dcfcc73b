//! Buckets of one replica: the remaining requests of each credential and each source, and the
//! history of each with the replica.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use muster_core::clock::Clock;

use super::{Rate, Rates};
use crate::http::source::Source;

/// The time for which a full table keeps the bucket of a proven credential or source after the last
/// request.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(7 * 24);
/// After this many refusals in a row, a wrong credential is the mistake of a program and no longer
/// a guess.
const REPEATS: u32 = 10;

/// The owner of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Who {
    /// The first 16 bytes of the hash of the credential, as sent by the client.
    Credential([u8; 16]),
    /// A source of requests. Its record says whether a credential was accepted from there.
    Address(Source),
    /// A source with an accepted credential in the past.
    Office(Source),
    /// A source probing whether the replica is up. Refusals at the same source do not count against
    /// the probe.
    Probe(Source),
}

/// The history of a credential or source with the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// First seen, or without an accepted or refused request so far.
    New,
    /// Accepted at the last request. For a source: a request from there was accepted.
    Proven,
    /// Accepted before, refused at the last request: the session ended, or the token was revoked.
    Former,
    /// Refused at each request, with the number of refusals.
    Refused(u32),
}

impl Record {
    /// Whether an earlier request was accepted.
    pub(super) fn was_proven(self) -> bool {
        matches!(self, Self::Proven | Self::Former)
    }

    /// Whether the same wrong credential was refused so often that another refusal is not a guess.
    pub(super) fn is_repeated(self) -> bool {
        matches!(self, Self::Refused(times) if times >= REPEATS)
    }

    fn refused(self) -> Self {
        match self {
            Self::New => Self::Refused(1),
            Self::Proven | Self::Former => Self::Former,
            Self::Refused(times) => Self::Refused(times.saturating_add(1)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The remaining requests. Below zero the owner is in debt: requests are refused until the
    /// bucket has refilled to one.
    left: f64,
    at: Timestamp,
    record: Record,
}

/// The buckets of one replica. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    rates: Rates,
    clock: Clock,
    held: Arc<Mutex<HashMap<Who, Bucket>>>,
}

impl Buckets {
    /// Builds an empty table; every owner begins with a full bucket.
    pub(super) fn new(rates: Rates, clock: Clock) -> Self {
        Self {
            rates,
            clock,
            held: Arc::default(),
        }
    }

    pub(super) fn rate(&self, who: Who) -> Rate {
        match who {
            Who::Credential(_) => self.rates.credential,
            Who::Address(_) | Who::Probe(_) => self.rates.address,
            Who::Office(_) => self.rates.office,
        }
    }

    /// Takes an amount from a bucket with at least one request left. The bucket may go into debt,
    /// so that each amount is paid in full. Returns the remainder, or the seconds until the bucket
    /// holds one request.
    pub(super) fn take(&self, who: Who, amount: f64) -> Result<f64, f64> {
        let (now, rate) = (self.clock.now(), self.rate(who));
        let mut held = self.lock();
        let Some(bucket) = self.find(&mut held, who, now) else {
            // The table is full of recently active owners: invented credentials.
            return Err(1.0);
        };
        let filled = current_fill(*bucket, rate, now);
        if filled < 1.0 {
            return Err((1.0 - filled) / rate.per_s);
        }
        (bucket.left, bucket.at) = (filled - amount, now);
        Ok(bucket.left)
    }

    /// Charges an amount for an already answered request. Such a charge leaves at most one burst of
    /// debt.
    pub(super) fn charge(&self, who: Who, amount: f64) {
        let (now, rate) = (self.clock.now(), self.rate(who));
        if let Some(bucket) = self.find(&mut self.lock(), who, now) {
            let left = current_fill(*bucket, rate, now) - amount;
            (bucket.left, bucket.at) = (left.max(-rate.burst).min(rate.burst), now);
        }
    }

    /// Refunds an amount taken in advance.
    pub(super) fn give_back(&self, who: Who, amount: f64) {
        self.charge(who, -amount);
    }

    /// The remainder of a bucket, never below zero.
    pub(super) fn left(&self, who: Who) -> f64 {
        let (now, rate) = (self.clock.now(), self.rate(who));
        let held = self.lock();
        held.get(&who).map_or(rate.burst, |bucket| {
            current_fill(*bucket, rate, now).max(0.0)
        })
    }

    pub(super) fn record(&self, who: Who) -> Record {
        self.lock()
            .get(&who)
            .map_or(Record::New, |bucket| bucket.record)
    }

    /// Records the acceptance of a credential, or of a credential from a source.
    pub(super) fn prove(&self, who: Who) {
        let (now, rate) = (self.clock.now(), self.rate(who));
        if let Some(bucket) = self.find(&mut self.lock(), who, now) {
            // The source of an office pays from another bucket, and is remembered by this one.
            (bucket.left, bucket.at) = (current_fill(*bucket, rate, now), now);
            bucket.record = Record::Proven;
        }
    }

    /// Records the refusal of a credential.
    pub(super) fn refuse(&self, who: Who) {
        let now = self.clock.now();
        if let Some(bucket) = self.find(&mut self.lock(), who, now) {
            bucket.record = bucket.record.refused();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Who, Bucket>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bucket of an owner. A new owner gets a bucket only where the table has room.
    fn find<'a>(
        &self,
        held: &'a mut HashMap<Who, Bucket>,
        who: Who,
        now: Timestamp,
    ) -> Option<&'a mut Bucket> {
        if held.len() >= self.rates.most && !held.contains_key(&who) {
            self.make_room(held, now);
            if held.len() >= self.rates.most {
                return None;
            }
        }
        Some(held.entry(who).or_insert(Bucket {
            left: self.rate(who).burst,
            at: now,
            record: Record::New,
        }))
    }

    /// Removes full buckets, because a full bucket equals a missing one: first those without a
    /// record worth keeping, then all full ones.
    fn make_room(&self, held: &mut HashMap<Who, Bucket>, now: Timestamp) {
        let is_full = |who: &Who, bucket: &Bucket| {
            let rate = self.rate(*who);
            current_fill(*bucket, rate, now) >= rate.burst
        };
        held.retain(|who, bucket| {
            let remembered =
                bucket.record.was_proven() && now.duration_since(bucket.at) < REMEMBERED;
            remembered || !is_full(who, bucket)
        });
        if held.len() >= self.rates.most {
            held.retain(|who, bucket| !is_full(who, bucket));
        }
    }
}

/// The content of a bucket at the time `now`.
fn current_fill(bucket: Bucket, rate: Rate, now: Timestamp) -> f64 {
    let passed = now.duration_since(bucket.at).as_secs_f64().max(0.0);
    (bucket.left + passed * rate.per_s).min(rate.burst)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn buckets(clock: &Clock) -> Buckets {
        let rates = Rates {
            credential: Rate {
                burst: 3.0,
                per_s: 1.0,
            },
            address: Rate {
                burst: 10.0,
                per_s: 2.0,
            },
            office: Rate {
                burst: 40.0,
                per_s: 2.0,
            },
            refused: 5.0,
            most: 2,
        };
        Buckets::new(rates, clock.clone())
    }

    fn start() -> Clock {
        Clock::manual("2026-01-05T08:00:00Z".parse().unwrap())
    }

    fn address() -> Who {
        Who::Address(Source::of("192.0.2.7".parse().unwrap()))
    }

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let clock = start();
        let buckets = buckets(&clock);
        let who = Who::Credential([1; 16]);
        for left in [2.0, 1.0, 0.0] {
            assert_eq!(buckets.take(who, 1.0), Ok(left));
        }
        assert_eq!(buckets.take(who, 1.0), Err(1.0));
        assert_eq!(
            buckets.take(Who::Credential([2; 16]), 1.0),
            Ok(2.0),
            "the other bucket is full"
        );
        clock.advance(SignedDuration::from_millis(2500));
        assert_eq!(buckets.take(who, 1.0), Ok(1.5));
        clock.advance(SignedDuration::from_hours(1));
        assert_eq!(buckets.take(who, 1.0), Ok(2.0), "never more than full");
    }

    #[test]
    fn a_bucket_owes_and_is_closed_until_the_debt_is_paid() {
        let clock = start();
        let buckets = buckets(&clock);
        assert_eq!(buckets.take(address(), 16.0), Ok(-6.0));
        assert_eq!(buckets.take(address(), 1.0), Err(3.5));
        assert_eq!(buckets.left(address()), 0.0);
        buckets.charge(address(), 50.0);
        assert_eq!(buckets.take(address(), 1.0), Err(5.5), "one burst at most");
        clock.advance(SignedDuration::from_millis(5500));
        assert_eq!(buckets.take(address(), 1.0), Ok(0.0));
        buckets.give_back(address(), 99.0);
        assert_eq!(buckets.left(address()), 10.0, "never more than full");
    }

    #[test]
    fn invented_names_do_not_fill_the_memory() {
        let clock = start();
        let buckets = buckets(&clock);
        for name in 0..2 {
            assert!(buckets.take(Who::Credential([name; 16]), 1.0).is_ok());
        }
        assert!(buckets.take(Who::Credential([9; 16]), 1.0).is_err());
        assert!(
            buckets.take(Who::Credential([1; 16]), 1.0).is_ok(),
            "a name that was there goes on"
        );
        buckets.prove(Who::Credential([1; 16]));
        clock.advance(SignedDuration::from_secs(10));
        assert!(buckets.take(Who::Credential([9; 16]), 1.0).is_ok());
        assert_eq!(buckets.record(Who::Credential([1; 16])), Record::Proven);
        assert_eq!(buckets.record(Who::Credential([0; 16])), Record::New);
        assert!(buckets.lock().len() <= 2);
        clock.advance(SignedDuration::from_secs(10));
        buckets.prove(Who::Credential([9; 16]));
        assert!(
            buckets.take(Who::Credential([8; 16]), 1.0).is_ok(),
            "a table of proven names has room for a new one too"
        );
    }

    #[test]
    fn a_credential_has_the_record_of_its_requests() {
        let clock = start();
        let buckets = buckets(&clock);
        let who = Who::Credential([1; 16]);
        for times in 1..REPEATS {
            buckets.refuse(who);
            assert_eq!(buckets.record(who), Record::Refused(times));
            assert!(!buckets.record(who).is_repeated());
        }
        buckets.refuse(who);
        assert!(buckets.record(who).is_repeated());
        buckets.prove(who);
        buckets.refuse(who);
        assert_eq!(buckets.record(who), Record::Former);
    }

    proptest! {
        /// However requests are spread over time, n of them cost n times their price: no more get through than the bucket and its rate pay for.
        #[test]
        fn n_requests_cost_n_times_their_price(
            price in 1.0..40.0_f64,
            gaps_ms in proptest::collection::vec(0..3_000_i64, 1..200),
        ) {
            let clock = start();
            let buckets = buckets(&clock);
            let (mut passed, mut elapsed_s) = (0.0, 0.0);
            for gap in gaps_ms {
                clock.advance(SignedDuration::from_millis(gap));
                elapsed_s += SignedDuration::from_millis(gap).as_secs_f64();
                match buckets.take(address(), price) {
                    Ok(_) => passed += 1.0,
                    Err(wait_s) => prop_assert!(wait_s > 0.0 && wait_s <= price / 2.0 + 0.5),
                }
                // The last one may be on credit.
                prop_assert!((passed - 1.0) * price <= 10.0 + elapsed_s * 2.0 + 1e-6);
            }
        }

        /// A refused caller that waits for as long as it was told is let through.
        #[test]
        fn the_wait_is_long_enough(price in 1.0..40.0_f64) {
            let clock = start();
            let buckets = buckets(&clock);
            let wait_s = loop {
                if let Err(wait_s) = buckets.take(address(), price) {
                    break wait_s;
                }
            };
            clock.advance(SignedDuration::from_micros((wait_s * 1e6).ceil() as i64));
            prop_assert!(buckets.take(address(), price).is_ok());
        }
    }
}
