//! A stateful fake server with recorded requests and configurable answers.

#![expect(clippy::disallowed_types, reason = "the fake server is not the server")]

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode, header};
use muster_core::ids::AgentId;
use muster_core::values::Secret;
use muster_core::wire::REQUEST;
use muster_core::wire::calls::{
    ActReply, LeaseJobs, RedeemPermit, Redeemed, RenewJob, Renewed, ReportOutcome, StartAct,
    Welcome,
};
use muster_core::wire::consoles::{ConsoleChunk, ConsoleReport};
use muster_core::wire::headers::{KEYS_REVOKED, NODE_CLOCK};
use muster_core::wire::job::Job;
use muster_core::wire::node::Answer;
use muster_core::wire::orders::ORDERS;
use muster_core::wire::result::Outcome;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::work::client::Client;
use crate::work::client::server::Server;

pub(crate) const TOKEN: &str = "mst_test_token";

/// The recorded requests and the configured behaviour.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The ids of all calls.
    pub(crate) requests: Vec<String>,
    pub(crate) renewals: Vec<RenewJob>,
    pub(crate) redeemed: Vec<RedeemPermit>,
    pub(crate) acts: Vec<StartAct>,
    pub(crate) consoles: Vec<ConsoleChunk>,
    /// Number of calls answered with 503 before normal answers.
    pub(crate) away_for: u32,
    /// A problem returned for renewals.
    pub(crate) stale: Option<&'static str>,
    pub(crate) cancel: bool,
    /// Results of jobs are refused. Failures are accepted.
    pub(crate) refuses_results: bool,
    /// An order of a newer server, sent with the next job.
    pub(crate) strange: Option<serde_json::Value>,
    /// Job kinds readable by the callers, as announced.
    pub(crate) reads: Vec<String>,
    /// Outcomes with the offset of the node's clock.
    pub(crate) node_clocks: u32,
    /// Outcomes of jobs that wrote a list of revoked keys to the installed system.
    pub(crate) keys_revoked: u32,
}

/// The server, listening on loopback until dropped.
pub(crate) struct FakeServer {
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    pub(crate) outcomes: mpsc::UnboundedReceiver<Outcome>,
    /// Jobs to lease, a job per poll.
    pub(crate) jobs: mpsc::UnboundedSender<Job>,
    pub(crate) url: String,
    _tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Desk {
    ledger: Arc<Mutex<Ledger>>,
    outcomes: mpsc::UnboundedSender<Outcome>,
    jobs: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Job>>>,
}

impl FakeServer {
    pub(crate) async fn start() -> Self {
        let (told, outcomes) = mpsc::unbounded_channel();
        let (jobs, queue) = mpsc::unbounded_channel();
        let desk = Desk {
            ledger: Arc::default(),
            outcomes: told,
            jobs: Arc::new(queue.into()),
        };
        let ledger = Arc::clone(&desk.ledger);
        let app = Router::new()
            .route("/agent/v1/hello", post(hello))
            .route("/agent/v1/site", post(std::future::pending::<()>))
            .route("/agent/v1/lease", post(lease))
            .route("/agent/v1/jobs/{id}/renew", post(renew))
            .route("/agent/v1/jobs/{id}/act", post(act))
            .route("/agent/v1/jobs/{id}/outcome", post(outcome))
            .route("/agent/v1/permits/redeem", post(redeem))
            .route("/agent/v1/consoles", post(consoles))
            .with_state(desk);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            ledger,
            outcomes,
            jobs,
            url,
            _tasks: tasks,
        }
    }

    pub(crate) fn connect(&self) -> Server {
        let client = Client::on_loopback(&self.url, &Secret::new(TOKEN)).unwrap();
        Server { client, epoch: 7 }
    }
}

impl Desk {
    /// Refuses calls without the token, and all calls during an outage.
    fn refuse(&self, headers: &HeaderMap) -> Option<Response> {
        let token = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        if token != Some(&format!("Bearer {TOKEN}")) {
            return Some(problem(StatusCode::UNAUTHORIZED, "unauthenticated"));
        }
        let mut ledger = self.ledger.lock().unwrap();
        ledger
            .requests
            .push(headers[REQUEST].to_str().unwrap().to_owned());
        let away = ledger.away_for > 0;
        ledger.away_for = ledger.away_for.saturating_sub(1);
        away.then(|| problem(StatusCode::SERVICE_UNAVAILABLE, "dependency"))
    }
}

fn problem(status: StatusCode, code: &str) -> Response {
    let body = json!({"type": "about:blank", "status": status.as_u16(), "code": code, "title": code, "detail": "why"});
    (
        status,
        [(header::CONTENT_TYPE, "application/problem+json")],
        body.to_string(),
    )
        .into_response()
}

async fn hello(State(desk): State<Desk>, headers: HeaderMap) -> Response {
    desk.refuse(&headers).unwrap_or_else(|| {
        let welcome = Welcome {
            protocol: 1,
            agent: AgentId::new(),
            site: "lab".into(),
            epoch: 7,
            lease_s: 60,
            permit_public_key: "key".into(),
            user_ca: "ca".into(),
        };
        Json(welcome).into_response()
    })
}

/// A long poll, ended by a job or by the caller. A poll without a wait is answered at once.
async fn lease(
    State(desk): State<Desk>,
    headers: HeaderMap,
    Json(call): Json<LeaseJobs>,
) -> Json<serde_json::Value> {
    let said = headers
        .get(ORDERS)
        .map_or("", |value| value.to_str().unwrap())
        .to_owned();
    desk.ledger.lock().unwrap().reads.push(said);
    let mut queue = desk.jobs.lock().await;
    let job = match call.wait_s {
        0 => queue.try_recv().ok(),
        _ => queue.recv().await,
    };
    let strange = desk.ledger.lock().unwrap().strange.take();
    let jobs: Vec<_> = strange
        .into_iter()
        .chain(job.map(|job| serde_json::to_value(job).unwrap()))
        .collect();
    Json(json!({ "jobs": jobs }))
}

async fn renew(
    State(desk): State<Desk>,
    headers: HeaderMap,
    _job: Path<String>,
    body: Bytes,
) -> Response {
    if let Some(refusal) = desk.refuse(&headers) {
        return refusal;
    }
    let mut ledger = desk.ledger.lock().unwrap();
    ledger.renewals.push(serde_json::from_slice(&body).unwrap());
    match ledger.stale {
        Some(code) => problem(StatusCode::CONFLICT, code),
        None => Json(Renewed {
            cancel: ledger.cancel,
        })
        .into_response(),
    }
}

async fn act(
    State(desk): State<Desk>,
    headers: HeaderMap,
    _job: Path<String>,
    body: Bytes,
) -> Response {
    if let Some(refusal) = desk.refuse(&headers) {
        return refusal;
    }
    desk.ledger
        .lock()
        .unwrap()
        .acts
        .push(serde_json::from_slice(&body).unwrap());
    Json(ActReply::Go).into_response()
}

async fn outcome(
    State(desk): State<Desk>,
    headers: HeaderMap,
    _job: Path<String>,
    body: Bytes,
) -> Response {
    if let Some(refusal) = desk.refuse(&headers) {
        return refusal;
    }
    let report: ReportOutcome = serde_json::from_slice(&body).unwrap();
    if headers.contains_key(NODE_CLOCK) {
        desk.ledger.lock().unwrap().node_clocks += 1;
    }
    if headers.contains_key(KEYS_REVOKED) {
        desk.ledger.lock().unwrap().keys_revoked += 1;
    }
    let is_result = matches!(report.outcome, Outcome::Succeeded { .. });
    if is_result && desk.ledger.lock().unwrap().refuses_results {
        return problem(StatusCode::PAYLOAD_TOO_LARGE, "too_large");
    }
    desk.outcomes.send(report.outcome).unwrap();
    StatusCode::NO_CONTENT.into_response()
}

async fn redeem(State(desk): State<Desk>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refusal) = desk.refuse(&headers) {
        return refusal;
    }
    desk.ledger
        .lock()
        .unwrap()
        .redeemed
        .push(serde_json::from_slice(&body).unwrap());
    Json(Redeemed {
        answer: Answer::Granted {
            signature: "c2lnbmVk".into(),
        },
    })
    .into_response()
}

async fn consoles(State(desk): State<Desk>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refusal) = desk.refuse(&headers) {
        return refusal;
    }
    let report: ConsoleReport = serde_json::from_slice(&body).unwrap();
    desk.ledger.lock().unwrap().consoles.extend(report.chunks);
    StatusCode::NO_CONTENT.into_response()
}
