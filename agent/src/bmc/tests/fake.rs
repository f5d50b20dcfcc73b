//! A stateful fake BMC with delayed power changes, a boot override, a log, and faults on demand.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use muster_core::values::{Digest, Secret};
use muster_core::wire::bmc::BmcTarget;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::hardware::Hardware;

/// Faults of the fake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    Hang,
    /// Executes the action, then closes the connection without an answer.
    LostReply,
    Busy,
    /// Invalid JSON with status 200.
    Garbage,
    /// Excessively nested JSON.
    Deep,
    /// An excessively large body.
    Huge,
    /// Returns success without acting.
    Ignores,
    Redirects,
    /// Every link has a foreign target.
    BadLinks,
}

/// State of the fake.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) fault: Fault,
    pub(crate) password: String,
    pub(crate) power: &'static str,
    /// Future power states, each with the time of the change.
    pub(crate) coming: Vec<(Instant, &'static str)>,
    /// The present power state was read. No state changes unread, however late the reader is.
    is_read: bool,
    pub(crate) power_delay: Duration,
    pub(crate) enabled: String,
    pub(crate) target: String,
    /// Always reads `Continuous`, and refuses `Disabled` and `None`, like sushy-tools.
    pub(crate) always_continuous: bool,
    pub(crate) wants_etag: bool,
    /// Changes an override only while the machine is off. Otherwise returns success without a
    /// change.
    pub(crate) override_only_off: bool,
    /// `ForceRestart` is not supported.
    pub(crate) cannot_restart: bool,
    /// Whether an account service exists.
    pub(crate) has_accounts: bool,
    /// Number of refused logins until the account is locked forever.
    pub(crate) locks_after: usize,
    /// Seconds in the `Retry-After` header of a busy answer.
    pub(crate) retry_after: &'static str,
    /// The system shows no `PowerState`.
    pub(crate) hides_power: bool,
    /// Makes a change of the override, and answers with this refusal.
    pub(crate) refusal: Option<&'static str>,
    /// Update service and BIOS, if present.
    pub(crate) hardware: Option<Hardware>,
    pub(crate) resets: Vec<String>,
    pub(crate) calls: usize,
    pub(crate) logins_refused: usize,
}

impl State {
    fn power(&mut self) -> &'static str {
        let now = Instant::now();
        if self.is_read && self.coming.first().is_some_and(|(at, _)| *at <= now) {
            self.power = self.coming.remove(0).1;
        }
        self.is_read = true;
        self.power
    }

    fn reset(&mut self, act: &str) {
        self.resets.push(act.into());
        if let Some(hardware) = self.hardware.as_mut().filter(|_| act != "ForceOff") {
            hardware.boot();
        }
        self.is_read = false;
        let at = Instant::now() + self.power_delay;
        self.coming = match act {
            "On" => vec![(at, "On")],
            "ForceRestart" => vec![(at, "Off"), (at + self.power_delay, "On")],
            _ => vec![(at, "Off")],
        };
    }
}

/// A running fake, ended on drop.
#[derive(Debug)]
pub(crate) struct FakeBmc {
    state: Arc<Mutex<State>>,
    pub(crate) target: BmcTarget,
    pub(crate) certificate: Digest,
    accepts: tokio::task::JoinHandle<()>,
}

impl Drop for FakeBmc {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

impl FakeBmc {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mutex::new(State {
            fault: Fault::None,
            password: "secret".into(),
            power: "Off",
            coming: Vec::new(),
            is_read: false,
            power_delay: Duration::from_millis(60),
            enabled: "Disabled".into(),
            target: "None".into(),
            always_continuous: false,
            wants_etag: false,
            override_only_off: false,
            cannot_restart: false,
            has_accounts: true,
            locks_after: usize::MAX,
            retry_after: "7",
            hides_power: false,
            refusal: None,
            hardware: None,
            resets: Vec::new(),
            calls: 0,
            logins_refused: 0,
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (acceptor, certificate) = tls();
        let shared = Arc::clone(&state);
        let accepts = tokio::spawn(accept(listener, acceptor, move |request| {
            answer(Arc::clone(&shared), request)
        }));
        let password = Secret::new("secret");
        let address = "127.0.0.1".parse().unwrap();
        let target = BmcTarget {
            address,
            port,
            user: "admin".into(),
            password,
            certificate: None,
            system: None,
            also: None,
            machine: None,
            bmc_networks: vec!["127.0.0.0/8".parse().unwrap()],
        };
        Self {
            state,
            target,
            certificate,
            accepts,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn misbehave(&self, fault: Fault) {
        self.state().fault = fault;
    }
}

pub(super) fn tls() -> (TlsAcceptor, Digest) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["bmc".to_owned()]).unwrap();
    let der = cert.der().clone();
    let certificate = Digest::of(&der);
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![der], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), certificate)
}

/// Serves each connection with these answers.
pub(super) async fn accept<A, F>(listener: TcpListener, acceptor: TlsAcceptor, answer: A)
where
    A: Fn(Request<Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, answer) = (acceptor.clone(), answer.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let router = Router::new().fallback(move |request: Request<Body>| {
                let answer = answer.clone();
                async move { answer(request).await }
            });
            let service = TowerToHyperService::new(router);
            // A lost reply ends the connection by a panic in the handler. The client sees a closed
            // connection.
            _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(state: Arc<Mutex<State>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 16).await.unwrap();
    let (fault, retry_after, response) = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.calls += 1;
        let lock = format!("admin:{}", state.password);
        let key = parts
            .headers
            .get(header::AUTHORIZATION)
            .map(|value| value.as_bytes());
        if key != Some(basic(&lock).as_bytes()) || state.logins_refused >= state.locks_after {
            state.logins_refused += 1;
            return reply(
                StatusCode::UNAUTHORIZED,
                &json!({"error": {"message": "The account or password is wrong."}}),
            );
        }
        (
            state.fault,
            state.retry_after,
            serve(
                &mut state,
                &parts.method,
                parts.uri.path(),
                parts.headers.contains_key(header::IF_MATCH),
                &body,
            ),
        )
    };
    let account = parts.method == Method::PATCH && parts.uri.path().contains("/Accounts/");
    let misfit = match fault {
        Fault::None | Fault::Ignores | Fault::BadLinks => return response,
        Fault::Hang => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            return response;
        }
        Fault::LostReply if parts.method == Method::POST || account => {
            panic!("the connection ends here")
        }
        Fault::LostReply => return response,
        Fault::Busy => return busy(retry_after),
        Fault::Garbage => "<html>HTTPd error</html>".to_owned(),
        Fault::Deep => "[".repeat(100_000),
        Fault::Huge => format!("{{\"x\": \"{}\"}}", "x".repeat(2 << 20)),
        Fault::Redirects => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            response
                .headers_mut()
                .insert(header::LOCATION, "https://192.0.2.1/".parse().unwrap());
            return response;
        }
    };
    Response::new(Body::from(misfit))
}

pub(super) fn basic(text: &str) -> String {
    use std::fmt::Write as _;
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::from("Basic ");
    for chunk in text.as_bytes().chunks(3) {
        let bits = chunk
            .iter()
            .fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = if place > chunk.len() {
                '='
            } else {
                LETTERS[bits >> (18 - 6 * place) & 63].into()
            };
            write!(encoded, "{letter}").unwrap();
        }
    }
    encoded
}

fn reply(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response
}

fn busy(retry_after: &'static str) -> Response<Body> {
    let mut response = reply(
        StatusCode::SERVICE_UNAVAILABLE,
        &json!({"error": {"message": "Try later."}}),
    );
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, retry_after.parse().unwrap());
    response
}

fn serve(
    state: &mut State,
    method: &Method,
    path: &str,
    has_etag: bool,
    body: &Bytes,
) -> Response<Body> {
    let document: Value = serde_json::from_slice(body).unwrap_or_default();
    match (method.as_str(), path) {
        ("GET", "/redfish/v1/Systems") => {
            let to = if state.fault == Fault::BadLinks {
                "https://evil/../x"
            } else {
                "/redfish/v1/Systems/1"
            };
            reply(StatusCode::OK, &json!({"Members": [{"@odata.id": to}]}))
        }
        ("GET", "/redfish/v1/Systems/1") => {
            let mut response = reply(StatusCode::OK, &system(state));
            response
                .headers_mut()
                .insert(header::ETAG, "\"7\"".parse().unwrap());
            response
        }
        ("PATCH", "/redfish/v1/Systems/1") if state.wants_etag && !has_etag => {
            reply(StatusCode::PRECONDITION_REQUIRED, &Value::Null)
        }
        ("PATCH", "/redfish/v1/Systems/1") => patch(state, &document["Boot"]),
        ("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset") => {
            if state.fault != Fault::Ignores {
                state.reset(document["ResetType"].as_str().unwrap());
            }
            reply(StatusCode::OK, &json!({}))
        }
        ("GET", "/redfish/v1") => reply(StatusCode::OK, &root(state)),
        ("PATCH", "/redfish/v1/AccountService/Accounts/2") => {
            if state.fault != Fault::Ignores {
                state.password = document["Password"].as_str().unwrap().into();
            }
            reply(StatusCode::OK, &json!({}))
        }
        (method, path) if state.hardware.is_some() && Hardware::has(path) => {
            let hardware = state.hardware.as_mut().expect("it is there");
            let (status, document) = hardware.serve(method, path, &document);
            reply(StatusCode::from_u16(status).unwrap(), &document)
        }
        ("GET", path) => reply_to_reader(path),
        _ => reply(StatusCode::METHOD_NOT_ALLOWED, &Value::Null),
    }
}

fn patch(state: &mut State, boot: &Value) -> Response<Body> {
    let (enabled, target) = (
        boot["BootSourceOverrideEnabled"].as_str(),
        boot["BootSourceOverrideTarget"].as_str(),
    );
    if state.always_continuous && (enabled == Some("Disabled") || target == Some("None")) {
        return reply(
            StatusCode::BAD_REQUEST,
            &json!({"error": {"message": "Missing the BootSourceOverrideTarget element"}}),
        );
    }
    let ignores = state.fault == Fault::Ignores || state.override_only_off && state.power() == "On";
    if !ignores {
        state.enabled = if state.always_continuous {
            "Continuous"
        } else {
            enabled.unwrap_or_default()
        }
        .into();
        state.target = target.unwrap_or(&state.target).into();
    }
    match state.refusal {
        Some(words) => reply(
            StatusCode::BAD_REQUEST,
            &json!({"error": {"message": words}}),
        ),
        None => reply(StatusCode::OK, &json!({})),
    }
}

fn root(state: &State) -> Value {
    let mut root = state
        .hardware
        .as_ref()
        .map_or_else(|| json!({}), Hardware::root);
    root["Systems"] = json!({"@odata.id": "/redfish/v1/Systems"});
    if state.has_accounts {
        root["AccountService"] = json!({"@odata.id": "/redfish/v1/AccountService"});
    }
    root
}

fn system(state: &mut State) -> Value {
    let acts: &[&str] = if state.cannot_restart {
        &["On", "ForceOff"]
    } else {
        &["On", "ForceOff", "ForceRestart"]
    };
    let power = state.power();
    json!({
        "PowerState": (!state.hides_power).then_some(power),
        "UUID": "4C4C4544-0043-4810-8052-B4C04F4E3132",
        "SerialNumber": "SN-\u{7}1 ",
        "Model": "Fake",
        "Bios": {"@odata.id": "/redfish/v1/Systems/1/Bios"},
        "BiosVersion": state.hardware.as_ref().map(|hardware| hardware.versions["BIOS"].clone()),
        "Boot": {"BootSourceOverrideEnabled": state.enabled, "BootSourceOverrideTarget": state.target},
        "Actions": {"#ComputerSystem.Reset": {"ResetType@Redfish.AllowableValues": acts}},
        "LogServices": {"@odata.id": "/redfish/v1/Systems/1/LogServices"},
        "Links": {"Chassis": [{"@odata.id": "/redfish/v1/Chassis/1"}]},
    })
}

fn reply_to_reader(path: &str) -> Response<Body> {
    let document = match path {
        "/redfish/v1/Systems/1/LogServices" => json!({"Members": [
            {"@odata.id": "/redfish/v1/Systems/1/LogServices/Audit"}, {"@odata.id": "/redfish/v1/Systems/1/LogServices/SEL"}]}),
        "/redfish/v1/Systems/1/LogServices/SEL" => {
            json!({"Entries": {"@odata.id": "/redfish/v1/Systems/1/LogServices/SEL/Entries"}})
        }
        "/redfish/v1/Systems/1/LogServices/SEL/Entries" => json!({"Members": [
            {"Id": "3", "Created": "2026-01-03T00:00:00Z", "Severity": "Critical", "Message": "PSU lost"},
            {"Id": "2", "Created": "2026-01-02T00:00:00+00:00", "Severity": "OK", "Message": "x".repeat(5000)},
            {"Id": "1", "Created": "2026-01-01T00:00:00Z", "Severity": "OK", "Message": "Power on"}]}),
        "/redfish/v1/Chassis/1/Thermal" => json!({
            "Temperatures": [{"Name": "Inlet", "ReadingCelsius": 24.5, "Status": {"Health": "OK"}}, {"Name": "Absent", "ReadingCelsius": null}],
            "Fans": [{"Name": "Fan 1", "Reading": 9000, "ReadingUnits": "RPM"},
                {"Name": "Fan 2", "Reading": 0, "ReadingUnits": "RPM", "Status": {"Health": "Critical"}}]}),
        "/redfish/v1/AccountService" => {
            json!({"Accounts": {"@odata.id": "/redfish/v1/AccountService/Accounts"}})
        }
        "/redfish/v1/AccountService/Accounts" => json!({"Members": [
            {"@odata.id": "/redfish/v1/AccountService/Accounts/1"}, {"@odata.id": "/redfish/v1/AccountService/Accounts/2"}]}),
        "/redfish/v1/AccountService/Accounts/1" => json!({"Id": "1", "UserName": ""}),
        "/redfish/v1/AccountService/Accounts/2" => json!({"Id": "2", "UserName": "admin"}),
        "/redfish/v1/Chassis/1/Power" => json!({"PowerControl": [{"PowerConsumedWatts": 312}]}),
        _ => {
            return reply(
                StatusCode::NOT_FOUND,
                &json!({"error": {"message": "no such resource"}}),
            );
        }
    };
    reply(StatusCode::OK, &document)
}
