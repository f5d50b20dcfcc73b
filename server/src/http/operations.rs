//! Operations: reading, long polling, cancelling, logs.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use muster_api::operations::{
    Operation, OperationLog, OperationLogLine, OperationProgress, OperationState, Step, Target,
};
use muster_api::problem::Problem;
use muster_core::ids::OperationId;
use muster_core::lifecycle::state::State as NodeState;
use muster_core::wire::node::{Failure, FailureCode, Progress};
use serde::Deserialize;
use serde_json::Value;
use sqlx::PgConnection;
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::answer::Answer;
use super::extract::{Path, Query};
use super::idempotency::IdempotencyKey;
use super::paging::{self, CountedPage, ListQuery};
use super::writing::{self, Effect};
use super::{standing, waiting};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter::{OPERATIONS, Term};
use crate::db::nodes::LockedNode;
use crate::db::operations::{AroundRow, OperationRow, RunRow, StepRow};
use crate::error::Error;

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
    writing::once(&app, &actor, idempotency, &(), async |conn| {
        // The node first, as everybody locks: what was read before is read again under its lock.
        let node = match find(conn, id).await?.node {
            Some(node) => db::nodes::find_for_update(conn, &node.to_string()).await?,
            None => None,
        };
        let row = find(conn, id).await?;
        if row.finished_at.is_some() {
            return Err(Error::conflict(
                "done",
                format!("It {} already.", row.state),
            ));
        }
        stop(conn, &actor, &row, node, app.clock.now()).await?;
        Ok(Effect::Done(
            Answer::ok(&load(conn, id).await?)?.status(StatusCode::ACCEPTED),
        ))
    })
    .await
}

/// Nothing more of it is begun, and what runs is told to stop, but for a rung of a ladder: cut short it may leave a machine off. What was only asked for and
/// not begun is taken back; a release is the claim's to remember.
async fn stop(
    conn: &mut PgConnection,
    actor: &Actor,
    row: &OperationRow,
    node: Option<LockedNode>,
    now: Timestamp,
) -> Result<(), Error> {
    db::operations::ask_to_stop(conn, row.id, now).await?;
    let climbs = node
        .as_ref()
        .is_some_and(|node| node.state == NodeState::Repairing.as_str());
    let jobs = if climbs {
        0
    } else {
        db::operations::cancel_jobs(conn, row.id, now).await?
    };
    let Some(node) = node else { return Ok(()) };
    let what = if climbs {
        "once its rung is done".to_owned()
    } else {
        format!("({jobs} open steps)")
    };
    let summary = format!("{} was asked to stop {what}", row.kind);
    let event = actor.event(now, "operation.cancel_asked", Some(node.id), summary);
    db::events::insert(conn, event.under(Some(row.id))).await?;
    // Between two steps of a run of gates no job is open, and the machine is on: the engine ends that one.
    let kept = |wish: &str| wish == "release" || (wish == "run-gates" && row.state != "queued");
    let only_asked =
        node.operation_id == Some(row.id) && node.wish.as_deref().is_some_and(|wish| !kept(wish));
    if jobs == 0 && only_asked {
        db::lifecycle::drop_wish(conn, node.id).await?;
        db::operations::end(conn, row.id, "cancelled", "stopped before it began", now).await?;
    }
    db::lifecycle::make_due(conn, node.id, now).await
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

async fn find(conn: &mut PgConnection, id: OperationId) -> Result<OperationRow, Error> {
    db::operations::find(conn, id)
        .await?
        .ok_or_else(|| Error::NotFound(format!("operation {id}")))
}

/// One operation as it is answered.
///
/// # Errors
/// 404, or the database's.
pub async fn load(conn: &mut PgConnection, id: OperationId) -> Result<Operation, Error> {
    let row = find(conn, id).await?;
    let missing = || Error::NotFound(format!("operation {id}"));
    views(conn, vec![row]).await?.pop().ok_or_else(missing)
}

/// Operations as they are answered, with their steps.
///
/// # Errors
/// When the database fails.
pub async fn views(
    conn: &mut PgConnection,
    rows: Vec<OperationRow>,
) -> Result<Vec<Operation>, Error> {
    let ids: Vec<OperationId> = rows.iter().map(|row| row.id).collect();
    let mut steps: BTreeMap<OperationId, Vec<StepRow>> = BTreeMap::new();
    for step in db::operations::list_steps(conn, &ids).await? {
        if let Some(operation) = step.operation {
            steps.entry(operation).or_default().push(step);
        }
    }
    let mut runs: BTreeMap<OperationId, Vec<RunRow>> = BTreeMap::new();
    for run in db::operations::list_runs(conn, &ids).await? {
        runs.entry(run.operation).or_default().push(run);
    }
    let around = db::operations::list_around(conn, &ids).await?;
    let around: BTreeMap<OperationId, AroundRow> =
        around.into_iter().map(|row| (row.operation, row)).collect();
    rows.into_iter()
        .map(|row| {
            let own = steps.remove(&row.id).unwrap_or_default();
            let (around, runs) = (
                around.get(&row.id),
                runs.remove(&row.id).unwrap_or_default(),
            );
            let mut operation = view(row, own)?;
            match operation.done {
                true => operation.result = Some(standing::result(&operation, around, &runs)),
                false => {
                    operation.blocked_by =
                        around.and_then(|around| standing::blocked_by(&operation.steps, around))
                }
            }
            Ok(operation)
        })
        .collect()
}

fn view(row: OperationRow, steps: Vec<StepRow>) -> Result<Operation, Error> {
    let state: OperationState = row
        .state
        .parse()
        .map_err(|why: String| Error::internal(anyhow::anyhow!("operation {}: {why}", row.id)))?;
    let steps: Vec<Step> = steps.into_iter().map(step).collect();
    let target = row
        .node
        .zip(row.node_name.clone())
        .map(|(id, name)| Target {
            kind: "node".into(),
            id: id.0,
            link: format!("/v1/nodes/{name}"),
            name,
        });
    Ok(Operation {
        id: row.id.0,
        link: format!("/v1/operations/{}", row.id),
        kind: row.kind.clone(),
        target,
        state,
        done: state.done(),
        progress: progress(&row, &steps, state),
        error: row.error.as_ref().map(failure),
        steps,
        deadline: row
            .deadline_at
            .filter(|_| !state.done())
            .map(|at| at.to_jiff()),
        actor: row.actor,
        request_id: row.request_id,
        created_at: row.created_at,
        started_at: row.started_at.map(|at| at.to_jiff()),
        finished_at: row.finished_at.map(|at| at.to_jiff()),
        result: None,
        blocked_by: None,
    })
}

fn step(row: StepRow) -> Step {
    Step {
        job: row.job.0,
        step: row.step,
        kind: row.kind,
        state: row.state,
        attempt: row.attempt,
        round: row.round,
        progress: row
            .progress
            .and_then(|progress| serde_json::from_value(progress).ok()),
        waiting_for: row.waiting_for,
        failure: row.failure.as_ref().map(failure),
        created_at: row.created_at,
        started_at: row.started_at.map(|at| at.to_jiff()),
        finished_at: row.finished_at.map(|at| at.to_jiff()),
    }
}

/// How far it is: the step at work says it best, then what the node waits for, then the operation's own word.
fn progress(row: &OperationRow, steps: &[Step], state: OperationState) -> OperationProgress {
    let current = steps
        .iter()
        .rev()
        .find(|step| matches!(step.state.as_str(), "leased" | "queued"));
    let current = current.filter(|_| !state.done());
    let report = current.and_then(|step| step.progress.as_ref());
    let said = [
        report
            .map(|report| report.message.clone())
            .filter(|message| !message.is_empty()),
        current.and_then(|step| step.waiting_for.clone()),
        row.waiting_for
            .clone()
            .filter(|_| !state.done())
            .map(|condition| format!("waits for {condition}")),
    ];
    OperationProgress {
        step: current.map(|step| step.step.clone()),
        steps: u32::try_from(steps.len()).unwrap_or(u32::MAX),
        percent: report.and_then(percent),
        message: said
            .into_iter()
            .flatten()
            .next()
            .unwrap_or_else(|| row.message.clone()),
    }
}

fn percent(report: &Progress) -> Option<f64> {
    let (done, total) = report.done.zip(report.total)?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "a percentage needs no more than the 52 bits it keeps"
    )]
    (total > 0).then(|| (done as f64 / total as f64 * 100.0).min(100.0))
}

/// A stored failure; what an agent left out is filled in rather than refused: it is shown, not decided on.
fn failure(stored: &Value) -> Failure {
    let text = |member: &str| stored[member].as_str().map(str::to_owned);
    Failure {
        code: text("code").map_or(FailureCode::Failed, |code| FailureCode::from(code.as_str())),
        message: text("message").unwrap_or_else(|| stored.to_string()),
        retryable: stored["retryable"].as_bool().unwrap_or(false),
    }
}
