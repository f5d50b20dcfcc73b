//! The frame of every page: the signed-in user, the place in the console, the time of the data, and
//! commands for the same task without a browser.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum_extra::extract::CookieJar;
use http::request::Parts;
use jiff::Timestamp;

use super::assets::{URLS, Urls};
use super::caution::{self, Banner, UnarmedToken};
use super::format::{self, Moment};
use crate::app::App;
use crate::auth::Actor;
use crate::request_id;

/// Longest address repeated in the page's own links, in bytes.
const LONGEST_ADDRESS: usize = 2000;

/// The parts of a request needed by a page.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    /// Path and query.
    pub here: String,
    pub request_id: String,
    /// Whether htmx sent the request and accepts a fragment.
    pub part: bool,
    theme: &'static str,
    pub now: Timestamp,
    caution: Option<Banner>,
    armed: Option<String>,
    unarmed_token: Option<UnarmedToken>,
}

impl Visit {
    /// Returns the visit with another address: the answer to a form is a page with its own address.
    pub(super) fn at(&self, here: String) -> Self {
        Self {
            here,
            ..self.clone()
        }
    }
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
        // The caller, if the handler takes the caller before the visit.
        let sight = parts.extensions.get::<Actor>().map(Actor::sight);
        Ok(Self {
            here: here.unwrap_or_else(|| parts.uri.path()).to_owned(),
            request_id: request_id::of(&parts.headers).unwrap_or_default(),
            part: parts.headers.contains_key("hx-request"),
            theme: theme(jar.get("muster_theme").map(|cookie| cookie.value())),
            now: app.clock.now(),
            caution: caution::banner(app, sight.as_ref()).await,
            armed: caution::armed(app).await,
            unarmed_token: caution::find_unarmed_token(app).await,
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

/// A section of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Fleet,
    Nodes,
    Racks,
    Claims,
    Stacks,
    Rollouts,
    Operations,
    Events,
    Agents,
    Webhooks,
    /// Pages outside the navigation: sign-in and errors.
    None,
}

const SECTIONS: [(Section, &str, &str); 10] = [
    (Section::Fleet, "/", "Fleet"),
    (Section::Nodes, "/nodes", "Nodes"),
    (Section::Racks, "/racks", "Racks"),
    (Section::Claims, "/claims", "Claims"),
    (Section::Stacks, "/stacks", "Stacks"),
    (Section::Rollouts, "/rollouts", "Rollouts"),
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

/// When a page reloads by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Live {
    /// After any change.
    Any,
    /// After a change of a node shown on the page.
    Shown,
    /// Never, because a person reads or types on the page.
    Never,
}

/// All parts of a page around the page's own content.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub title: String,
    pub links: Vec<Link>,
    /// Name of the signed-in user. Empty without a session.
    pub user: String,
    pub role: &'static str,
    pub as_of: Moment,
    pub clock: String,
    pub here: String,
    pub request_id: String,
    pub theme: &'static str,
    pub live: &'static str,
    /// The equivalent `muster` command.
    pub cli: String,
    pub curl: String,
    /// The caution banner: why power and disk writes are blocked.
    pub caution: Option<Banner>,
    /// Warning about the armed local administrator.
    pub armed: Option<String>,
    /// An administrator's token without a person, used or refused beside an identity provider.
    /// Shown to readers of tokens.
    pub unarmed_token: Option<UnarmedToken>,
    pub urls: &'static Urls,
}

impl Frame {
    /// Returns the frame of a page for a signed-in user.
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
            unarmed_token: visit
                .unarmed_token
                .clone()
                .filter(|_| actor.holding.everywhere("token.read")),
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

    /// Returns the frame of a page for any visitor, without a session.
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
            unarmed_token: None,
            urls: &URLS,
        }
    }

    /// Adds the equivalent commands: `muster` with its arguments, and `curl` with the path below
    /// the server's address.
    pub(super) fn by_hand(self, cli: impl Into<String>, path: &str) -> Self {
        let address = format!("\"$MUSTER_URL{}\"", path.replace(['"', '$', '`', '\\'], ""));
        let curl = format!("curl -sS -H \"Authorization: Bearer $MUSTER_TOKEN\" {address}");
        Self {
            cli: cli.into(),
            curl,
            ..self
        }
    }

    /// Sets the changes after which the page reloads.
    pub(super) fn live(self, live: Live) -> Self {
        let live = match live {
            Live::Any => "any",
            Live::Shown => "shown",
            Live::Never => "never",
        };
        Self { live, ..self }
    }
}
