//! Declared kinds: documents that people write and the engine reads. One contract holds for all of them, so one set of handlers serves them;
//! what differs (references, rules, secrets, status) is said by the kind in `http/kinds/`.

pub(in crate::http) mod describe;
pub(in crate::http) mod read;
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

/// Bodies of most kinds, in bytes.
pub const SMALL_BODY: usize = 1 << 20;
/// Bodies of kinds that list packages.
pub const LARGE_BODY: usize = 8 << 20;

/// The member of a spec that is sealed, and never stored or answered in the clear.
pub const SECRET: &str = "secret";

/// What a kind adds to the contract that all declared kinds share.
pub trait Declared: Kind {
    /// The largest body, in bytes.
    const BODY_LIMIT: usize = SMALL_BODY;
    /// Whether a spec may bring a secret, as the member [`SECRET`].
    const HAS_SECRET: bool = false;

    /// Every reference in the spec: where it stands, and what it must name.
    fn references(&self) -> Vec<Reference<'_>> {
        Vec::new()
    }

    /// What is wrong with the spec in itself.
    fn faults(&self) -> Vec<Fault> {
        Vec::new()
    }

    /// What is wrong with the spec beside what it refers to.
    ///
    /// # Errors
    /// When a target cannot be read any more.
    fn faults_beside(&self, _targets: &Targets) -> Result<Vec<Fault>, Error> {
        Ok(Vec::new())
    }

    /// Whether the spec may become this one.
    ///
    /// # Errors
    /// A conflict that says why not.
    fn allow_change(&self, _new: &Self) -> Result<(), Error> {
        Ok(())
    }

    /// The verb that becoming this one needs beside that of writing: where a limit on mistakes is loosened.
    fn loosened(&self, _new: &Self) -> Option<&'static str> {
        None
    }

    /// Whether this actor may have begun what the spec begins by itself. Without a former spec it is new.
    ///
    /// # Errors
    /// [`Error::Forbidden`], or when a target cannot be read any more.
    fn allow_actor(
        &self,
        _actor: &Actor,
        _before: Option<&Self>,
        _targets: &Targets,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// What its events say beside kind, name and generation: an object.
    fn noted(&self) -> Value {
        Value::Null
    }

    /// The part of the spec that is stored sealed and never answered: the member [`SECRET`]. Such a kind sets [`Self::HAS_SECRET`].
    fn secret(&self) -> Option<&Secret> {
        None
    }

    /// Whether it may stand, as it was just written, beside what it refers to and what refers to it. Without a former one it is new.
    fn allow_beside(
        _conn: &mut PgConnection,
        _before: Option<&ObjectRow>,
        _row: &ObjectRow,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// What else is written with it, after its secret and before its event.
    fn written(
        _app: &App,
        _conn: &mut PgConnection,
        _row: &ObjectRow,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// What the server observed or chose.
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
    /// RFC 6901, from the document's root.
    pub pointer: String,
    pub kind: &'static str,
    pub name: &'spec str,
}

impl<'spec> Reference<'spec> {
    /// A reference at `pointer` to the object of `kind` called `name`.
    pub fn new(pointer: impl Into<String>, kind: &'static str, name: &'spec str) -> Self {
        Self {
            pointer: pointer.into(),
            kind,
            name,
        }
    }
}

/// What the references of a spec name, by pointer.
#[derive(Clone, Debug, Default)]
pub struct Targets(pub BTreeMap<String, ObjectRow>);

impl Targets {
    /// The spec of a target.
    ///
    /// # Errors
    /// 409 with the target's name when its stored spec cannot be read.
    pub fn spec<T: DeserializeOwned>(&self, pointer: &str) -> Result<Option<T>, Error> {
        self.0.get(pointer).map(document::stored).transpose()
    }
}

/// Somebody who may write objects of the kind.
pub struct Writer<K>(pub Actor, std::marker::PhantomData<K>);

impl<K: Declared> FromRequestParts<App> for Writer<K> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        auth::authorise(parts, app)
            .await
            .map(|actor| Self(actor, std::marker::PhantomData))
    }
}

/// The routes of a kind, with their description.
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
