//! Who is asking, and what they may do. A handler takes whoever asks as an argument, an `Actor`, so that none can forget to
//! ask; what its route needs is said once, in `routes.rs`, and a route that is not there is nobody's.

pub mod access; // What an actor may do, and where
pub mod break_glass; // The local administrator, off until armed
pub mod cross_site; // Refuses what another site makes a browser send
pub mod known; // Whether a request's credential is accepted
pub mod login; // Logins by an identity provider
pub mod passwords; // Argon2id
pub mod routes; // What each route needs
pub mod sessions; // Browsers
pub mod tokens; // Machines

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use http::request::Parts;
use http::{HeaderMap, header};
use jiff::Timestamp;
use muster_api::tokens::Role;
use muster_core::ids::{NodeId, OperationId, TokenId};

use self::access::Holding;
use self::known::Known;
use crate::app::App;
use crate::db::events::NewEvent;
use crate::db::operations::NewOperation;
use crate::error::Error;
use crate::request_id;

/// Whoever made a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// `user:alice` or `token:ci`, as events name them.
    pub name: String,
    /// Their own role, as pages show it; what they may is `holding`.
    pub role: Role,
    pub holding: Holding,
    /// Who stands behind it: a person's tokens are the person.
    pub person: String,
    /// The token that they showed, if it was one.
    pub token: Option<TokenId>,
    /// How many nodes they may release in an hour alone; any number when absent.
    pub releases_per_hour: Option<u32>,
    /// The request that is being answered.
    pub request_id: Option<String>,
    /// The requester whose request this actor approved: records name the requester, rights are the
    /// approver's.
    pub on_behalf_of: Option<String>,
}

impl Actor {
    /// Muster itself, for what it does unasked. It holds nothing: no check lets it pass.
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

    /// Whether it is a person who signed in, and no token of theirs.
    pub fn is_person(&self) -> bool {
        self.name == self.person
    }

    /// That they did something, as the history has it.
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

    /// Something long that they ask of a node.
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
        authorise(parts, app).await
    }
}

/// The actor of a request, if they may do what its route needs.
///
/// # Errors
/// [`Error::Unauthenticated`], [`Error::Forbidden`], [`Error::NotFound`] for what they may not know of, or the database's.
pub async fn authorise(parts: &mut Parts, app: &App) -> Result<Actor, Error> {
    let actor = authenticate(&parts.headers, app).await?;
    if let Some(known) = parts.extensions.get::<Known>() {
        known.note();
    }
    let route = parts
        .extensions
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned())
        .unwrap_or_default();
    let raw = RawPathParams::from_request_parts(parts, app).await;
    let missing = |_| Error::NotFound("What the path names".into());
    let parameters: Vec<(String, String)> = raw
        .map_err(missing)?
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let needed = routes::need(&parts.method, &route, &parameters);
    let (verb, whereabouts) =
        needed.ok_or_else(|| Error::Forbidden("This route is open to nobody.".into()))?;
    actor.need_for(app, &verb, whereabouts, &parameters).await?;
    Ok(actor)
}

/// The actor of a request, whatever they may do.
///
/// # Errors
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
    Ok(Actor {
        request_id: request_id::of(headers),
        on_behalf_of: None,
        ..found
    })
}

/// The actor behind a session cookie, for pages that look different when nobody is signed in.
///
/// # Errors
/// When the database fails.
pub async fn signed_in(app: &App, headers: &HeaderMap) -> Result<Option<Actor>, Error> {
    match sessions::authenticate(app, headers).await {
        Ok(actor) => Ok(Some(actor)),
        Err(Error::Unauthenticated) => Ok(None),
        Err(other) => Err(other),
    }
}
