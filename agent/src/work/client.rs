//! The server's agent API, typed. The agent calls, the server answers; nothing here decides.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use muster_core::clock::Clock;
use muster_core::ids::{JobId, PermitId};
use muster_core::values::Secret;
use muster_core::wire::REQUEST;
use muster_core::wire::agent::{
    ActReply, Hello, Job, LeaseJobs, Outcome, RedeemPermit, Redeemed, RenewJob, Renewed,
    ReportOutcome, Sighting, Sightings, SiteConfig, SitePoll, StartAct, Welcome,
};
use muster_core::wire::consoles::{ConsoleChunk, ConsoleReport};
use muster_core::wire::enrol::{Enrol, Issued, Renew};
use muster_core::wire::headers::{ANSWERED_AT, CLOCK, HEARD, MARK, SERVED_AT};
use muster_core::wire::members::{AskMembers, ClusterMembers};
use muster_core::wire::node::Challenge;
use muster_core::wire::orders;
use muster_core::wire::scheduler::{ClusterLook, SchedulerReport, SchedulerWatch};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::marks::Marks;
use crate::blobs::BlobSource;
use crate::contact::Contact;

/// A call that waits for nothing is answered within this; a long poll gets its own wait on top.
const CALL: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// An idle connection is dropped before the server ends it, which it does after 60 s.
const IDLE: Duration = Duration::from_secs(45);
/// A lease of a hundred converge plans of 100 KiB each fits; a wrong server does not fill our memory.
const ANSWER_BYTES: usize = 64 << 20;
/// An answer that took longer than this says less about the time than our own clock does.
const PROMPT: Duration = Duration::from_secs(2);
/// Our clock is set to the server's when it is further from it than this.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);
/// How much of an error's body is read.
const PROBLEM_BYTES: usize = 64 << 10;

/// Why a call brought no answer to act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No answer, or one that says "later": the same call again may work.
    #[error("the server is away: {0}")]
    Away(String),
    /// Another agent process acts for the site: this one must stop.
    #[error("another agent process has taken over this site")]
    StaleEpoch,
    /// The job went to a later attempt: this one must stop.
    #[error("a later attempt has taken over this job")]
    StaleAttempt,
    #[error("the server refuses: {status} {code}: {detail}")]
    Refused {
        status: u16,
        code: String,
        detail: String,
    },
    /// The answer is not what protocol 1 says.
    #[error("the server's answer cannot be understood: {0}")]
    Garbled(String),
}

impl CallError {
    /// Whether the same call may work later.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Away(_))
    }

    /// The same, naming the call that it came of; what is no fault needs no name.
    fn of(self, id: &str) -> Self {
        let told = |what: String| format!("{what} (request {id})");
        match self {
            Self::Away(why) => Self::Away(told(why)),
            Self::Refused {
                status,
                code,
                detail,
            } => Self::Refused {
                status,
                code,
                detail: told(detail),
            },
            Self::Garbled(what) => Self::Garbled(told(what)),
            Self::StaleEpoch | Self::StaleAttempt => self,
        }
    }

    /// Whether the caller has lost the right to act.
    pub fn stale(&self) -> bool {
        matches!(self, Self::StaleEpoch | Self::StaleAttempt)
    }
}

/// The HTTP side: one connection pool, under one certificate at a time.
#[derive(Clone, Debug)]
pub struct Client {
    /// Replaced with the certificate: connections under the former end when nobody uses them any more.
    http: Arc<RwLock<reqwest::Client>>,
    /// Without a slash at its end.
    server_url: String,
    marks: Arc<Marks>,
    contact: Contact,
    clock: Clock,
}

impl Client {
    /// `server_url` without a path: `https://10.0.0.5:8081`.
    ///
    /// # Errors
    /// `Refused` when the URL is none, or not one of TLS.
    pub fn new(server_url: &str, tls: rustls::ClientConfig) -> Result<Self, CallError> {
        let url = parse(server_url)?;
        match url.scheme() {
            "https" => Self::with(server_url, secured(tls)?),
            _ => Err(invalid(format!(
                "{server_url:?}: the agents' listener speaks TLS; its URL begins with https://"
            ))),
        }
    }

    /// Shows a token over plain HTTP, to a server of the same test: on the loopback interface and nowhere else.
    ///
    /// # Errors
    /// `Refused` when the URL is none, or of another machine.
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
            contact,
            clock,
        })
    }

    /// Shows another certificate from now on; calls under way end under the former.
    ///
    /// # Errors
    /// `Refused` when TLS cannot be set up with it.
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

    /// The first certificate, for a token.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn enrol(&self, enrol: &Enrol) -> Result<Issued, CallError> {
        self.ask("enrol", enrol, CALL).await
    }

    /// Another certificate, for the one that is shown.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn renew(&self, renew: &Renew) -> Result<Issued, CallError> {
        self.ask("certificate", renew, CALL).await
    }

    /// The same, remembering there what the server asks to be remembered.
    pub fn remembering(self, marks: Marks) -> Self {
        Self {
            marks: Arc::new(marks),
            ..self
        }
    }

    /// The same, setting this clock by the server's.
    pub fn setting(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// When the server was last heard.
    pub fn contact(&self) -> Contact {
        self.contact.clone()
    }

    /// The first call of a process: who we are, and the epoch that every later call carries.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn hello(&self, hello: &Hello) -> Result<Welcome, CallError> {
        self.ask("hello", hello, CALL).await
    }

    /// Where the blob cache fetches from.
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

    /// Each call has an id of its own, under which the server's log has it; an error names it.
    async fn post<Q: Serialize>(
        &self,
        path: &str,
        body: &Q,
        within: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let id = Uuid::now_v7().to_string();
        self.send(&id, path, body, within)
            .await
            .map_err(|error| error.of(&id))
    }

    async fn send<Q: Serialize>(
        &self,
        id: &str,
        path: &str,
        body: &Q,
        within: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let url = format!("{}/agent/v1/{path}", self.server_url);
        let mut request = self
            .http()
            .post(url)
            .timeout(within)
            .header(REQUEST, id)
            .json(body);
        if let Some(mark) = self.marks.latest() {
            request = request.header(HEARD, mark);
        }
        if let Some(answered) = self.contact.served_at() {
            request = request.header(ANSWERED_AT, answered);
        }
        request = request.header(CLOCK, self.clock.own().as_millisecond());
        request = request.header(orders::ORDERS, orders::said());
        let asked = Instant::now();
        let answer = request.send().await.map_err(lost)?;
        if let Some(mark) = answer
            .headers()
            .get(MARK)
            .and_then(|value| value.to_str().ok())
        {
            self.marks.keep(mark);
        }
        let served_at = answer
            .headers()
            .get(SERVED_AT)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let prompt = asked.elapsed() < PROMPT;
        let answer = accepted(answer).await?;
        let bytes = read(answer, ANSWER_BYTES).await?;
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

/// The server as one agent process sees it: every call carries the epoch that `hello` gave.
#[derive(Clone, Debug)]
pub struct Server {
    pub client: Client,
    pub epoch: i64,
}

impl Server {
    /// Waits up to `wait` for another site configuration than `have`; `None` when there is none.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn poll_site(
        &self,
        have: Option<String>,
        wait: Duration,
    ) -> Result<Option<SiteConfig>, CallError> {
        let poll = SitePoll {
            epoch: self.epoch,
            have: have.clone(),
            wait_s: wait.as_secs(),
        };
        let bytes = self.client.post("site", &poll, wait + CALL).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let config: SiteConfig = serde_json::from_slice(&bytes)
            .map_err(|error| CallError::Garbled(format!("site: {error}")))?;
        Ok((have.as_ref() != Some(&config.revision)).then_some(config))
    }

    /// Waits up to `wait` for jobs. One that cannot be read keeps none of the others.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn lease_jobs(&self, capacity: u32, wait: Duration) -> Result<Leased, CallError> {
        let lease = LeaseJobs {
            epoch: self.epoch,
            capacity,
            wait_s: wait.as_secs(),
        };
        let orders: Orders = self.client.ask("lease", &lease, wait + CALL).await?;
        Ok(Leased::of(orders.jobs))
    }

    /// Commits the start of a `once` act.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn start_act(
        &self,
        job: JobId,
        attempt: i32,
        act: &str,
        before: &str,
    ) -> Result<ActReply, CallError> {
        let start = StartAct {
            epoch: self.epoch,
            attempt,
            act: act.to_owned(),
            before: before.to_owned(),
        };
        self.client
            .ask(&format!("jobs/{job}/act"), &start, CALL)
            .await
    }

    /// The members of the cluster that a job puts its node into or takes it out of, as they are now.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn list_members(
        &self,
        job: JobId,
        attempt: i32,
    ) -> Result<ClusterMembers, CallError> {
        let ask = AskMembers {
            epoch: self.epoch,
            attempt,
        };
        self.client
            .ask(&format!("jobs/{job}/members"), &ask, CALL)
            .await
    }

    /// Keeps a job's lease. `within` is less than the lease: an answer after it is worth nothing.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn renew_job(
        &self,
        job: JobId,
        renewal: &RenewJob,
        within: Duration,
    ) -> Result<Renewed, CallError> {
        self.client
            .ask(&format!("jobs/{job}/renew"), renewal, within)
            .await
    }

    /// Reports how a job ended. The same report again is harmless.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn report_outcome(
        &self,
        job: JobId,
        attempt: i32,
        outcome: &Outcome,
    ) -> Result<(), CallError> {
        let report = ReportOutcome {
            epoch: self.epoch,
            attempt,
            outcome: outcome.clone(),
        };
        self.client
            .post(&format!("jobs/{job}/outcome"), &report, CALL)
            .await
            .map(|_| ())
    }

    /// Asks for the right to do what a permit is for, now.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn redeem_permit(
        &self,
        job: JobId,
        attempt: i32,
        permit: PermitId,
        challenge: Option<Challenge>,
    ) -> Result<Redeemed, CallError> {
        let redeem = RedeemPermit {
            epoch: self.epoch,
            job,
            attempt,
            permit,
            challenge,
        };
        self.client.ask("permits/redeem", &redeem, CALL).await
    }

    /// Tells what was seen on the wire.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn report_sightings(&self, sightings: Vec<Sighting>) -> Result<(), CallError> {
        self.client
            .post(
                "sightings",
                &Sightings {
                    epoch: self.epoch,
                    sightings,
                },
                CALL,
            )
            .await
            .map(|_| ())
    }

    /// Tells what schedulers say of nodes that take no jobs; where to look next.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn report_scheduler(
        &self,
        looks: Vec<ClusterLook>,
    ) -> Result<SchedulerWatch, CallError> {
        self.client
            .ask(
                "scheduler",
                &SchedulerReport {
                    epoch: self.epoch,
                    looks,
                },
                CALL,
            )
            .await
    }

    /// Tells what nodes wrote on their consoles.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn report_consoles(&self, chunks: Vec<ConsoleChunk>) -> Result<(), CallError> {
        self.client
            .post(
                "consoles",
                &ConsoleReport {
                    epoch: self.epoch,
                    chunks,
                },
                CALL,
            )
            .await
            .map(|_| ())
    }
}

/// What was leased, order by order.
#[derive(Debug, Deserialize)]
struct Orders {
    jobs: Vec<Value>,
}

/// Jobs that were leased, and orders that this agent cannot read.
#[derive(Clone, Debug, Default)]
pub struct Leased {
    pub jobs: Vec<Job>,
    pub unread: Vec<Unread>,
}

/// An order that a newer server gave, which says something that is not known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    pub id: JobId,
    pub attempt: i32,
    pub why: String,
}

/// What every order has had since the first protocol.
#[derive(Deserialize)]
struct Head {
    id: JobId,
    attempt: i32,
}

impl Leased {
    fn of(orders: Vec<Value>) -> Self {
        let mut leased = Self::default();
        for order in orders {
            let kind = order["spec"]["kind"]
                .as_str()
                .unwrap_or("no kind")
                .chars()
                .take(64)
                .collect::<String>();
            let head = serde_json::from_value::<Head>(order.clone());
            match (serde_json::from_value::<Job>(order), head) {
                (Ok(job), _) => leased.jobs.push(job),
                (Err(error), Ok(Head { id, attempt })) => {
                    let version = env!("CARGO_PKG_VERSION");
                    let why = format!(
                        "the agent (version {version}) cannot read this {kind}: {error}; update it"
                    );
                    leased.unread.push(Unread { id, attempt, why });
                }
                // Its lease ends by itself.
                (Err(error), Err(_)) => {
                    tracing::error!(%error, kind, "an order without an id or an attempt")
                }
            }
        }
        leased
    }
}

/// RFC 9457, as far as we read it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    code: String,
    title: String,
    detail: String,
}

async fn accepted(answer: Response) -> Result<Response, CallError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let body = read(answer, PROBLEM_BYTES).await.unwrap_or_default();
    let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
    let Problem {
        code,
        title,
        detail,
    } = problem;
    let detail = if detail.is_empty() { title } else { detail };
    match (status, code.as_str()) {
        (StatusCode::CONFLICT, "stale_epoch") => Err(CallError::StaleEpoch),
        (StatusCode::CONFLICT, "stale_attempt") => Err(CallError::StaleAttempt),
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT, _) => {
            Err(away(&format!("{status} {code} {detail}")))
        }
        (status, _) if status.is_server_error() => Err(away(&format!("{status} {code} {detail}"))),
        (status, _) => Err(CallError::Refused {
            status: status.as_u16(),
            code,
            detail,
        }),
    }
}

async fn read(mut answer: Response, limit: usize) -> Result<Vec<u8>, CallError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(lost)? {
        if bytes.len() + chunk.len() > limit {
            return Err(CallError::Garbled(format!("more than {limit} bytes")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn parse(server_url: &str) -> Result<reqwest::Url, CallError> {
    reqwest::Url::parse(server_url).map_err(|error| invalid(format!("{server_url:?}: {error}")))
}

fn invalid(detail: String) -> CallError {
    CallError::Refused {
        status: 0,
        code: "server_url".into(),
        detail,
    }
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

fn away(why: &str) -> CallError {
    CallError::Away(why.to_owned())
}

/// reqwest's own message stops before the cause: the chain tells "connection refused" from "timed out".
fn lost(error: reqwest::Error) -> CallError {
    let error = error.without_url();
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| {
        error.source()
    });
    CallError::Away(
        causes
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(": "),
    )
}
