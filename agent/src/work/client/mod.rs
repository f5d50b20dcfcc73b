//! A typed client for the agent API of the server. The agent calls and the server answers. The
//! client makes no decisions.

pub mod authorities; // The authorities of the server's certificate
pub mod error; // Errors of calls, and which may be retried
pub mod leased; // Leased jobs, and orders that cannot be read
pub mod server; // The calls of one agent process

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use muster_core::clock::Clock;
use muster_core::values::Secret;
use muster_core::wire::REQUEST;
use muster_core::wire::calls::{Hello, Welcome};
use muster_core::wire::enrol::{Enrol, Issued, Renew};
use muster_core::wire::headers::{
    ANSWERED_AT, AUTHORITIES, CLOCK, HEARD, HEARD_SEAL, MARK, MARK_SEAL, SERVED_AT,
};
use muster_core::wire::orders;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use self::authorities::Authorities;
use self::error::{CallError, accept, invalid, lost, read_body};
use super::marks::Marks;
use crate::blobs::BlobSource;
use crate::contact::Contact;

/// Time limit of a call without waiting. A long poll adds its own wait time.
const CALL: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// An idle connection is closed before the server closes it, which happens after 60 s.
const IDLE: Duration = Duration::from_secs(45);
/// Maximum size of an answer. A lease of a hundred converge plans of 100 KiB fits, and a faulty
/// server cannot fill the memory.
const ANSWER_BYTES: usize = 64 << 20;
/// Maximum duration of a call used for setting the clock. The time in a slower answer is less
/// accurate than the local clock.
const PROMPT: Duration = Duration::from_secs(2);
/// Maximum deviation from the time of the server. Beyond the deviation the local clock is set to
/// the time of the server.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// The HTTP client: a connection pool for the current certificate.
#[derive(Clone, Debug)]
pub struct Client {
    /// Replaced together with the certificate. Connections with the old certificate close after
    /// their last use.
    http: Arc<RwLock<reqwest::Client>>,
    /// URL of the server without a trailing slash.
    server_url: String,
    marks: Arc<Marks>,
    authorities: Arc<Authorities>,
    contact: Contact,
    clock: Clock,
}

/// A header of a single call.
#[derive(Clone, Copy, Debug)]
struct Note {
    name: &'static str,
    value: i64,
}

impl Client {
    /// Creates a client. `server_url` has no path: `https://10.0.0.5:8081`.
    ///
    /// # Errors
    /// `Refused` when the URL is invalid or not an https URL.
    pub fn new(server_url: &str, tls: rustls::ClientConfig) -> Result<Self, CallError> {
        let url = parse(server_url)?;
        match url.scheme() {
            "https" => Self::with(server_url, secured(tls)?),
            _ => Err(invalid(format!(
                "{server_url:?}: the agents' listener speaks TLS; its URL begins with https://"
            ))),
        }
    }

    /// Creates a client with a token over plain HTTP, for a server in the same test. Only the
    /// loopback interface is allowed.
    ///
    /// # Errors
    /// `Refused` when the URL is invalid or refers to another machine.
    pub fn on_loopback(server_url: &str, token: &Secret) -> Result<Self, CallError> {
        let url = parse(server_url)?;
        if url.scheme() != "http" || !matches!(url.host_str(), Some("127.0.0.1" | "localhost")) {
            return Err(invalid(format!(
                "{server_url:?}: a token is shown on the loopback interface alone"
            )));
        }
        let mut header = HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
            .map_err(|error| invalid(error.to_string()))?;
        header.set_sensitive(true);
        let http = builder()
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, header)]))
            .build();
        Self::with(
            server_url,
            http.map_err(|error| invalid(error.to_string()))?,
        )
    }

    fn with(server_url: &str, http: reqwest::Client) -> Result<Self, CallError> {
        let server_url = server_url.trim_end_matches('/').to_owned();
        let (marks, contact, clock) = (Arc::default(), Contact::default(), Clock::System);
        Ok(Self {
            http: Arc::new(RwLock::new(http)),
            server_url,
            marks,
            authorities: Arc::default(),
            contact,
            clock,
        })
    }

    /// Returns the authorities of the server's certificate.
    pub fn authorities(&self) -> &Authorities {
        &self.authorities
    }

    /// Replaces the certificate for all new calls. Running calls finish with the old certificate.
    ///
    /// # Errors
    /// `Refused` when TLS cannot be configured with the certificate.
    pub fn show(&self, tls: rustls::ClientConfig) -> Result<(), CallError> {
        let http = secured(tls)?;
        *self.http.write().unwrap_or_else(PoisonError::into_inner) = http;
        Ok(())
    }

    fn http(&self) -> reqwest::Client {
        self.http
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Requests the first certificate with an enrolment token.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn enrol(&self, enrol: &Enrol) -> Result<Issued, CallError> {
        self.ask("enrol", enrol, CALL).await
    }

    /// Requests a new certificate, authenticated by the current certificate.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn renew(&self, renew: &Renew) -> Result<Issued, CallError> {
        self.ask("certificate", renew, CALL).await
    }

    /// Returns the client with a store for events of the server.
    pub fn remembering(self, marks: Marks) -> Self {
        Self {
            marks: Arc::new(marks),
            ..self
        }
    }

    /// Forgets the stored event of the server, for an agent that enrolled at another installation.
    ///
    /// # Errors
    /// When the files cannot be removed.
    pub fn forget_marks(&self) -> io::Result<()> {
        self.marks.forget()
    }

    /// Returns the client with a clock set to the time of the server.
    pub fn setting(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Returns the time of the last contact with the server.
    pub fn contact(&self) -> Contact {
        self.contact.clone()
    }

    /// Makes the first call of a process. Sends the identity of the process and receives the epoch
    /// for all later calls.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn hello(&self, hello: &Hello) -> Result<Welcome, CallError> {
        self.ask("hello", hello, CALL).await
    }

    /// Returns the source of blobs for the blob cache.
    pub fn blob_source(&self) -> BlobSource {
        BlobSource {
            base_url: self.server_url.clone(),
            client: self.http(),
        }
    }

    async fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &Q,
        within: Duration,
    ) -> Result<A, CallError> {
        let bytes = self.post(path, body, within).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| CallError::Garbled(format!("{path}: {error}")))
    }

    async fn post<Q: Serialize>(
        &self,
        path: &str,
        body: &Q,
        within: Duration,
    ) -> Result<Vec<u8>, CallError> {
        self.post_noted(path, body, within, &[]).await
    }

    /// Sends a call with its own id. The log of the server and error messages contain the id.
    async fn post_noted<Q: Serialize>(
        &self,
        path: &str,
        body: &Q,
        within: Duration,
        notes: &[Note],
    ) -> Result<Vec<u8>, CallError> {
        let id = Uuid::now_v7().to_string();
        self.send(&id, path, body, within, notes)
            .await
            .map_err(|error| error.with_request_id(&id))
    }

    async fn send<Q: Serialize>(
        &self,
        id: &str,
        path: &str,
        body: &Q,
        within: Duration,
        notes: &[Note],
    ) -> Result<Vec<u8>, CallError> {
        let url = format!("{}/agent/v1/{path}", self.server_url);
        let mut request = self
            .http()
            .post(url)
            .timeout(within)
            .header(REQUEST, id)
            .json(body);
        if let Some(mark) = self.marks.latest() {
            request = request.header(HEARD, mark.event);
            if let Some(seal) = mark.seal {
                request = request.header(HEARD_SEAL, seal);
            }
        }
        if let Some(answered) = self.contact.served_at() {
            request = request.header(ANSWERED_AT, answered);
        }
        if let Some(stored) = self.authorities.shown() {
            request = request.header(AUTHORITIES, stored);
        }
        request = request.header(CLOCK, self.clock.own().as_millisecond());
        request = request.header(orders::ORDERS, orders::said());
        for Note { name, value } in notes {
            request = request.header(*name, *value);
        }
        let asked = Instant::now();
        let answer = request.send().await.map_err(lost)?;
        let told = |name: &'static str| answer.headers().get(name)?.to_str().ok();
        if let Some(event) = told(MARK) {
            self.marks.keep(event, told(MARK_SEAL));
        }
        let served_at = told(SERVED_AT).and_then(|text| text.parse().ok());
        let prompt = asked.elapsed() < PROMPT;
        let valid = told(AUTHORITIES).map(str::to_owned);
        let answer = accept(answer).await?;
        if let Some(valid) = valid {
            self.authorities.hear(&valid);
        }
        let bytes = read_body(answer, ANSWER_BYTES).await?;
        self.contact.heard(asked, served_at);
        if let Some(time) = served_at
            .filter(|_| prompt)
            .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        {
            self.clock.follow(time, TOLERANCE);
        }
        Ok(bytes)
    }
}

fn parse(server_url: &str) -> Result<reqwest::Url, CallError> {
    reqwest::Url::parse(server_url).map_err(|error| invalid(format!("{server_url:?}: {error}")))
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .redirect(reqwest::redirect::Policy::none())
}

fn secured(tls: rustls::ClientConfig) -> Result<reqwest::Client, CallError> {
    let builder = builder()
        .tls_backend_preconfigured(tls)
        .https_only(true)
        .http1_only();
    builder.build().map_err(|error| invalid(error.to_string()))
}
