//! Routes of operations: reading, long polls, cancellation, logs.

use std::time::Duration;

use axum::extract::State;
use muster_api::operations::{Operation, OperationLog, OperationLogLine};
use muster_api::problem::Problem;
use muster_core::ids::OperationId;
use serde::Deserialize;
use sqlx::PgConnection;
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter::{OPERATIONS, Term};
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::http::paging::{self, CountedPage, ListQuery};
use crate::http::waiting;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::operations::{
    self,
    view::{find, load, views},
};

const LOG_LINES: i64 = 1000;

/// The routes of operations.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_operations))
        .routes(routes!(get_operation))
        .routes(routes!(cancel_operation))
        .routes(routes!(get_operation_log))
}

/// Which operations to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OperationsQuery {
    /// 1 to 1000, 100 when absent.
    limit: Option<u32>,
    /// Of the page before.
    page_token: Option<String>,
    /// By `kind`, `state` and `node`: `kind=release AND state!=succeeded`.
    filter: Option<String>,
    /// `-created_at` or `created_at`: the newest or the oldest first.
    sort: Option<String>,
    /// Parts of each item, as `state,progress.message`; `id`, `self` are always there. All of it when absent.
    fields: Option<String>,
    /// `exact`, `estimate` or `none`: how many fit in all. `none` when absent.
    count: Option<String>,
    /// Name or id of a node, which must be there: short for `filter=node=NAME`.
    node: Option<String>,
    /// `queued`, `running`, `succeeded`, `failed`, `cancelled` or `unknown`: short for `filter=state=WORD`.
    state: Option<String>,
}

/// Operations, newest first unless another sort is asked for.
#[utoipa::path(get, path = "/v1/operations", tag = "operations", params(OperationsQuery), responses(
    (status = 200, description = "The page", body = CountedPage<Operation>),
    (status = 422, description = "The filter names a field or value that does not exist", body = Problem, content_type = "application/problem+json"),
))]
async fn list_operations(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<OperationsQuery>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let OperationsQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
        node,
        state,
    } = query;
    let mut only: Vec<Term> = state
        .map(|state| Term::equal("state", state))
        .into_iter()
        .collect();
    if let Some(key) = node {
        let missing = || {
            Error::unprocessable(
                "node",
                "not_found",
                format!("There is no node called {key:?}."),
            )
        };
        let id = actor
            .find_node(&mut conn, &key)
            .await?
            .ok_or_else(missing)?;
        only.push(Term::equal("node", id.to_string()));
    }
    let query = ListQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
    };
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        let rows = db::operations::list_by_id(conn, ids).await?;
        views(conn, rows).await
    };
    let sight = actor.sight();
    paging::page(
        &mut conn,
        &OPERATIONS,
        &query,
        only,
        &sight,
        load,
        |operation| (operation.id, ""),
    )
    .await
}

/// How long to wait.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WaitQuery {
    /// Waits for the end up to this long, at most `55s`.
    wait: Option<String>,
}

/// One operation; `?wait=55s` answers when it is done, or as it stands then.
#[utoipa::path(get, path = "/v1/operations/{id}", tag = "operations", params(("id", description = "Id"), WaitQuery), responses(
    (status = 200, description = "The operation", body = Operation),
    (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
))]
async fn get_operation(
    State(app): State<App>,
    _: Actor,
    Path(id): Path<String>,
    Query(query): Query<WaitQuery>,
) -> Result<Answer, Error> {
    let id = parse(&id)?;
    let deadline = Instant::now()
        + query
            .wait
            .as_deref()
            .map_or(Ok(Duration::ZERO), waiting::duration)?;
    let mut changes = app.wake_readers.subscribe();
    loop {
        // Nothing is held while waiting: a thousand waiting clients are a thousand tasks, not connections.
        let operation = load(&mut *app.pool.acquire().await?, id).await?;
        if operation.done || Instant::now() >= deadline {
            return Answer::ok(&operation);
        }
        waiting::change(&mut changes, deadline).await;
    }
}

/// Asks an operation to stop. The step it is at may finish first; nothing is undone.
#[utoipa::path(post, path = "/v1/operations/{id}/cancel", tag = "operations",
    params(("id", description = "Id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 202, description = "Asked", body = Operation),
    (status = 409, description = "It is done", body = Problem, content_type = "application/problem+json"),
))]
async fn cancel_operation(
    State(app): State<App>,
    actor: Actor,
    Path(id): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    let id = parse(&id)?;
    operations::cancel(&app, &actor, id, idempotency).await
}

/// Where to read on.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LogQuery {
    /// The id of the last line seen; 0 from the beginning.
    #[serde(default)]
    after: i64,
}

/// What the steps of an operation logged, oldest first, at most 1000 lines.
#[utoipa::path(get, path = "/v1/operations/{id}/log", tag = "operations", params(("id", description = "Id"), LogQuery), responses(
    (status = 200, description = "The lines", body = OperationLog),
))]
async fn get_operation_log(
    State(app): State<App>,
    _: Actor,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let row = find(&mut conn, parse(&id)?).await?;
    let lines = db::operations::list_log(&mut conn, row.id, query.after, LOG_LINES).await?;
    let items = lines.into_iter().map(|line| OperationLogLine {
        id: line.id,
        job: line.job.0,
        step: line.step,
        attempt: line.attempt,
        at: line.at,
        text: line.text,
    });
    Answer::ok(&OperationLog {
        items: items.collect(),
    })
}

fn parse(id: &str) -> Result<OperationId, Error> {
    id.parse()
        .map_err(|_| Error::NotFound(format!("operation {id:?}")))
}
