//! How many requests a caller may send: a bucket of tokens for each credential, and one for each address, which a refused credential empties a
//! hundred times as fast. Each replica counts for itself and forgets when it restarts: this holds off loops and guesses, not a flood.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use muster_core::clock::Clock;
use muster_core::values::Digest;

use crate::auth::sessions;
use crate::error::Error;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LEFT: HeaderName = HeaderName::from_static("ratelimit");

/// A bucket's size, and how fast it fills.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Requests at once.
    pub burst: f64,
    /// Requests per second for ever.
    pub per_s: f64,
}

/// What callers may send.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// By one credential: a token or a session.
    pub credential: Rate,
    /// From one address, whoever sends: everybody behind a proxy shares it.
    pub address: Rate,
    /// What a request with a wrong credential, or without one, takes from its address.
    pub refused: f64,
    /// Buckets that are kept at most.
    pub most: usize,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            credential: Rate {
                burst: 5_000.0,
                per_s: 1_000.0,
            },
            address: Rate {
                burst: 10_000.0,
                per_s: 2_000.0,
            },
            refused: 100.0,
            most: 100_000,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Who {
    /// The beginning of the hash of what was sent as one.
    Credential([u8; 16]),
    Address(IpAddr),
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Timestamp,
    /// Of a credential that somebody was known by.
    proven: bool,
}

/// Noted by whoever finds out who makes a request.
#[derive(Clone, Debug, Default)]
pub struct Known(Arc<AtomicBool>);

impl Known {
    /// The request's credential is somebody's.
    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The buckets of one replica. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Limits {
    rates: Rates,
    clock: Clock,
    buckets: Arc<Mutex<HashMap<Who, Bucket>>>,
}

impl Limits {
    /// Full buckets for everybody.
    pub fn new(rates: Rates, clock: Clock) -> Self {
        Self {
            rates,
            clock,
            buckets: Arc::default(),
        }
    }

    fn rate(&self, who: Who) -> Rate {
        match who {
            Who::Credential(_) => self.rates.credential,
            Who::Address(_) => self.rates.address,
        }
    }

    /// Takes from a bucket; what is left, or the seconds until there is enough. Taking 0 only asks whether there is any.
    fn take(&self, who: Who, amount: f64) -> Result<f64, f64> {
        let (now, rate) = (self.clock.now(), self.rate(who));
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= self.rates.most && !buckets.contains_key(&who) {
            // Whoever was gone for a burst's time has a full bucket, which is the same as none.
            buckets.retain(|who, bucket| {
                filled(*bucket, self.rate(*who), now) < self.rate(*who).burst
            });
        }
        if buckets.len() >= self.rates.most && !buckets.contains_key(&who) {
            // So many callers at once are one that makes names up.
            return Err(1.0);
        }
        let bucket = buckets.entry(who).or_insert(Bucket {
            left: rate.burst,
            at: now,
            proven: false,
        });
        let filled = filled(*bucket, rate, now);
        if filled < 1.0 {
            return Err(((1.0 - filled) / rate.per_s).max(0.0));
        }
        *bucket = Bucket {
            left: (filled - amount).max(0.0),
            at: now,
            ..*bucket
        };
        Ok(bucket.left)
    }
}

impl Limits {
    /// Whether somebody was known by this credential not long ago.
    fn is_proven(&self, who: Who) -> bool {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.get(&who).is_some_and(|bucket| bucket.proven)
    }

    fn prove(&self, who: Who, proven: bool) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.get_mut(&who) {
            bucket.proven = proven;
        }
    }
}

fn filled(bucket: Bucket, rate: Rate, now: Timestamp) -> f64 {
    let passed = now.duration_since(bucket.at).as_secs_f64().max(0.0);
    (bucket.left + passed * rate.per_s).min(rate.burst)
}

/// Middleware: refuses whoever has sent too much, with 429 and how long to wait; tells everybody else what is left. Who is known by a credential is held
/// to that one's share alone: others at the same address, as behind a proxy, may guess at theirs.
pub async fn hold(State(limits): State<Limits>, mut request: Request, next: Next) -> Response {
    // Where the server listens; a router that is called without a socket has no addresses.
    let peer = request
        .extensions()
        .get::<ConnectInfo<SocketAddr>>()
        .map(|ConnectInfo(peer)| Who::Address(peer.ip()));
    let credential = credential(request.headers());
    let proven = credential.is_some_and(|who| limits.is_proven(who));
    let mut left = None;
    for (who, amount) in [(peer.filter(|_| !proven), 1.0), (credential, 1.0)] {
        let Some(who) = who else { continue };
        match limits.take(who, amount) {
            Ok(rest) => left = Some((who, rest)),
            Err(wait) => return Error::TooMany { wait_s: wait }.into_response(),
        }
    }
    let signs_in = request.uri().path() == "/sign-in";
    let known = Known::default();
    request.extensions_mut().insert(known.clone());
    let mut response = next.run(request).await;
    // A login that failed is written down: nobody fills the history with them.
    let refused = match response.status() {
        StatusCode::UNPROCESSABLE_ENTITY => signs_in,
        status => status == StatusCode::UNAUTHORIZED,
    };
    if let Some(who) = credential
        && (refused || known.0.load(Ordering::Relaxed))
    {
        limits.prove(who, !refused);
    }
    if let (Some(peer), true) = (peer, refused) {
        limits.take(peer, limits.rates.refused).ok();
    }
    if let Some((who, rest)) = left {
        tell(response.headers_mut(), limits.rate(who), rest);
    }
    response
}

/// As draft-ietf-httpapi-ratelimit-headers-10 has it: the quota and its window in seconds, and what is left of it.
fn tell(headers: &mut HeaderMap, rate: Rate, rest: f64) {
    let window = (rate.burst / rate.per_s).ceil();
    for (name, text) in [
        (
            POLICY,
            format!("\"default\";q={:.0};w={window:.0}", rate.burst),
        ),
        (
            LEFT,
            format!("\"default\";r={:.0};t={window:.0}", rest.floor()),
        ),
    ] {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    }
}

/// What was sent as a credential, whether it is one or not.
fn credential(headers: &HeaderMap) -> Option<Who> {
    let sent = match headers.get(header::AUTHORIZATION) {
        Some(value) => value.as_bytes().to_vec(),
        None => sessions::sent(headers)?.into_bytes(),
    };
    let mut start = [0; 16];
    start.copy_from_slice(&Digest::of(&sent).0[..16]);
    Some(Who::Credential(start))
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn limits(clock: &Clock) -> Limits {
        let rates = Rates {
            credential: Rate {
                burst: 3.0,
                per_s: 1.0,
            },
            address: Rate {
                burst: 10.0,
                per_s: 2.0,
            },
            refused: 5.0,
            most: 2,
        };
        Limits::new(rates, clock.clone())
    }

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let clock = Clock::manual("2026-01-05T08:00:00Z".parse().unwrap());
        let limits = limits(&clock);
        let who = Who::Credential([1; 16]);
        for left in [2.0, 1.0, 0.0] {
            assert_eq!(limits.take(who, 1.0), Ok(left));
        }
        assert_eq!(limits.take(who, 1.0), Err(1.0));
        assert_eq!(
            limits.take(Who::Credential([2; 16]), 1.0),
            Ok(2.0),
            "another's is full"
        );
        clock.advance(SignedDuration::from_millis(2500));
        assert_eq!(limits.take(who, 1.0), Ok(1.5));
        clock.advance(SignedDuration::from_hours(1));
        assert_eq!(limits.take(who, 1.0), Ok(2.0), "never more than full");
    }

    #[test]
    fn names_that_are_made_up_do_not_fill_the_memory() {
        let clock = Clock::manual("2026-01-05T08:00:00Z".parse().unwrap());
        let limits = limits(&clock);
        for name in 0..2 {
            assert!(limits.take(Who::Credential([name; 16]), 1.0).is_ok());
        }
        assert!(limits.take(Who::Credential([9; 16]), 1.0).is_err());
        assert!(
            limits.take(Who::Credential([1; 16]), 1.0).is_ok(),
            "who was there goes on"
        );
        clock.advance(SignedDuration::from_secs(10));
        assert!(limits.take(Who::Credential([9; 16]), 1.0).is_ok());
        assert!(limits.buckets.lock().unwrap().len() <= 2);
    }
}
