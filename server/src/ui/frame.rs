//! What surrounds every page: who is signed in, where in the console it is, when it was true, and how to do the same without a browser.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum_extra::extract::CookieJar;
use http::request::Parts;
use jiff::Timestamp;

use super::assets::{URLS, Urls};
use super::caution::{self, Banner};
use super::format::{self, Moment};
use crate::app::App;
use crate::auth::Actor;
use crate::request_id;

/// The longest address that a page repeats in its own links.
const LONGEST_ADDRESS: usize = 2000;

/// What a page needs of its request.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    /// Path and query.
    pub here: String,
    pub request_id: String,
    /// Whether htmx asks, which takes a part where there is one.
    pub part: bool,
    theme: &'static str,
    pub now: Timestamp,
    caution: Option<Banner>,
    armed: Option<String>,
}

impl FromRequestParts<App> for Visit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let here = parts
            .uri
            .path_and_query()
            .map(|text| text.as_str())
            .filter(|text| text.len() <= LONGEST_ADDRESS);
        let jar = CookieJar::from_headers(&parts.headers);
        Ok(Self {
            here: here.unwrap_or_else(|| parts.uri.path()).to_owned(),
            request_id: request_id::of(&parts.headers).unwrap_or_default(),
            part: parts.headers.contains_key("hx-request"),
            theme: theme(jar.get("muster_theme").map(|cookie| cookie.value())),
            now: app.clock.now(),
            caution: caution::banner(app).await,
            armed: caution::armed(app).await,
        })
    }
}

fn theme(cookie: Option<&str>) -> &'static str {
    match cookie {
        Some("dark") => "dark",
        Some("light") => "light",
        _ => "auto",
    }
}

/// A part of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Fleet,
    Nodes,
    Racks,
    Claims,
    Operations,
    Events,
    Agents,
    Webhooks,
    /// Sign-in and errors.
    None,
}

const SECTIONS: [(Section, &str, &str); 8] = [
    (Section::Fleet, "/", "Fleet"),
    (Section::Nodes, "/nodes", "Nodes"),
    (Section::Racks, "/racks", "Racks"),
    (Section::Claims, "/claims", "Claims"),
    (Section::Operations, "/operations", "Operations"),
    (Section::Events, "/events", "Events"),
    (Section::Agents, "/agents", "Agents"),
    (Section::Webhooks, "/webhooks", "Webhooks"),
];

/// A link of the navigation.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub href: &'static str,
    pub label: &'static str,
    pub current: bool,
}

/// When a page fetches itself anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Live {
    /// When anything changes.
    Any,
    /// When a node that it shows changes.
    Shown,
    /// Never: a person reads or types.
    Never,
}

/// Everything around a page's own content.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub title: String,
    pub links: Vec<Link>,
    /// Empty where nobody is signed in.
    pub user: String,
    pub role: &'static str,
    pub as_of: Moment,
    pub clock: String,
    pub here: String,
    pub request_id: String,
    pub theme: &'static str,
    pub live: &'static str,
    /// The same by hand.
    pub cli: String,
    pub curl: String,
    /// Why nothing is powered or written.
    pub caution: Option<Banner>,
    /// That the local administrator may sign in.
    pub armed: Option<String>,
    pub urls: &'static Urls,
}

impl Frame {
    /// The frame of a page for somebody who is signed in.
    pub(super) fn new(
        visit: &Visit,
        actor: &Actor,
        section: Section,
        title: impl Into<String>,
    ) -> Self {
        let name = actor
            .name
            .split_once(':')
            .map_or(actor.name.as_str(), |(_, name)| name);
        Self {
            user: format::cut(name, 40),
            role: actor.role.as_str(),
            live: "any",
            caution: visit.caution.clone(),
            armed: visit.armed.clone(),
            ..Self::bare(
                &visit.here,
                &visit.request_id,
                visit.theme,
                visit.now,
                section,
                title.into(),
            )
        }
    }

    /// The frame of a page for whoever is there.
    pub(super) fn anonymous(visit: &Visit, title: impl Into<String>) -> Self {
        Self::bare(
            &visit.here,
            &visit.request_id,
            visit.theme,
            visit.now,
            Section::None,
            title.into(),
        )
    }

    fn bare(
        here: &str,
        request_id: &str,
        theme: &'static str,
        now: Timestamp,
        section: Section,
        title: String,
    ) -> Self {
        let link = |&(of, href, label): &(Section, &'static str, &'static str)| Link {
            href,
            label,
            current: of == section,
        };
        Self {
            title,
            links: SECTIONS.iter().map(link).collect(),
            user: String::new(),
            role: "",
            as_of: format::moment(now, now),
            clock: now.strftime("%T UTC").to_string(),
            here: here.to_owned(),
            request_id: request_id.to_owned(),
            theme,
            live: "never",
            cli: String::new(),
            curl: String::new(),
            caution: None,
            armed: None,
            urls: &URLS,
        }
    }

    /// With the commands that give the same: `muster` and its arguments, and the path below the server's address.
    pub(super) fn by_hand(self, cli: impl Into<String>, path: &str) -> Self {
        let address = format!("\"$MUSTER_URL{}\"", path.replace(['"', '$', '`', '\\'], ""));
        let curl = format!("curl -sS -H \"Authorization: Bearer $MUSTER_TOKEN\" {address}");
        Self {
            cli: cli.into(),
            curl,
            ..self
        }
    }

    /// Fetched anew when something of this kind changes.
    pub(super) fn live(self, live: Live) -> Self {
        let live = match live {
            Live::Any => "any",
            Live::Shown => "shown",
            Live::Never => "never",
        };
        Self { live, ..self }
    }
}
