//! Who is asking, and what they may do. A handler says what it needs in its arguments (`Viewer`, `Operator`, `Admin`), so that no handler
//! can forget to ask.

pub mod cross_site; // Refuses what another site makes a browser send
pub mod passwords; // Argon2id
pub mod sessions; // Browsers
pub mod tokens; // Machines

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, header};
use jiff::Timestamp;
use muster_api::tokens::Role;
use muster_core::ids::{NodeId, OperationId};
use serde_json::json;

use crate::app::App;
use crate::db::events::NewEvent;
use crate::db::operations::NewOperation;
use crate::error::Error;
use crate::http::request_id;

/// Whoever made a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// `user:alice` or `token:ci`, as events name them.
    pub name: String,
    pub role: Role,
    /// Who stands behind it: a person's tokens are the person.
    pub person: String,
    /// How many nodes they may release in an hour alone; any number when absent.
    pub releases_per_hour: Option<u32>,
    /// Of the request that is being answered.
    pub request_id: Option<String>,
}

impl Actor {
    /// Refuses an actor whose role is below `role`.
    ///
    /// # Errors
    /// [`Error::Forbidden`].
    pub fn require(&self, role: Role) -> Result<(), Error> {
        match self.role >= role {
            true => Ok(()),
            false => Err(Error::Forbidden(format!(
                "This needs the role {}; {} has {}.",
                role.as_str(),
                self.name,
                self.role.as_str()
            ))),
        }
    }

    /// That they did something, as the history has it.
    pub fn event(&self, at: Timestamp, kind: &'static str, node: Option<NodeId>, summary: String) -> NewEvent {
        NewEvent {
            at,
            actor: self.name.clone(),
            kind,
            node,
            object: None,
            operation: None,
            request_id: self.request_id.clone(),
            summary,
            detail: json!({}),
        }
    }

    /// Something long that they ask of a node.
    pub fn operation(&self, now: Timestamp, kind: &'static str, node: NodeId, message: String) -> NewOperation {
        NewOperation {
            id: OperationId::new(),
            kind,
            node: Some(node),
            claim: None,
            actor: self.name.clone(),
            request_id: self.request_id.clone(),
            message,
            now,
        }
    }
}

/// Somebody who may read.
#[derive(Clone, Debug)]
pub struct Viewer(pub Actor);

/// Somebody who may move nodes and declare what they run.
#[derive(Clone, Debug)]
pub struct Operator(pub Actor);

/// Somebody who may do everything.
#[derive(Clone, Debug)]
pub struct Admin(pub Actor);

impl FromRequestParts<App> for Viewer {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        actor(&parts.headers, app, Role::Viewer).await.map(Self)
    }
}

impl FromRequestParts<App> for Operator {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        actor(&parts.headers, app, Role::Operator).await.map(Self)
    }
}

impl FromRequestParts<App> for Admin {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        actor(&parts.headers, app, Role::Admin).await.map(Self)
    }
}

/// The actor of a request, if they have the role.
///
/// # Errors
/// [`Error::Unauthenticated`], [`Error::Forbidden`], or the database's.
pub async fn actor(headers: &HeaderMap, app: &App, role: Role) -> Result<Actor, Error> {
    let found = match headers.get(header::AUTHORIZATION) {
        Some(value) => {
            let token = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
            tokens::authenticate(app, token.ok_or(Error::Unauthenticated)?).await?
        }
        None => sessions::authenticate(app, headers).await?,
    };
    let actor = Actor { request_id: request_id::of(headers), ..found };
    actor.require(role)?;
    Ok(actor)
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
