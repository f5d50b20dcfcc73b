//! Pairs of a pool's nodes, measured against each other. A request writes the run and its nodes,
//! and the engine carries the run out.

mod begin; // The record of a requested run
mod rules; // Valid requests, and the choice of nodes
pub(crate) mod view; // A run as returned to readers

use muster_api::pairs::{PairRun, RunPairs};
use muster_core::ids::OperationId;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::writing::{self, Effect};

/// Begins a run for the page, with the checks and errors of the route.
pub(crate) async fn begin_run(
    app: &App,
    actor: &Actor,
    pool: &str,
    body: &RunPairs,
) -> Result<OperationId, Error> {
    rules::check_request(body)?;
    writing::write(app, actor, async |conn| {
        let pool = find_pool(conn, pool).await?;
        begin::begin(conn, app, actor, &pool, body).await
    })
    .await
}

/// Returns the run a request would begin, for the page: the nodes taking part, and the left-out
/// nodes with the reason. The transaction is rolled back.
pub(crate) async fn preview_run(
    app: &App,
    actor: &Actor,
    pool: &str,
    body: &RunPairs,
) -> Result<PairRun, Error> {
    rules::check_request(body)?;
    writing::plan_effect(app, async |conn| {
        let pool = find_pool(conn, pool).await?;
        let id = begin::begin(conn, app, actor, &pool, body).await?;
        let row = db::pairs::runs::find(conn, pool.id, id.0).await?;
        let row = row.ok_or_else(|| Error::NotFound(format!("run {id}")))?;
        view::load_run(conn, &pool.name, row).await
    })
    .await
}

pub(crate) async fn find_pool(conn: &mut PgConnection, key: &str) -> Result<ObjectRow, Error> {
    db::objects::find(conn, "pool", key)
        .await?
        .ok_or_else(|| Error::NotFound(format!("pool {key:?}")))
}

/// Requests a run of pairs, once per idempotency key.
///
/// # Errors
/// 404, 409, 422.
pub async fn run(
    app: &App,
    actor: &Actor,
    pool: &str,
    idempotency: IdempotencyKey,
    body: &RunPairs,
) -> Result<Answer, Error> {
    rules::check_request(body)?;
    writing::once(app, actor, idempotency, body, async |conn| {
        let pool = find_pool(conn, pool).await?;
        begin::begin(conn, app, actor, &pool, body)
            .await
            .map(Effect::Begun)
    })
    .await
}
