//! The part of Redfish over HTTPS (DMTF DSP0266) needed by an agent. Answers are
//! attacker-controlled input: the size and time are limited, the body is parsed once, and quoted
//! text is shortened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_core::ids::JobId;
use muster_core::values::{Digest, Secret};
use muster_core::wire::bmc::BmcTarget;
use reqwest::header::{IF_MATCH, LOCATION};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::etags::list_tags;
use super::links::{bare, link, listed, next_page, other_slash, path_of};
use super::replies::{Answer, Reply, name_target, said};
use super::tls::{Pin, client_config};
use crate::bmc::error::{BmcError, shortened};
use crate::bmc::pace::{Limits, Slot};

/// Maximum size of an answer in bytes.
const BODY_BYTES: usize = 1 << 20;
/// Maximum number of pages of a list. Each page is limited to the size of a body.
const PAGES: usize = 20;
/// Maximum number of reads of a resource for the tag of a change.
const TAG_READS: usize = 3;
/// Statuses of a redirect that keeps method and body. A status 301 or 302 to the same path with
/// another slash is treated alike, because the BMC has not acted.
const SAME_REQUEST: [StatusCode; 4] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

/// The Redfish service of a BMC.
#[derive(Clone, Debug)]
pub(in crate::bmc) struct Redfish {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    base: String,
    user: String,
    password: Secret,
    credentials: Digest,
    /// The job on whose behalf the client calls.
    job: JobId,
    pin: Arc<Pin>,
    slot: Arc<Slot>,
    limits: Limits,
    /// The BMC has accepted the login of this client.
    admitted: AtomicBool,
    /// Id of the computer system, for a BMC with several systems.
    selector: Option<String>,
    system: OnceCell<String>,
}

/// A request to the BMC.
#[derive(Clone)]
struct Request<'a> {
    method: Method,
    path: &'a str,
    body: Option<&'a Value>,
    if_match: Option<&'a str>,
}

impl<'a> Request<'a> {
    fn get(path: &'a str) -> Self {
        Self {
            method: Method::GET,
            path,
            body: None,
            if_match: None,
        }
    }

    fn new(method: Method, path: &'a str, body: &'a Value) -> Self {
        Self {
            method,
            path,
            body: Some(body),
            if_match: None,
        }
    }
}

impl Redfish {
    pub(in crate::bmc) fn new(
        target: &BmcTarget,
        job: JobId,
        slot: Arc<Slot>,
        limits: Limits,
    ) -> Result<Self, BmcError> {
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
            .map_err(|error| BmcError::Unreachable {
                why: format!("no HTTP client: {error}"),
            })?;
        let base = format!(
            "https://{}",
            std::net::SocketAddr::new(target.address, target.port)
        );
        let credentials =
            Digest::of(format!("{}\0{}", target.user, target.password.reveal()).as_bytes());
        let (user, password) = (target.user.clone(), target.password.clone());
        let (selector, system) = (target.system.clone(), OnceCell::new());
        let admitted = AtomicBool::new(false);
        let inner = Inner {
            http,
            base,
            user,
            password,
            credentials,
            job,
            pin,
            slot,
            limits,
            admitted,
            selector,
            system,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    pub(in crate::bmc) fn certificate(&self) -> Option<Digest> {
        self.inner.pin.pinned()
    }

    /// Returns the user name of the login.
    pub(in crate::bmc) fn user(&self) -> &str {
        &self.inner.user
    }

    /// Locks the BMC for a whole change, so that other jobs cannot change the same BMC in between.
    pub(in crate::bmc) async fn writer(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.inner.slot.writer.lock().await
    }

    /// Returns the path of the selected computer system.
    pub(in crate::bmc) async fn system_path(&self) -> Result<&str, BmcError> {
        let path = self
            .inner
            .system
            .get_or_try_init(async || match &self.inner.selector {
                None => only(self.members("/redfish/v1/Systems").await?),
                Some(id) => {
                    let mut systems = self.members("/redfish/v1/Systems").await?.into_iter();
                    let absent = || BmcError::Unsupported {
                        what: format!("it lists no computer system {id:?}"),
                    };
                    systems
                        .find(|path| bare(path).rsplit('/').next() == Some(id))
                        .ok_or_else(absent)
                }
            });
        path.await.map(String::as_str)
    }

    /// Returns the paths listed by a collection, of all its pages.
    pub(in crate::bmc) async fn members(&self, collection: &str) -> Result<Vec<String>, BmcError> {
        let mut paths = Vec::new();
        let mut next = collection.to_owned();
        for _ in 0..PAGES {
            let page = self.get(&next).await?;
            for member in listed(&page)? {
                paths.push(link(member)?);
            }
            match next_page(&page)? {
                Some(more) => next = more,
                None => return Ok(paths),
            }
        }
        Err(BmcError::Garbage {
            what: format!("{collection} has more than {PAGES} pages"),
        })
    }

    pub(in crate::bmc) async fn get(&self, path: &str) -> Result<Value, BmcError> {
        let answer = self.call(Request::get(path)).await?;
        match answer.body.is_object() {
            true => Ok(answer.body),
            false => Err(BmcError::Garbage {
                what: format!("GET {path} brought no JSON object"),
            }),
        }
    }

    pub(in crate::bmc) async fn post(&self, path: &str, body: &Value) -> Result<(), BmcError> {
        self.begin(path, body).await.map(drop)
    }

    /// Starts a long-running operation and returns the path of the task, if the BMC names a task.
    pub(in crate::bmc) async fn begin(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<Option<String>, BmcError> {
        let answer = self.call(Request::new(Method::POST, path, body)).await?;
        match answer.refused {
            Some(what) => Err(BmcError::Unsupported { what }),
            None => Ok(answer.task),
        }
    }

    /// Reads a task or a task monitor. A monitor answers 202 while the work runs, and afterwards
    /// the result of the operation or an empty body (DSP0266 section 12.2). The inner `Err` quotes
    /// a BMC that no longer has the task.
    pub(in crate::bmc) async fn get_task(
        &self,
        path: &str,
    ) -> Result<Result<Value, String>, BmcError> {
        let reply = self.hear(Request::get(path)).await?;
        if reply.is_absent() {
            return Ok(Err(reply.quote()));
        }
        let answer = reply.judge()?;
        let is_running = answer.under_way && answer.body["TaskState"].is_null();
        match answer.refused {
            Some(what) => Err(BmcError::Unsupported { what }),
            None if is_running => Ok(Ok(json!({ "TaskState": "Running" }))),
            None => Ok(Ok(answer.body)),
        }
    }

    pub(in crate::bmc) fn limits(&self) -> Limits {
        self.inner.limits
    }

    /// Changes a resource. For BMCs requiring a precondition, repeats the request with the tags of
    /// the current resource, each once.
    pub(in crate::bmc) async fn patch(&self, path: &str, body: &Value) -> Result<(), BmcError> {
        let change = Request::new(Method::PATCH, path, body);
        let Some(mut words) = self.call(change.clone()).await?.refused else {
            return Ok(());
        };
        let mut tried: Vec<String> = Vec::new();
        for _ in 0..TAG_READS {
            let mut fresh = self.tags(path).await?;
            fresh.retain(|tag| !tried.contains(tag));
            if fresh.is_empty() {
                let tried = tried.join(", ");
                return Err(BmcError::Unsupported {
                    what: shortened(&format!("{words}; refused with If-Match {tried}")),
                });
            }
            for tag in fresh {
                let mut again = change.clone();
                again.if_match = Some(&tag);
                match self.call(again).await?.refused {
                    Some(said) => words = said,
                    None => return Ok(()),
                }
                tried.push(tag);
            }
        }
        Err(BmcError::Busy {
            said: format!("PATCH {path}: it changes while we change it"),
            retry_after: None,
        })
    }

    /// Returns the values of `If-Match` for a resource, best first.
    async fn tags(&self, path: &str) -> Result<Vec<String>, BmcError> {
        match self.call(Request::get(path)).await {
            Ok(shown) => Ok(list_tags(shown.etag.as_deref(), &shown.body)),
            Err(error) if error.is_refusal() => Ok(list_tags(None, &Value::Null)),
            Err(error) => Err(error),
        }
    }

    async fn call(&self, request: Request<'_>) -> Result<Answer, BmcError> {
        self.hear(request).await?.judge()
    }

    /// Sends a request, and once more over a redirect that only adds or removes a slash.
    async fn hear(&self, request: Request<'_>) -> Result<Reply, BmcError> {
        let reply = self.send(request.clone()).await?;
        let Some(location) = reply.location() else {
            return Ok(reply);
        };
        let elsewhere = |location: &str| BmcError::Elsewhere {
            call: reply.what.clone(),
            location: name_target(location),
        };
        let path = match SAME_REQUEST.contains(&reply.status) {
            true => other_slash(&self.inner.base, request.path, location),
            false => None,
        };
        let Some(path) = path else {
            return Err(elsewhere(location));
        };
        let moved = Request {
            path: &path,
            ..request
        };
        let followed = self.send(moved).await?;
        match followed.location() {
            Some(again) => Err(elsewhere(again)),
            None => Ok(followed),
        }
    }

    async fn send(&self, request: Request<'_>) -> Result<Reply, BmcError> {
        let Inner {
            http,
            base,
            user,
            password,
            credentials,
            job,
            slot,
            limits,
            ..
        } = &*self.inner;
        let Request {
            method,
            path,
            body,
            if_match,
        } = request;
        let what = format!("{method} {path}");
        let _turn = slot.turn(limits.spacing).await;
        slot.may_log_in(*credentials, *job)?;
        let mut sent = http
            .request(method.clone(), format!("{base}{path}"))
            .basic_auth(user, Some(password.reveal()));
        if let Some(body) = body {
            sent = sent.json(body);
        }
        if let Some(tag) = if_match {
            sent = sent.header(IF_MATCH, tag);
        }
        let mut response = sent
            .send()
            .await
            .map_err(|error| self.no_answer(&what, &error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_success() {
            self.note_admission(path);
        }
        let (bytes, task) = match method != Method::GET && status.is_success() {
            // The BMC accepted the change. An error in the rest of the answer must not make the
            // change look failed.
            true => (Vec::new(), self.task_of(&what, &mut response).await),
            false => (self.body(&what, &mut response).await?, None),
        };
        // Status 403 is a refused login only while no request was admitted (DSP0266 section 8.5).
        let is_stranger = status == StatusCode::UNAUTHORIZED
            || status == StatusCode::FORBIDDEN && !self.inner.admitted.load(Ordering::Relaxed);
        match is_stranger {
            true => Err(BmcError::BadCredentials {
                said: said(status, &bytes),
                again_in: slot.note_refusal(*credentials, *job, limits),
            }),
            false => Ok(Reply {
                what,
                status,
                headers,
                bytes,
                task,
            }),
        }
    }

    /// Records an accepted login. The service root needs no login, so its answer proves none
    /// (DSP0266 section 13.3).
    fn note_admission(&self, path: &str) {
        if bare(path) != "/redfish/v1" {
            self.inner.admitted.store(true, Ordering::Relaxed);
            self.inner.slot.note_login();
        }
    }

    /// Returns the task started by an accepted request (DSP0266 section 7.11). The body is
    /// preferred over the monitor, because a monitor loses its answer after the first read.
    async fn task_of(&self, what: &str, response: &mut Response) -> Option<String> {
        if response.status() != StatusCode::ACCEPTED {
            return None;
        }
        let monitor = response
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok())
            .and_then(path_of);
        let body = self
            .body(what, response)
            .await
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        body.and_then(|body| link(&body).ok())
            .filter(|path| path.contains("/Tasks/"))
            .or(monitor)
    }

    async fn body(&self, what: &str, response: &mut Response) -> Result<Vec<u8>, BmcError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.no_answer(what, &error))?
        {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > BODY_BYTES {
                return Err(BmcError::Garbage {
                    what: format!("{what} brought more than {BODY_BYTES} bytes"),
                });
            }
        }
        Ok(bytes)
    }

    fn no_answer(&self, what: &str, error: &reqwest::Error) -> BmcError {
        if let Some((pinned, seen)) = self.inner.pin.take_mismatch() {
            return BmcError::CertificateChanged { pinned, seen };
        }
        let first = error as &(dyn std::error::Error + 'static);
        let root = std::iter::successors(Some(first), |error| error.source()).last();
        // The `source` of an I/O error skips the wrapped error and returns the source of the
        // wrapped error.
        let mut inner = std::iter::successors(root, |error| {
            let inner = error.downcast_ref::<std::io::Error>()?.get_ref()?;
            Some(inner as &(dyn std::error::Error + 'static))
        });
        if let Some(rustls::Error::InvalidMessage(_)) = inner.find_map(|error| error.downcast_ref())
        {
            return BmcError::Unreachable {
                why: NO_TLS.to_owned(),
            };
        }
        let why = root.map_or_else(String::new, |root| shortened(&root.to_string()));
        // rustls appends a link to its manual to some errors.
        let why = why
            .split(": https://")
            .next()
            .unwrap_or_default()
            .to_owned();
        let call = what.to_owned();
        match () {
            () if error.is_connect() => BmcError::Unreachable { why },
            () if error.is_timeout() => BmcError::Timeout {
                call,
                why: format!("within {:?}", self.inner.limits.call),
            },
            () if error.is_body() || error.is_decode() => BmcError::Garbage {
                what: format!("{what}: {why}"),
            },
            () => BmcError::Timeout {
                call,
                why: format!("the connection ended: {why}"),
            },
        }
    }
}

/// Error text for a server answering the TLS handshake with another protocol, such as plain HTTP.
const NO_TLS: &str =
    "what answers there speaks no TLS, and nothing is sent without; Redfish is usually at port 443";

fn only(mut systems: Vec<String>) -> Result<String, BmcError> {
    match (systems.pop(), systems.len()) {
        (Some(one), 0) => Ok(one),
        (None, _) => Err(BmcError::Garbage {
            what: "it lists no computer system".into(),
        }),
        (Some(_), others) => {
            let what = format!(
                "{} systems behind one BMC: the node must name its own (power.redfish.bmc.system)",
                others + 1
            );
            Err(BmcError::Unsupported { what })
        }
    }
}
