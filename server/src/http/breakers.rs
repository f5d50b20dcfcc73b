//! The circuit breaker of automatic recovery: a list of the breakers, and the reset by a person.

use axum::extract::State;
use jiff::Timestamp;
use muster_api::problem::Problem;
use muster_api::recoveries::Breaker;
use serde_json::json;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::{Path, Query};
use super::paging::{self, CountedPage, ListQuery};
use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::breakers::BreakerRow;
use crate::db::filter;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::writing;
use crate::intents::writing::Effect;

/// The routes of breakers.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_breakers))
        .routes(routes!(reset_breaker))
}

/// Lists breakers, open ones and closed ones.
///
/// Sorted newest first unless `created_at` is requested. Filter fields: `signature` and `state`,
/// for example `state=open`.
#[utoipa::path(get, path = "/v1/breakers",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "fleet" }))),
    tag = "nodes", params(ListQuery), responses(
    (status = 200, description = "One page of breakers", body = CountedPage<Breaker>),
))]
async fn list_breakers(
    State(app): State<App>,
    _: Actor,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let now = app.clock.now();
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        Ok(db::breakers::list_by_id(conn, ids)
            .await?
            .into_iter()
            .map(|row| object(row, now))
            .collect())
    };
    let mut conn = app.pool.acquire().await?;
    paging::build_page(
        &mut conn,
        &filter::breakers_at(now),
        &query,
        Vec::new(),
        &Sight::new(),
        load,
        |breaker: &Breaker| (breaker.id, ""),
    )
    .await
}

/// Closes a breaker after a person has looked at the cause.
///
/// Automatic recovery resumes for nodes with the breaker's failure signature. Earlier failures no
/// longer count. Nodes held back by the breaker keep their state until a recovery is requested.
#[utoipa::path(post, path = "/v1/breakers/{breaker}/reset",
    extensions(("x-muster-access" = json!({ "verb": "breaker.reset", "place": "fleet" })),
        ("x-muster-links" = json!({ "list": ["list_breakers", {}] }))),
    tag = "nodes", params(("breaker", description = "Id"),
    ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "The breaker, now closed", body = Breaker),
    (status = 404, description = "No such breaker", body = Problem, content_type = "application/problem+json"),
))]
async fn reset_breaker(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    let missing = || Error::NotFound(format!("breaker {key:?}"));
    let id: Uuid = key.parse().map_err(|_| missing())?;
    let now = app.clock.now();
    writing::once(&app, &actor, idempotency, &(), async |conn| {
        let row = db::breakers::lock(conn, id).await?.ok_or_else(missing)?;
        if db::breakers::close(conn, id, &actor.name, now).await? {
            let summary = format!("{} closed the breaker of {}", actor.name, row.signature);
            let event = actor.event(now, "breaker.reset", None, summary);
            db::events::insert(
                conn,
                event.with(json!({ "breaker": id, "signature": row.signature })),
            )
            .await?;
        }
        let row = db::breakers::lock(conn, id).await?.ok_or_else(missing)?;
        Answer::ok(&object(row, now)).map(Effect::Done)
    })
    .await
}

fn object(row: BreakerRow, now: Timestamp) -> Breaker {
    let closes_at = row.closes_at.map(|at| at.to_jiff());
    let over = row.closed_at.is_some() || closes_at.is_some_and(|at| at <= now);
    Breaker {
        id: row.id,
        signature: row.signature,
        because: row.because,
        state: if over { "closed" } else { "open" }.to_owned(),
        opened_at: row.opened_at,
        closes_at,
        closed_at: row.closed_at.map(|at| at.to_jiff()),
        closed_by: row.closed_by,
    }
}
