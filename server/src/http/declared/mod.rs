//! Declared kinds: documents written by people and read by the engine. All kinds share one
//! contract, so one set of handlers serves all. References, rules, secrets and status of each kind
//! are in `http/kinds/`.

pub(in crate::http) mod describe;
pub(in crate::http) mod read;
pub(in crate::http) mod referrers;
pub(in crate::http) mod write;

use std::collections::BTreeMap;
use std::future::{Future, ready};

use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::routing::get;
use http::request::Parts;
use muster_api::kind::Kind;
use muster_core::values::Secret;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::auth::{self, Actor};
use crate::db::objects::ObjectRow;
use crate::document;
use crate::error::{Error, Fault};
use crate::intents::references::Table;

/// The largest body of most kinds, in bytes.
pub const SMALL_BODY: usize = 1 << 20;
/// The largest body of kinds with a list of packages, in bytes.
pub const LARGE_BODY: usize = 8 << 20;

/// The member of a spec with a secret. The member is sealed, and never stored or returned in the
/// clear.
pub const SECRET: &str = "secret";

/// The additions of a kind to the contract of all declared kinds.
pub trait Declared: Kind {
    /// The largest body, in bytes.
    const BODY_LIMIT: usize = SMALL_BODY;
    /// Whether a spec may have a secret, in the member [`SECRET`].
    const HAS_SECRET: bool = false;
    /// Whether a change adds a revision to the pools depending on the object.
    const IN_REVISIONS: bool = false;
    /// The additional permissions needed to replace an unreadable spec.
    const LOOSENING: &'static [&'static str] = &[];
    /// All possible references of a spec. A reference missing here is refused.
    const REFERENCES: Table = &[];

    /// Lists the references of the spec, each with its pointer and the required kind.
    fn references(&self) -> Vec<Reference<'_>> {
        Vec::new()
    }

    /// Checks the spec alone.
    fn faults(&self) -> Vec<Fault> {
        Vec::new()
    }

    /// Checks the spec together with the objects it refers to.
    ///
    /// # Errors
    /// When the stored spec of a target is unreadable.
    fn faults_beside(&self, _targets: &Targets) -> Result<Vec<Fault>, Error> {
        Ok(Vec::new())
    }

    /// Checks whether the spec may change to `new`.
    ///
    /// # Errors
    /// A conflict with the reason.
    fn allow_change(&self, _new: &Self) -> Result<(), Error> {
        Ok(())
    }

    /// The additional permissions for a change to `new`, where the change loosens a safety limit.
    fn loosened(&self, _new: &Self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The additional permissions for a new object with the spec, needed at the new object's place.
    fn opened(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Checks whether the actor could start the work implied by the spec, for example the claims of
    /// a pool. `before` is `None` for a new object.
    ///
    /// # Errors
    /// [`Error::Forbidden`]; when the stored spec of a target is unreadable.
    fn allow_actor(
        &self,
        _actor: &Actor,
        _before: Option<&Self>,
        _targets: &Targets,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// The details of the kind's events beside kind, name and generation: a JSON object.
    fn noted(&self) -> Value {
        Value::Null
    }

    /// The secret of the spec, stored sealed and never returned: the member [`SECRET`]. A kind with
    /// a secret sets [`Self::HAS_SECRET`].
    fn secret(&self) -> Option<&Secret> {
        None
    }

    /// Checks a newly written object together with its references in both directions. `before` is
    /// `None` for a new object.
    fn allow_beside(
        _conn: &mut PgConnection,
        _before: Option<&ObjectRow>,
        _row: &ObjectRow,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// Checks a newly written object together with the nodes that depend on it. `before` is `None`
    /// for a new object.
    fn allow_dependents(
        _conn: &mut PgConnection,
        _actor: &Actor,
        _before: Option<&ObjectRow>,
        _row: &ObjectRow,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// Writes further rows of the kind, after the secret and before the event.
    fn written(
        _app: &App,
        _conn: &mut PgConnection,
        _row: &ObjectRow,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// Builds the status: the observations and choices of the server.
    fn status(
        _app: &App,
        _conn: &mut PgConnection,
        _row: &ObjectRow,
    ) -> impl Future<Output = Result<Self::Status, Error>> + Send {
        ready(Ok(Self::Status::default()))
    }
}

/// A reference by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference<'spec> {
    /// JSON pointer (RFC 6901), from the root of the document.
    pub pointer: String,
    pub kind: &'static str,
    pub name: &'spec str,
}

impl<'spec> Reference<'spec> {
    /// Builds a reference at `pointer` to the object of `kind` called `name`.
    pub fn new(pointer: impl Into<String>, kind: &'static str, name: &'spec str) -> Self {
        Self {
            pointer: pointer.into(),
            kind,
            name,
        }
    }
}

/// The objects named by the references of a spec, by pointer.
#[derive(Clone, Debug, Default)]
pub struct Targets(pub BTreeMap<String, ObjectRow>);

impl Targets {
    /// Reads the spec of a target.
    ///
    /// # Errors
    /// 409 with the target's name when the stored spec is unreadable.
    pub fn spec<T: DeserializeOwned>(&self, pointer: &str) -> Result<Option<T>, Error> {
        self.0.get(pointer).map(document::stored).transpose()
    }
}

/// An actor with the permission to write objects of the kind.
pub struct Writer<K>(pub Actor, std::marker::PhantomData<K>);

impl<K: Declared> FromRequestParts<App> for Writer<K> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        auth::authorise(parts, app)
            .await
            .map(|actor| Self(actor, std::marker::PhantomData))
    }
}

/// The routes of a kind, with their OpenAPI description.
pub fn routes<K: Declared>() -> OpenApiRouter<App> {
    let (schemas, [list_paths, one_paths]) = describe::kind::<K>();
    let one = get(read::get_one::<K>)
        .put(write::put::<K>)
        .patch(write::patch::<K>)
        .delete(write::delete::<K>)
        .layer(DefaultBodyLimit::max(K::BODY_LIMIT));
    OpenApiRouter::default()
        .routes((schemas, list_paths, get(read::list::<K>)))
        .routes((Vec::new(), one_paths, one))
}
