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
    view::{find, load, render_all},
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

/// Selection of operations.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OperationsQuery {
    /// The page size: 1 to 1000, 100 when absent.
    limit: Option<u32>,
    /// The token from the previous page.
    page_token: Option<String>,
    /// Filter fields: `kind`, `state` and `node`, for example `kind=release AND state!=succeeded`.
    filter: Option<String>,
    /// `-created_at` (newest first, the default) or `created_at` (oldest first).
    sort: Option<String>,
    /// Members of each item, for example `state,progress.message`; `id` and `self` are always
    /// included. All members when absent.
    fields: Option<String>,
    /// `exact`, `estimate` or `none`: the method to count all matching items. `none` when absent.
    count: Option<String>,
    /// Name or id of an existing node: short for `filter=node=NAME`.
    node: Option<String>,
    /// `queued`, `running`, `succeeded`, `failed`, `cancelled` or `unknown`: short for
    /// `filter=state=WORD`.
    state: Option<String>,
}

/// Lists operations, newest first unless another sort is requested.
#[utoipa::path(get, path = "/v1/operations",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "operations", params(OperationsQuery), responses(
    (status = 200, description = "One page of operations", body = CountedPage<Operation>),
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
        render_all(conn, rows).await
    };
    let sight = actor.sight();
    paging::build_page(
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

/// The longest wait.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WaitQuery {
    /// The longest wait for the end of the operation, at most `55s`.
    wait: Option<String>,
}

/// Returns one operation.
///
/// With `?wait=55s` the answer is sent when the operation is done, or at the end of the wait with
/// the current state.
#[utoipa::path(get, path = "/v1/operations/{id}",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "operation={id}" }))),
    tag = "operations", params(("id", description = "Id"), WaitQuery), responses(
    (status = 200, description = "The operation", body = Operation),
    (status = 404, description = "No such operation", body = Problem, content_type = "application/problem+json"),
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
            .map_or(Ok(Duration::ZERO), waiting::parse_duration)?;
    let mut changes = app.wake_readers.subscribe();
    loop {
        // No connection to the database is held while waiting, so a thousand waiting clients cost a
        // thousand tasks, not connections.
        let operation = load(&mut *app.pool.acquire().await?, id).await?;
        if operation.done || Instant::now() >= deadline {
            return Answer::ok(&operation);
        }
        waiting::wait_for_change(&mut changes, deadline).await;
    }
}

/// Requests the stop of an operation.
///
/// A running step may finish first. Completed steps are not undone.
#[utoipa::path(post, path = "/v1/operations/{id}/cancel",
    extensions(("x-muster-access" = json!({ "verb": "operation.cancel", "place": "operation={id}" }))),
    tag = "operations",
    params(("id", description = "Id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 202, description = "The stop is requested; the body is the operation", body = Operation),
    (status = 409, description = "The operation is already done", body = Problem, content_type = "application/problem+json"),
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

/// The position to read from.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LogQuery {
    /// The id of the last line seen; 0 for the beginning.
    #[serde(default)]
    after: i64,
}

/// Returns the log lines of an operation's steps, oldest first, at most 1000.
#[utoipa::path(get, path = "/v1/operations/{id}/log",
    extensions(("x-muster-access" = json!({ "verb": "node.evidence", "place": "operation={id}" }))),
    tag = "operations", params(("id", description = "Id"), LogQuery), responses(
    (status = 200, description = "The log lines", body = OperationLog),
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
        step: line.step.to_string(),
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
