//! Rate limits of callers: a bucket for each credential, and a bucket for each source. A refused
//! credential costs a hundred requests from the bucket of its source. Each replica counts
//! separately, and a restart resets the counts. The limits stop runaway loops and password
//! guessing, not a flood.

mod buckets; // Remaining requests of each credential and source

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use muster_core::clock::Clock;
use muster_core::values::Digest;

use self::buckets::{Buckets, Record, Who};
use super::source::Source;
use crate::auth::known::Known;
use crate::auth::passwords::{Caller, Lane};
use crate::auth::sessions;
use crate::error::Error;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LEFT: HeaderName = HeaderName::from_static("ratelimit");

/// The size of a bucket, and its refill rate.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Requests at once.
    pub burst: f64,
    /// Sustained requests per second.
    pub per_s: f64,
}

/// The limits of all callers.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// By one credential: a token or a session.
    pub credential: Rate,
    /// From one source without an accepted credential so far: an IPv4 address or an IPv6 /64.
    /// Callers behind an untrusted proxy share the proxy's address.
    pub address: Rate,
    /// From one source with an accepted credential in the past. Such a source may be an office of
    /// 200 people, who all sign in at the same time.
    pub office: Rate,
    /// The extra price of a request with a wrong credential or without any, of a failed login, and
    /// of a refused logout token. Unit: requests.
    pub refused: f64,
    /// The largest number of buckets kept.
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
            office: Rate {
                burst: 30_000.0,
                per_s: 2_000.0,
            },
            refused: 100.0,
            most: 100_000,
        }
    }
}

/// The limits of one replica. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Limits {
    refused: f64,
    buckets: Buckets,
}

impl Limits {
    /// Builds the limits with a full bucket for each caller.
    pub fn new(rates: Rates, clock: Clock) -> Self {
        Self {
            refused: rates.refused,
            buckets: Buckets::new(rates, clock),
        }
    }

    /// Chooses the buckets to charge for a request.
    fn bill(&self, call: Call) -> Bill {
        let credential = call.credential.map(|who| (who, self.buckets.record(who)));
        let paid_by = match (call.purpose, credential) {
            (Purpose::Probe, _) => {
                return Bill {
                    first: call.source.map(Who::Probe),
                    second: None,
                    held: 0.0,
                };
            }
            (_, Some((who, record))) if record.was_proven() => Some(who),
            (Purpose::Request, Some((who, record))) if record.is_repeated() => Some(who),
            _ => None,
        };
        let is_guessable = matches!(call.purpose, Purpose::SignIn | Purpose::ProviderLogout);
        let is_guess = match credential {
            Some((_, record)) => is_guessable || record != Record::Proven,
            None => is_guessable,
        };
        let held = if is_guess { self.refused } else { 0.0 };
        match paid_by {
            Some(who) => Bill {
                first: Some(who),
                second: None,
                held,
            },
            None => Bill {
                first: call.source.map(|source| self.payer(source)),
                second: call.credential,
                held,
            },
        }
    }

    /// Chooses the bucket of a source.
    fn payer(&self, source: Source) -> Who {
        let address = Who::Address(source);
        if self.buckets.record(address).was_proven() {
            Who::Office(source)
        } else {
            address
        }
    }

    /// Takes one request, and in advance the price of a refusal. Returns the seconds to wait where
    /// a bucket is empty.
    fn admit(&self, bill: Bill) -> Result<(), f64> {
        if let Some(who) = bill.first {
            self.buckets.take(who, 1.0 + bill.held)?;
        }
        if let Some(who) = bill.second
            && let Err(wait_s) = self.buckets.take(who, 1.0)
        {
            self.give_back(bill);
            return Err(wait_s);
        }
        Ok(())
    }

    fn give_back(&self, bill: Bill) {
        if let (Some(who), true) = (bill.first, bill.held > 0.0) {
            self.buckets.give_back(who, bill.held);
        }
    }

    /// Charges a refusal, or refunds the amount taken in advance.
    fn settle(&self, bill: Bill, is_refused: bool) {
        match (is_refused, bill.first) {
            (false, _) => self.give_back(bill),
            (true, Some(who)) if bill.held == 0.0 => self.buckets.charge(who, self.refused),
            (true, _) => {}
        }
    }

    /// The queue of a login. A browser and a source with an earlier sign-in have separate places.
    fn lane(&self, call: Call) -> Lane {
        let was_proven = |who| self.buckets.record(who).was_proven();
        match call {
            Call {
                credential: Some(who),
                ..
            } if was_proven(who) => Lane::Browser,
            Call {
                source: Some(source),
                ..
            } if was_proven(Who::Address(source)) => Lane::Source,
            _ => Lane::Stranger,
        }
    }
}

/// The parts of a request relevant to the limits.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// Absent where a router is called without a socket.
    source: Option<Source>,
    credential: Option<Who>,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A probe of the replica's health.
    Probe,
    SignIn,
    /// A logout token of the identity provider. Each check of a token may call the provider.
    ProviderLogout,
    Request,
}

impl Call {
    fn of(request: &Request) -> Self {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let purpose = match (request.method(), request.uri().path()) {
            (_, "/healthz" | "/readyz") => Purpose::Probe,
            (&Method::POST, "/sign-in") => Purpose::SignIn,
            (&Method::POST, "/sign-in/oidc/logout") => Purpose::ProviderLogout,
            _ => Purpose::Request,
        };
        Self {
            source: peer.map(|ConnectInfo(peer)| Source::of(peer.ip())),
            credential: find_credential(request.headers()),
            purpose,
        }
    }
}

/// The buckets to charge for a request.
#[derive(Clone, Copy, Debug)]
struct Bill {
    /// Pays for the request and for the refusal.
    first: Option<Who>,
    /// Pays for the request only.
    second: Option<Who>,
    /// The price of a refusal, taken in advance, so that many parallel guesses cost as much as
    /// sequential ones.
    held: f64,
}

/// Middleware: answers 429 with the seconds to wait where a bucket is empty. Other answers carry
/// the remainder. A credential with an accepted request pays from its own bucket only. Guesses by
/// others behind the same proxy therefore do not lock out the owner of a valid credential.
pub async fn limit_requests(
    State(limits): State<Limits>,
    mut request: Request,
    next: Next,
) -> Response {
    let call = Call::of(&request);
    let bill = limits.bill(call);
    if let Err(wait_s) = limits.admit(bill) {
        return Error::TooMany { wait_s }.into_response();
    }
    let known = Known::default();
    request.extensions_mut().insert(known.clone());
    if call.purpose == Purpose::SignIn {
        request.extensions_mut().insert(Caller {
            lane: limits.lane(call),
            source: call
                .source
                .map_or_else(String::new, |source| source.to_string()),
        });
    }
    let mut response = next.run(request).await;
    // A failed login writes an event, so a caller must not flood the history with failed logins.
    let is_refused = match response.status() {
        StatusCode::UNPROCESSABLE_ENTITY => call.purpose == Purpose::SignIn,
        StatusCode::BAD_REQUEST => call.purpose == Purpose::ProviderLogout,
        status => status == StatusCode::UNAUTHORIZED && !known.is_noted(),
    };
    limits.settle(bill, is_refused);
    let buckets = &limits.buckets;
    let opened =
        sessions::opened(response.headers()).map(|session| hash_credential(session.as_bytes()));
    let accepted = call.credential.filter(|_| known.is_noted());
    match call.credential {
        Some(who) if is_refused => buckets.refuse(who),
        _ => {
            for who in [accepted, opened].into_iter().flatten() {
                buckets.prove(who);
                if let Some(source) = call.source {
                    buckets.prove(Who::Address(source));
                }
            }
        }
    }
    if let Some(who) = bill.second.or(bill.first) {
        write_headers(response.headers_mut(), buckets.rate(who), buckets.left(who));
    }
    response
}

/// Writes the headers of draft-ietf-httpapi-ratelimit-headers-10: the quota, its window in seconds,
/// and the remainder.
fn write_headers(headers: &mut HeaderMap, rate: Rate, rest: f64) {
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

/// The credential of a request, valid or not.
fn find_credential(headers: &HeaderMap) -> Option<Who> {
    match headers.get(header::AUTHORIZATION) {
        Some(value) => Some(hash_credential(value.as_bytes())),
        None => sessions::sent(headers).map(|session| hash_credential(session.as_bytes())),
    }
}

fn hash_credential(sent: &[u8]) -> Who {
    let mut start = [0; 16];
    start.copy_from_slice(&Digest::of(sent).0[..16]);
    Who::Credential(start)
}
