//! The part of Redfish over HTTPS (DMTF DSP0266) needed by an agent. Answers are
//! attacker-controlled input: the size and time are limited, the body is parsed once, and quoted
//! text is shortened.

use std::sync::Arc;
use std::time::Duration;

use muster_core::ids::JobId;
use muster_core::values::{Digest, Secret};
use muster_core::wire::bmc::BmcTarget;
use reqwest::header::{ETAG, IF_MATCH, LOCATION, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::tls::{Pin, client_config};
use crate::bmc::error::{BmcError, shortened};
use crate::bmc::pace::{Limits, Slot};

/// Maximum size of an answer in bytes.
const BODY_BYTES: usize = 1 << 20;
/// Maximum number of pages of a list. Each page is limited to the size of a body.
const PAGES: usize = 20;

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
    /// Id of the computer system, for a BMC with several systems.
    selector: Option<String>,
    system: OnceCell<String>,
}

/// A successful answer.
#[derive(Debug)]
struct Answer {
    /// The parsed body, `Null` for an empty body.
    body: Value,
    etag: Option<String>,
    /// The BMC changed nothing and requires an ETag of the resource as precondition (RFC 6585
    /// section 3).
    wants_etag: bool,
    /// Path of the task, or of the task monitor, for work in progress.
    task: Option<String>,
    /// Status 202: the work is still in progress.
    under_way: bool,
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
                        .find(|path| path.rsplit('/').next() == Some(id))
                        .ok_or_else(absent)
                }
            });
        path.await.map(String::as_str)
    }

    /// Returns the paths listed by a collection.
    pub(in crate::bmc) async fn members(&self, collection: &str) -> Result<Vec<String>, BmcError> {
        let mut paths = Vec::new();
        let mut next = Some(collection.to_owned());
        for _ in 0..PAGES {
            let Some(page) = next else { break };
            let page = self.get(&page).await?;
            let members = page["Members"].as_array().map_or(&[][..], Vec::as_slice);
            for member in members {
                paths.push(link(member)?);
            }
            next = next_page(&page)?;
        }
        Ok(paths)
    }

    pub(in crate::bmc) async fn get(&self, path: &str) -> Result<Value, BmcError> {
        let answer = self.call(Method::GET, path, None, None).await?;
        match answer.body.is_object() {
            true => Ok(answer.body),
            false => Err(BmcError::Garbage {
                what: format!("GET {path} brought no JSON object"),
            }),
        }
    }

    pub(in crate::bmc) async fn post(&self, path: &str, body: &Value) -> Result<(), BmcError> {
        self.call(Method::POST, path, Some(body), None)
            .await
            .map(drop)
    }

    /// Starts a long-running operation and returns the path of the task, if the BMC names a task.
    pub(in crate::bmc) async fn begin(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<Option<String>, BmcError> {
        Ok(self.call(Method::POST, path, Some(body), None).await?.task)
    }

    /// Reads a task or a task monitor. A monitor answers 202 while the work runs, and afterwards
    /// the result of the operation or an empty body (DSP0266 section 12.2).
    pub(in crate::bmc) async fn get_task(&self, path: &str) -> Result<Value, BmcError> {
        let answer = self.call(Method::GET, path, None, None).await?;
        match answer.under_way && answer.body["TaskState"].is_null() {
            true => Ok(serde_json::json!({ "TaskState": "Running" })),
            false => Ok(answer.body),
        }
    }

    pub(in crate::bmc) fn limits(&self) -> Limits {
        self.inner.limits
    }

    /// Changes a resource. For BMCs requiring a precondition, repeats the request with the ETag of
    /// the current resource.
    pub(in crate::bmc) async fn patch(&self, path: &str, body: &Value) -> Result<(), BmcError> {
        if !self
            .call(Method::PATCH, path, Some(body), None)
            .await?
            .wants_etag
        {
            return Ok(());
        }
        let etag = self
            .call(Method::GET, path, None, None)
            .await?
            .etag
            .unwrap_or_else(|| "*".into());
        match self
            .call(Method::PATCH, path, Some(body), Some(&etag))
            .await?
            .wants_etag
        {
            false => Ok(()),
            true => Err(BmcError::Busy {
                said: format!("PATCH {path}: it changes while we change it"),
                retry_after: None,
            }),
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        if_match: Option<&str>,
    ) -> Result<Answer, BmcError> {
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
        let what = format!("{method} {path}");
        let _turn = slot.turn(limits.spacing).await;
        slot.may_log_in(*credentials, *job)?;
        let changes = method != Method::GET;
        let mut request = http
            .request(method, format!("{base}{path}"))
            .basic_auth(user, Some(password.reveal()));
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(etag) = if_match {
            request = request.header(IF_MATCH, etag);
        }
        let mut response = request
            .send()
            .await
            .map_err(|error| self.no_answer(&what, &error))?;
        if changes && response.status().is_success() {
            // The BMC accepted the change. An error in the rest of the answer must not make the
            // change look failed.
            slot.note_login();
            let task = self.task_of(&what, &mut response).await;
            return Ok(Answer {
                body: Value::Null,
                etag: None,
                wants_etag: false,
                task,
                under_way: false,
            });
        }
        let bytes = self.body(&what, &mut response).await?;
        match response.status() {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let again_in = slot.note_refusal(*credentials, *job, limits);
                Err(BmcError::BadCredentials {
                    said: said(response.status(), &bytes),
                    again_in,
                })
            }
            status => {
                slot.note_login();
                judge(&what, status, &response, &bytes)
            }
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

/// Maps the status of an answer to a result (DSP0266 section 9.5).
fn judge(
    what: &str,
    status: StatusCode,
    response: &Response,
    bytes: &[u8],
) -> Result<Answer, BmcError> {
    let said = || format!("{what}: {}", said(status, bytes));
    match status {
        StatusCode::CONFLICT
        | StatusCode::LOCKED
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::SERVICE_UNAVAILABLE => {
            let seconds = response
                .headers()
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let retry_after = seconds.map(|seconds: u64| Duration::from_secs(seconds.min(600)));
            Err(BmcError::Busy {
                said: said(),
                retry_after,
            })
        }
        status if status.is_success() => {
            let etag = response
                .headers()
                .get(ETAG)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned);
            let body = match bytes.trim_ascii() {
                [] => Value::Null,
                bytes => serde_json::from_slice(bytes).map_err(|error| BmcError::Garbage {
                    what: format!("{what} brought no JSON: {error}"),
                })?,
            };
            Ok(Answer {
                body,
                etag,
                wants_etag: false,
                task: None,
                under_way: status == StatusCode::ACCEPTED,
            })
        }
        StatusCode::PRECONDITION_FAILED | StatusCode::PRECONDITION_REQUIRED => Ok(Answer {
            body: Value::Null,
            etag: None,
            wants_etag: true,
            task: None,
            under_way: false,
        }),
        StatusCode::NOT_IMPLEMENTED => Err(BmcError::Unsupported { what: said() }),
        status if status.is_client_error() => Err(BmcError::Unsupported { what: said() }),
        _ => Err(BmcError::Garbage { what: said() }),
    }
}

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

/// Returns the path of the next page of a list.
pub(in crate::bmc) fn next_page(page: &Value) -> Result<Option<String>, BmcError> {
    match &page["Members@odata.nextLink"] {
        Value::Null => Ok(None),
        more => link(&serde_json::json!({ "@odata.id": more })).map(Some),
    }
}

/// Returns the path of a link.
pub(in crate::bmc) fn link(value: &Value) -> Result<String, BmcError> {
    let path = value["@odata.id"].as_str().unwrap_or_default();
    let plain = path
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"/._-~:%#?=$&@+()".contains(&b));
    match path.starts_with("/redfish/v1/") && plain && path.len() <= 300 && !path.contains("..") {
        true => Ok(path.trim_end_matches('/').to_owned()),
        false => Err(BmcError::Garbage {
            what: format!("it links to {:?}", shortened(path)),
        }),
    }
}

/// Returns the path of a `Location` header. Some BMCs write a host name they believe is theirs. The
/// host part is ignored and never followed.
fn path_of(location: &str) -> Option<String> {
    let path = match location.split_once("://") {
        Some((_, rest)) => rest.find('/').map(|at| &rest[at..])?,
        None => location,
    };
    link(&serde_json::json!({ "@odata.id": path })).ok()
}

/// Returns the status and, if present, the message of a Redfish error (DSP0266 section 8.6).
fn said(status: StatusCode, bytes: &[u8]) -> String {
    let error: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let extended = &error["error"]["@Message.ExtendedInfo"];
    let message = extended[0]["Message"]
        .as_str()
        .or(extended["Message"].as_str())
        .or(error["error"]["message"].as_str());
    match message {
        Some(message) => format!("HTTP {}: {}", status.as_u16(), shortened(message)),
        None => format!("HTTP {}", status.as_u16()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_path_on_the_same_bmc_or_nothing() {
        let path = |location: &str| path_of(location).unwrap_or_default();
        assert_eq!(
            path("/redfish/v1/TaskService/Tasks/7/"),
            "/redfish/v1/TaskService/Tasks/7"
        );
        assert_eq!(
            path("https://192.0.2.9:8443/redfish/v1/TaskService/TaskMonitors/7"),
            "/redfish/v1/TaskService/TaskMonitors/7"
        );
        for elsewhere in [
            "https://192.0.2.9",
            "https://192.0.2.9/other",
            "ftp://x/../redfish/v1/..",
            "",
        ] {
            assert_eq!(path_of(elsewhere), None, "{elsewhere}");
        }
    }
}
