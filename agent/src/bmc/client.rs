//! Redfish over HTTPS (DMTF DSP0266), as far as an agent needs it. Answers are attacker's input: sized, timed, parsed once, shortened.

use std::sync::Arc;
use std::time::Duration;

use muster_core::ids::JobId;
use muster_core::values::{Digest, Secret};
use muster_core::wire::agent::BmcTarget;
use reqwest::header::{ETAG, IF_MATCH, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::error::BmcError;
use super::pace::{Limits, Slot};
use super::tls::{Pin, client_config};

/// Bytes of one answer.
const BODY_BYTES: usize = 1 << 20;
/// Characters of a BMC's own words that are passed on.
const SAID_CHARS: usize = 300;

/// One BMC. Cheap to clone; all handles on one address share its pace and its writer.
#[derive(Clone, Debug)]
pub struct Bmc {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    base: String,
    user: String,
    password: Secret,
    credentials: Digest,
    /// On whose behalf.
    job: JobId,
    pin: Arc<Pin>,
    slot: Arc<Slot>,
    limits: Limits,
    system: OnceCell<String>,
}

/// A good answer.
#[derive(Debug)]
struct Answer {
    /// `Null` where the body was empty.
    body: Value,
    etag: Option<String>,
    /// Nothing was done: it wants to know which state of the resource we mean (RFC 6585 section 3).
    wants_etag: bool,
}

impl Bmc {
    pub(super) fn new(target: &BmcTarget, job: JobId, slot: Arc<Slot>, limits: Limits) -> Result<Self, BmcError> {
        let pin = Pin::new(target.certificate);
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(client_config(Arc::clone(&pin)))
            .https_only(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(limits.connect)
            .timeout(limits.call)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(Duration::from_secs(5))
            .build()
            .map_err(|error| BmcError::Unreachable { why: format!("no HTTP client: {error}") })?;
        let base = format!("https://{}", std::net::SocketAddr::new(target.address, target.port));
        let credentials = Digest::of(format!("{}\0{}", target.user, target.password.reveal()).as_bytes());
        let (user, password) = (target.user.clone(), target.password.clone());
        let inner = Inner { http, base, user, password, credentials, job, pin, slot, limits, system: OnceCell::new() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The certificate that is trusted: the pinned one, or after the first call the one that was shown then.
    pub fn certificate(&self) -> Option<Digest> {
        self.inner.pin.pinned()
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// Held through one change, so that nobody else changes the same BMC in between.
    pub(super) async fn writer(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.inner.slot.writer.lock().await
    }

    /// Path of the one computer system behind this BMC.
    pub(super) async fn system_path(&self) -> Result<&str, BmcError> {
        let path = self.inner.system.get_or_try_init(async || {
            let systems = self.get("/redfish/v1/Systems").await?;
            let members = systems["Members"].as_array().map_or(&[][..], Vec::as_slice);
            match members {
                [one] => link(one),
                [] => Err(BmcError::Garbage { what: "it lists no computer system".into() }),
                many => Err(BmcError::Unsupported { what: format!("{} systems behind one BMC", many.len()) }),
            }
        });
        path.await.map(String::as_str)
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, BmcError> {
        let answer = self.call(Method::GET, path, None, None).await?;
        match answer.body.is_object() {
            true => Ok(answer.body),
            false => Err(BmcError::Garbage { what: format!("GET {path} brought no JSON object") }),
        }
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<(), BmcError> {
        self.call(Method::POST, path, Some(body), None).await.map(drop)
    }

    /// Changes a resource. BMCs that insist on a precondition get the ETag of what they show now.
    pub(super) async fn patch(&self, path: &str, body: &Value) -> Result<(), BmcError> {
        if !self.call(Method::PATCH, path, Some(body), None).await?.wants_etag {
            return Ok(());
        }
        let etag = self.call(Method::GET, path, None, None).await?.etag.unwrap_or_else(|| "*".into());
        match self.call(Method::PATCH, path, Some(body), Some(&etag)).await?.wants_etag {
            false => Ok(()),
            true => {
                Err(BmcError::Busy { said: format!("PATCH {path}: it changes while we change it"), retry_after: None })
            }
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        if_match: Option<&str>,
    ) -> Result<Answer, BmcError> {
        let Inner { http, base, user, password, credentials, job, slot, limits, .. } = &*self.inner;
        let what = format!("{method} {path}");
        let _turn = slot.turn(limits.spacing).await;
        slot.may_log_in(*credentials, *job)?;
        let changes = method != Method::GET;
        let mut request = http.request(method, format!("{base}{path}")).basic_auth(user, Some(password.reveal()));
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(etag) = if_match {
            request = request.header(IF_MATCH, etag);
        }
        let mut response = request.send().await.map_err(|error| self.no_answer(&what, &error))?;
        if changes && response.status().is_success() {
            // It is accepted. Whatever the rest of the answer is, it must not make a deed look undone.
            slot.note_login();
            return Ok(Answer { body: Value::Null, etag: None, wants_etag: false });
        }
        let bytes = self.body(&what, &mut response).await?;
        match response.status() {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let again_in = slot.note_refusal(*credentials, *job, limits);
                Err(BmcError::BadCredentials { said: said(response.status(), &bytes), again_in })
            }
            status => {
                slot.note_login();
                judge(&what, status, &response, &bytes)
            }
        }
    }

    async fn body(&self, what: &str, response: &mut Response) -> Result<Vec<u8>, BmcError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.no_answer(what, &error))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > BODY_BYTES {
                return Err(BmcError::Garbage { what: format!("{what} brought more than {BODY_BYTES} bytes") });
            }
        }
        Ok(bytes)
    }

    fn no_answer(&self, what: &str, error: &reqwest::Error) -> BmcError {
        if let Some((pinned, seen)) = self.inner.pin.take_mismatch() {
            return BmcError::CertificateChanged { pinned, seen };
        }
        let root = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source()).last();
        let why = root.map_or_else(String::new, |root| shortened(&root.to_string()));
        // rustls ends some of its errors with a link to its manual.
        let why = why.split(": https://").next().unwrap_or_default().to_owned();
        let call = what.to_owned();
        match () {
            () if error.is_connect() => BmcError::Unreachable { why },
            () if error.is_timeout() => BmcError::Timeout { call, why: format!("within {:?}", self.inner.limits.call) },
            () if error.is_body() || error.is_decode() => BmcError::Garbage { what: format!("{what}: {why}") },
            () => BmcError::Timeout { call, why: format!("the connection ended: {why}") },
        }
    }
}

/// What an answer with this status means (DSP0266 section 9.5).
fn judge(what: &str, status: StatusCode, response: &Response, bytes: &[u8]) -> Result<Answer, BmcError> {
    let said = || format!("{what}: {}", said(status, bytes));
    match status {
        StatusCode::CONFLICT | StatusCode::LOCKED | StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let seconds =
                response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let retry_after = seconds.map(|seconds: u64| Duration::from_secs(seconds.min(600)));
            Err(BmcError::Busy { said: said(), retry_after })
        }
        status if status.is_success() => {
            let etag = response.headers().get(ETAG).and_then(|value| value.to_str().ok()).map(str::to_owned);
            let body = match bytes.trim_ascii() {
                [] => Value::Null,
                bytes => serde_json::from_slice(bytes)
                    .map_err(|error| BmcError::Garbage { what: format!("{what} brought no JSON: {error}") })?,
            };
            Ok(Answer { body, etag, wants_etag: false })
        }
        StatusCode::PRECONDITION_FAILED | StatusCode::PRECONDITION_REQUIRED => {
            Ok(Answer { body: Value::Null, etag: None, wants_etag: true })
        }
        StatusCode::NOT_IMPLEMENTED => Err(BmcError::Unsupported { what: said() }),
        status if status.is_client_error() => Err(BmcError::Unsupported { what: said() }),
        _ => Err(BmcError::Garbage { what: said() }),
    }
}

/// The path a link points to.
pub(super) fn link(value: &Value) -> Result<String, BmcError> {
    let path = value["@odata.id"].as_str().unwrap_or_default();
    let plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-~:%#?=$&@+()".contains(&b));
    match path.starts_with("/redfish/v1/") && plain && path.len() <= 300 && !path.contains("..") {
        true => Ok(path.trim_end_matches('/').to_owned()),
        false => Err(BmcError::Garbage { what: format!("it links to {:?}", shortened(path)) }),
    }
}

/// Status and, where there is one, the message of a Redfish error (DSP0266 section 8.6).
fn said(status: StatusCode, bytes: &[u8]) -> String {
    let error: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let extended = &error["error"]["@Message.ExtendedInfo"];
    let message =
        extended[0]["Message"].as_str().or(extended["Message"].as_str()).or(error["error"]["message"].as_str());
    match message {
        Some(message) => format!("HTTP {}: {}", status.as_u16(), shortened(message)),
        None => format!("HTTP {}", status.as_u16()),
    }
}

/// A foreign text as it may be shown: printable, and not long.
pub(super) fn shortened(text: &str) -> String {
    let printable: String = text.chars().take(SAID_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    match text.chars().nth(SAID_CHARS) {
        Some(_) => printable + "…",
        None => printable,
    }
}
