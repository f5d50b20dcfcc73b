//! A small stateful Redfish service with the behaviour of real BMCs, a way at a time. The sources
//! of the ways are in docs/bmcs.md.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::http::{Request, Response, header};
use muster_core::values::Secret;
use muster_core::wire::bmc::BmcTarget;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::fake::{accept, basic, tls};

const SYSTEMS: &str = "/redfish/v1/Systems";
pub(super) const SYSTEM: &str = "/redfish/v1/Systems/1";
pub(super) const SETTINGS: &str = "/redfish/v1/Systems/1/SD";
const FIRMWARE: &str = "/redfish/v1/UpdateService/FirmwareInventory";
/// The current tag in its strong form.
const TAG: &str = "\"00000007\"";

/// The behaviour of a BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As the standard says.
    Plain,
    /// Links end with a slash, and a path without the slash is redirected.
    Slashes,
    /// As `Slashes`, with links that have no slash.
    SlashesUnpublished,
    /// Redirects to the slash, and back.
    SlashLoop,
    /// Redirects to another path.
    Login,
    /// The override is refused on the system and set on the settings object.
    SettingsObject,
    /// The override is ignored on the system. The settings object shows no override.
    SettingsOther,
    /// A body without the mode changes the mode.
    ModeFalls,
    /// A body with the mode is refused.
    ModeReadOnly,
    /// Each change of the override changes the mode.
    ModeLost,
    /// The tag is shown weak and compared in its strong form.
    WeakTag,
    /// The tag is shown in the body alone.
    BodyTag,
    /// The tag of the header is quoted twice, the tag of the body is right.
    TwiceQuotedTag,
    /// Each change fails its precondition, actions included.
    NeverMatches,
    /// Some resources need a license.
    License,
    /// A refused login is answered with 403, and the service root with 200.
    ForbidsStrangers,
    /// The override is set, and the answer has this status.
    SetsAndAnswers(u16),
    /// The override is refused and not set.
    Refuses,
    /// The list of systems has two pages, linked by this name.
    Pages(&'static str),
    /// Each page of the list of systems links to itself.
    EndlessPages,
    /// The list of systems has no `Members`.
    NoMembers,
}

/// A request as received.
#[derive(Debug)]
struct Asked {
    method: String,
    path: String,
    query: Option<String>,
    if_match: Option<String>,
    body: Value,
}

/// An answer with its headers.
#[derive(Debug)]
struct Said {
    status: u16,
    body: Value,
    headers: Vec<(header::HeaderName, String)>,
}

impl Said {
    fn new(status: u16, body: Value) -> Self {
        Self {
            status,
            body,
            headers: Vec::new(),
        }
    }

    fn refuse(status: u16, words: &str) -> Self {
        let body = json!({"error": {"@Message.ExtendedInfo": [{"MessageId": "Oem.1.0.X", "Message": words}]}});
        Self::new(status, body)
    }

    fn with(mut self, name: header::HeaderName, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// The machine and the BMC.
#[derive(Debug)]
pub(super) struct State {
    way: Way,
    power: &'static str,
    enabled: String,
    target: String,
    mode: String,
    /// Method, path and status of each request.
    pub(super) log: Vec<String>,
    /// Resets, each with the override of the moment.
    pub(super) resets: Vec<String>,
}

/// A running service, ended on drop.
#[derive(Debug)]
pub(super) struct Service {
    state: Arc<Mutex<State>>,
    pub(super) target: BmcTarget,
    accepts: tokio::task::JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

impl Service {
    pub(super) async fn start(way: Way) -> Self {
        let state = Arc::new(Mutex::new(State {
            way,
            power: "Off",
            enabled: "Disabled".into(),
            target: "None".into(),
            mode: "UEFI".into(),
            log: Vec::new(),
            resets: Vec::new(),
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::clone(&state);
        let accepts = tokio::spawn(accept(listener, tls().0, move |request| {
            answer(Arc::clone(&shared), request)
        }));
        let target = BmcTarget {
            address: "127.0.0.1".parse().unwrap(),
            port,
            user: "admin".into(),
            password: Secret::new("secret"),
            certificate: None,
            system: None,
            also: None,
            machine: None,
            bmc_networks: vec!["127.0.0.0/8".parse().unwrap()],
        };
        Self {
            state,
            target,
            accepts,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns path and status of the requests with this method.
    pub(super) fn sent(&self, method: &str) -> Vec<String> {
        let state = self.state();
        let sent = state
            .log
            .iter()
            .filter_map(|line| line.strip_prefix(method));
        sent.map(|rest| rest.trim().to_owned()).collect()
    }
}

async fn answer(state: Arc<Mutex<State>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 16).await.unwrap();
    let text = |name: header::HeaderName| {
        let value = parts.headers.get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let asked = Asked {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(str::to_owned),
        if_match: text(header::IF_MATCH),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let is_known = text(header::AUTHORIZATION) == Some(basic("admin:secret"));
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let is_root = asked.path.trim_end_matches('/') == "/redfish/v1";
    let said = match (is_known || is_root, state.way) {
        (true, _) => state.serve(&asked),
        (false, Way::ForbidsStrangers) => Said::refuse(403, "no valid session"),
        (false, _) => Said::refuse(401, "no valid session"),
    };
    state
        .log
        .push(format!("{} {} {}", asked.method, asked.path, said.status));
    let mut response = Response::builder().status(said.status);
    for (name, value) in said.headers {
        response = response.header(name, value);
    }
    let body = match said.body {
        Value::Null => Body::empty(),
        body => Body::from(body.to_string()),
    };
    response.body(body).unwrap()
}

impl State {
    fn serve(&mut self, asked: &Asked) -> Said {
        let path = asked.path.trim_end_matches('/');
        let has_slash = asked.path.ends_with('/');
        let to = |location: String| Said::new(308, Value::Null).with(header::LOCATION, &location);
        match (self.way, has_slash) {
            (Way::Slashes | Way::SlashesUnpublished | Way::SlashLoop, false) => {
                return to(format!("{path}/"));
            }
            (Way::SlashLoop, true) => return to(path.to_owned()),
            (Way::Login, _) => return to("/login.html".into()),
            _ => {}
        }
        match asked.method.as_str() {
            "GET" => self.show(path, asked.query.as_deref()),
            "PATCH" => self.change(path, asked),
            "POST" if path.ends_with("/ComputerSystem.Reset") => self.reset(&asked.body),
            _ => Said::refuse(405, "not allowed"),
        }
    }

    /// Returns a link as the way publishes links.
    fn link(&self, path: &str) -> Value {
        let slash = if self.way == Way::Slashes { "/" } else { "" };
        json!({"@odata.id": format!("{path}{slash}")})
    }

    fn boot(&self) -> Value {
        json!({"BootSourceOverrideEnabled": self.enabled, "BootSourceOverrideTarget": self.target,
            "BootSourceOverrideMode": self.mode})
    }

    fn show(&self, path: &str, query: Option<&str>) -> Said {
        let licensed = path.ends_with("/Bios") || path.ends_with("/Secret");
        if self.way == Way::License && licensed {
            return Said::refuse(403, "This request needs a licence");
        }
        let member = |id: &str| json!({"Id": id, "Name": id, "Version": "1.0"});
        let links = |ids: [&str; 2]| ids.map(|id| self.link(&format!("{FIRMWARE}/{id}")));
        let shown = match path {
            "/redfish/v1" => json!({"Systems": self.link(SYSTEMS),
                "UpdateService": self.link("/redfish/v1/UpdateService")}),
            SYSTEMS => self.systems(query),
            SYSTEM => return self.system(),
            SETTINGS if self.way == Way::SettingsObject => {
                json!({"Id": "SD", "Boot": self.boot()})
            }
            SETTINGS => json!({"Id": "SD", "Boot": {"BootOrder": []}}),
            "/redfish/v1/UpdateService" => json!({"FirmwareInventory": self.link(FIRMWARE)}),
            FIRMWARE => json!({"Members": links(["Secret", "NIC1"])}),
            _ if path.starts_with(FIRMWARE) => member("NIC1"),
            _ if path.ends_with("/Bios") => json!({"Attributes": {"Sriov": "Enabled"}}),
            _ => return Said::refuse(404, "no such resource"),
        };
        Said::new(200, shown)
    }

    fn systems(&self, query: Option<&str>) -> Value {
        let other = json!([self.link("/redfish/v1/Systems/0")]);
        match (self.way, query) {
            (Way::Pages(name), None) => {
                json!({"Members": other, name: format!("{SYSTEMS}?$skip=1")})
            }
            (Way::EndlessPages, _) => {
                json!({"Members": other, "Members@odata.nextLink": SYSTEMS})
            }
            (Way::NoMembers, _) => json!({"Name": "Systems"}),
            _ => json!({"Members": [self.link(SYSTEM)]}),
        }
    }

    fn system(&self) -> Said {
        let acts = ["On", "ForceOff", "ForceRestart"];
        let reset = format!("{SYSTEM}/Actions/ComputerSystem.Reset");
        let target = self.link(&reset)["@odata.id"].clone();
        let mut system = json!({"PowerState": self.power, "Boot": self.boot(),
            "Bios": self.link(&format!("{SYSTEM}/Bios")),
            "Actions": {"#ComputerSystem.Reset": {"target": target, "ResetType@Redfish.AllowableValues": acts}}});
        if matches!(self.way, Way::SettingsObject | Way::SettingsOther) {
            system["@Redfish.Settings"] = json!({"SettingsObject": self.link(SETTINGS)});
        }
        if matches!(self.way, Way::BodyTag | Way::TwiceQuotedTag) {
            system["@odata.etag"] = TAG.into();
        }
        let said = Said::new(200, system);
        match self.way {
            Way::WeakTag => said.with(header::ETAG, &format!("W/{TAG}")),
            Way::TwiceQuotedTag => said.with(header::ETAG, &format!("\"{TAG}\"")),
            Way::BodyTag => said,
            _ => said.with(header::ETAG, TAG),
        }
    }

    fn change(&mut self, path: &str, asked: &Asked) -> Said {
        let boot = &asked.body["Boot"];
        let names_mode = !boot["BootSourceOverrideMode"].is_null();
        let matches = asked.if_match.as_deref() == Some(TAG);
        match (self.way, path) {
            (Way::SettingsObject, SETTINGS) => {}
            (_, SETTINGS) => return Said::refuse(405, "no override here"),
            (Way::SettingsObject, _) => return Said::refuse(400, "Boot is read-only"),
            (Way::SettingsOther, _) => return Said::new(200, json!({})),
            (Way::ModeReadOnly, _) if names_mode => {
                return Said::refuse(400, "BootSourceOverrideMode is not writable");
            }
            (Way::WeakTag, _) if !matches => return Said::refuse(412, "no match"),
            (Way::BodyTag | Way::TwiceQuotedTag, _) if asked.if_match.is_none() => {
                return Said::refuse(428, "If-Match is missing");
            }
            (Way::BodyTag | Way::TwiceQuotedTag, _) if !matches => {
                return Said::refuse(412, "no match");
            }
            (Way::NeverMatches, _) => return Said::refuse(412, "no match"),
            (Way::Refuses, _) => return Said::refuse(400, "depends on another attribute"),
            _ => {}
        }
        self.set(boot);
        match self.way {
            Way::SetsAndAnswers(status) => Said::refuse(status, "depends on another attribute"),
            _ => Said::new(204, Value::Null),
        }
    }

    fn set(&mut self, boot: &Value) {
        let text = |name: &str| boot[name].as_str().map(str::to_owned);
        let named = text("BootSourceOverrideMode");
        self.enabled = text("BootSourceOverrideEnabled").unwrap_or(self.enabled.clone());
        self.target = text("BootSourceOverrideTarget").unwrap_or(self.target.clone());
        self.mode = match self.way {
            Way::ModeFalls => named.unwrap_or_else(|| "Legacy".into()),
            Way::ModeLost => "Legacy".into(),
            _ => named.unwrap_or(self.mode.clone()),
        };
    }

    fn reset(&mut self, body: &Value) -> Said {
        if self.way == Way::NeverMatches {
            return Said::refuse(412, "no match");
        }
        let kind = body["ResetType"].as_str().unwrap();
        self.resets.push(format!(
            "{kind} {} {} {}",
            self.enabled, self.target, self.mode
        ));
        self.power = if kind == "ForceOff" { "Off" } else { "On" };
        Said::new(204, Value::Null)
    }
}
