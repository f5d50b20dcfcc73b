//! Reading declared objects.

use axum::extract::State;
use muster_api::object::Object;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Declared, SECRET};
use crate::access::{self, Sight};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter;
use crate::db::objects::ObjectRow;
use crate::document;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::http::paging::{self, ListQuery};
use crate::intents::answer::Answer;

pub(super) async fn list<K: Declared>(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    // A kind without a place in the fleet is visible to every actor with a read permission.
    let sight = if access::has_place(K::KIND) {
        actor.sight()
    } else {
        Sight::new()
    };
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        let rows = db::objects::list_by_id(conn, ids).await?;
        let mut items = Vec::with_capacity(rows.len());
        for row in rows {
            items.push(object::<K>(&app, conn, row).await?);
        }
        Ok(items)
    };
    let mut conn = app.pool.acquire().await?;
    let list = filter::objects_of(K::KIND);
    paging::build_page(&mut conn, &list, &query, Vec::new(), &sight, load, |one| {
        (one.id, one.name.as_str())
    })
    .await
}

pub(super) async fn get_one<K: Declared>(
    State(app): State<App>,
    _: Actor,
    Path(name): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let row = db::objects::find(&mut conn, K::KIND, &name)
        .await?
        .ok_or_else(|| not_found::<K>(&name))?;
    answer::<K>(&app, &mut conn, row).await
}

/// The 404 of a missing object of the kind.
pub(super) fn not_found<K: Declared>(name: &str) -> Error {
    Error::NotFound(format!("{} {name:?}", K::KIND))
}

/// Answers with an object and its ETag.
pub(in crate::http) async fn answer<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    row: ObjectRow,
) -> Result<Answer, Error> {
    let object = object::<K>(app, conn, row).await?;
    Ok(Answer::ok(&object)?.etag(object.generation))
}

/// Renders a row. The spec stays the document of the client. The status of an unreadable spec is
/// empty.
async fn object<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    row: ObjectRow,
) -> Result<Object<Value, K::Status>, Error> {
    let spec_faults = document::spec_faults::<K>(&row.spec);
    let readable = spec_faults.is_empty() || document::stored::<K>(&row).is_ok();
    let status = match readable {
        true => K::status(app, conn, &row).await?,
        false => K::Status::default(),
    };
    Ok(Object {
        id: row.id.0,
        link: format!("/v1/{}/{}", K::COLLECTION, row.name),
        name: row.name.parse().map_err(Error::internal)?,
        labels: row.labels.0,
        annotations: row.annotations.0,
        spec: shown::<K>(row.spec),
        spec_faults,
        status,
        generation: row.generation,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}

/// Removes the secret from a stored spec. An earlier version of Muster stored an array with the
/// secret inside; such a spec is returned as null.
pub(in crate::http) fn shown<K: Declared>(mut spec: Value) -> Value {
    if !K::HAS_SECRET {
        return spec;
    }
    match spec.as_object_mut() {
        None => return Value::Null,
        Some(members) => {
            if members.get(SECRET).is_some_and(|secret| !secret.is_null()) {
                members.remove(SECRET);
            }
        }
    }
    spec
}
