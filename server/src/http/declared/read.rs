//! Reading declared objects.

use axum::extract::State;
use muster_api::object::{Object, Page};
use serde_json::Value;
use sqlx::PgConnection;

use super::Declared;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter::{self, BY_NAME, Count, Order, Sort};
use crate::db::objects::ObjectRow;
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::extract::{Path, Query};
use crate::http::paging::{ListQuery, PARTS, Position};

pub(super) async fn list<K: Declared>(
    State(app): State<App>,
    _: Actor,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let (Sort { order, .. }, count) = (query.sort(&BY_NAME)?, query.count()?);
    let filter = query.filter.as_deref().unwrap_or_default();
    let labels = filter::labels(&filter::parse(filter)?)?;
    let bound = format!("{order:?} {filter}");
    let position = Position::of(K::COLLECTION, query.limit, query.page_token.as_deref(), &bound)?;
    let mut conn = app.pool.acquire().await?;
    let after = position.after.as_str();
    let mut rows = match order {
        Order::Up => db::objects::list(&mut conn, K::KIND, &labels, after, position.rows()).await?,
        Order::Down => db::objects::list_down(&mut conn, K::KIND, &labels, after, position.rows()).await?,
    };
    let next_page_token = position.cut(&mut rows, |row| row.name.clone());
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        items.push(object::<K>(&app, &mut conn, row).await?);
    }
    let mut answer = Answer::ok(&Page { items, next_page_token })?;
    if count != Count::None {
        // There are few of any declared kind: an estimate is no cheaper.
        answer.body["count"] = db::objects::count(&mut conn, K::KIND, &labels).await?.into();
    }
    query.cut(&mut answer.body, PARTS)?;
    Ok(answer)
}

pub(super) async fn get_one<K: Declared>(
    State(app): State<App>,
    _: Actor,
    Path(name): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let row = db::objects::find(&mut conn, K::KIND, &name).await?.ok_or_else(|| missing::<K>(&name))?;
    answer::<K>(&app, &mut conn, row).await
}

/// 404 for an object of the kind.
pub(super) fn missing<K: Declared>(name: &str) -> Error {
    Error::NotFound(format!("{} {name:?}", K::KIND))
}

/// An object with its ETag.
pub(in crate::http) async fn answer<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    row: ObjectRow,
) -> Result<Answer, Error> {
    let object = object::<K>(app, conn, row).await?;
    Ok(Answer::ok(&object)?.etag(object.generation))
}

/// The row as it is answered: the spec stays the document that the client wrote.
async fn object<K: Declared>(
    app: &App,
    conn: &mut PgConnection,
    row: ObjectRow,
) -> Result<Object<Value, K::Status>, Error> {
    let status = K::status(app, conn, &row).await?;
    Ok(Object {
        id: row.id.0,
        link: format!("/v1/{}/{}", K::COLLECTION, row.name),
        name: row.name.parse().map_err(Error::internal)?,
        labels: row.labels.0,
        annotations: row.annotations.0,
        spec: row.spec,
        status,
        generation: row.generation,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}
