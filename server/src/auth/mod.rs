//! Authentication and access control. A handler takes the caller as an argument, an `Actor`, so a
//! handler cannot forget the check. The need of a route is stated beside its handler. A route
//! without a need is rejected for every caller.

pub mod access; // Access checks: verbs and scopes
pub(crate) mod askers; // Present rights of the author of a stored request
pub mod break_glass; // The local administrator, off until armed
pub mod cross_site; // Rejects requests from other sites
pub(crate) mod delays; // Delays of logins after failures
pub(crate) mod kept; // Uses of verbs kept from the version before
pub mod known; // Whether a request's credential is accepted
pub mod login; // Logins by an identity provider
pub mod logout; // Logouts reported by an identity provider
pub mod needs; // Needs of routes
pub mod passwords; // Argon2id
pub(crate) mod raw; // Raw text of machines: consoles, logs, evidence
pub mod seals; // Seals over tokens, people, role bindings and sessions
pub mod second_door; // Administrators' tokens without a person, beside a provider
pub mod sessions; // Sessions of browsers
pub mod tokens; // Tokens of machines
pub(crate) mod vouching; // The time after a sign-in by a provider

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use http::{HeaderMap, header};
use jiff::Timestamp;
use muster_api::tokens::Role;
use muster_core::ids::{NodeId, OperationId, TokenId};

use self::access::Holding;
use self::known::Known;
use self::needs::Need;
use crate::app::App;
use crate::db::events::NewEvent;
use crate::db::operations::NewOperation;
use crate::error::Error;
use crate::request_id;

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// `user:alice` or `token:ci`, as written in events.
    pub name: String,
    /// The caller's own role, for display. Access is decided by `holding`.
    pub role: Role,
    pub holding: Holding,
    /// The person behind the caller. A person's token acts as the person.
    pub person: String,
    /// The token of the request, if a token was sent.
    pub token: Option<TokenId>,
    /// Most nodes the caller may release in an hour without a second person. `None` means
    /// unlimited.
    pub releases_per_hour: Option<u32>,
    /// Id of the request under way.
    pub request_id: Option<String>,
    /// The requester whose request this actor approved: records name the requester, rights are the
    /// approver's.
    pub on_behalf_of: Option<String>,
}

impl Actor {
    /// Returns the actor for Muster's automatic work. The actor holds no grants, so every access
    /// check fails.
    pub fn muster() -> Self {
        Self {
            name: "muster".into(),
            role: Role::Guest,
            holding: Holding::default(),
            person: "muster".into(),
            token: None,
            releases_per_hour: None,
            request_id: None,
            on_behalf_of: None,
        }
    }

    /// The approver, acting for the person who requested.
    pub fn acting_for(&self, requester: &str) -> Self {
        Self {
            on_behalf_of: Some(requester.to_owned()),
            ..self.clone()
        }
    }

    /// The name that operations, claims and events record.
    pub fn author(&self) -> &str {
        self.on_behalf_of.as_deref().unwrap_or(&self.name)
    }

    /// Returns whether the caller is a signed-in person, rather than a token.
    pub fn is_person(&self) -> bool {
        self.name == self.person
    }

    /// Returns a new event of the history with the caller as actor.
    pub fn event(
        &self,
        at: Timestamp,
        kind: &'static str,
        node: Option<NodeId>,
        summary: String,
    ) -> NewEvent {
        NewEvent {
            node,
            ..NewEvent::new(at, self.author(), kind, summary).asked(self.request_id.clone())
        }
    }

    /// Returns a new operation: long work on a node, requested by the caller.
    pub fn operation(
        &self,
        now: Timestamp,
        kind: &'static str,
        node: NodeId,
        message: String,
    ) -> NewOperation {
        NewOperation {
            id: OperationId::new(),
            kind,
            node: Some(node),
            claim: None,
            actor: self.author().to_owned(),
            request_id: self.request_id.clone(),
            message,
            now,
        }
    }
}

impl FromRequestParts<App> for Actor {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let actor = authorise(parts, app).await?;
        // The frame of a page asks for the rights of the reader.
        parts.extensions.insert(actor.clone());
        Ok(actor)
    }
}

/// Returns the caller of a request, after checking the needs of the route.
///
/// # Errors
///
/// [`Error::Unauthenticated`], [`Error::Forbidden`], [`Error::NotFound`] for an object hidden from
/// the caller, or the database's.
pub async fn authorise(parts: &mut Parts, app: &App) -> Result<Actor, Error> {
    let found = authenticate(&parts.headers, app).await;
    // A person with an outdated login has shown the right secret.
    if matches!(found, Ok(_) | Err(Error::NotAdmitted { .. }))
        && let Some(known) = parts.extensions.get::<Known>()
    {
        known.note();
    }
    let actor = found?;
    let raw = RawPathParams::from_request_parts(parts, app).await;
    let missing = |_| Error::NotFound("What the path names".into());
    let parameters: Vec<(String, String)> = raw
        .map_err(missing)?
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let need = parts.extensions.get::<Need>();
    let need = need.ok_or_else(|| Error::Forbidden("This route admits no role.".into()))?;
    actor.need_for(app, need, &parameters).await?;
    raw::note_route(app, &actor, need, &parameters).await?;
    note_objects(&parameters);
    Ok(actor)
}

/// Adds the node and the operation of the path to the request's log lines.
fn note_objects(parameters: &[(String, String)]) {
    for (name, value) in parameters {
        match name.as_str() {
            "node" => request_id::note(&[("node", &value.as_str())]),
            "operation" => request_id::note(&[("operation", &value.as_str())]),
            _ => {}
        }
    }
}

/// Returns the caller of a request, without an access check.
///
/// # Errors
///
/// [`Error::Unauthenticated`], or the database's.
pub async fn authenticate(headers: &HeaderMap, app: &App) -> Result<Actor, Error> {
    let found = match headers.get(header::AUTHORIZATION) {
        Some(value) => {
            let token = value
                .to_str()
                .ok()
                .and_then(|text| text.strip_prefix("Bearer "));
            tokens::authenticate(app, token.ok_or(Error::Unauthenticated)?).await?
        }
        None => sessions::authenticate(app, headers).await?,
    };
    request_id::note(&[("actor", &found.name.as_str())]);
    Ok(Actor {
        request_id: request_id::of(headers),
        on_behalf_of: None,
        ..found
    })
}

/// Returns the caller behind a session cookie, or `None`. For pages with a different form for
/// visitors without a session.
///
/// # Errors
///
/// When the database fails.
pub async fn signed_in(app: &App, headers: &HeaderMap) -> Result<Option<Actor>, Error> {
    match sessions::authenticate(app, headers).await {
        Ok(actor) => Ok(Some(actor)),
        Err(Error::Unauthenticated | Error::NotAdmitted { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}
