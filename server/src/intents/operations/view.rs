//! An operation as returned to readers: state, steps, progress.

use std::collections::BTreeMap;

use muster_api::operations::{Operation, OperationProgress, OperationState, Step, Target};
use muster_core::ids::OperationId;
use muster_core::wire::node::{Failure, FailureCode, Progress};
use serde_json::Value;
use sqlx::PgConnection;

use crate::db;
use crate::db::operations::{AroundRow, OperationRow, RunRow, StepRow};
use crate::error::Error;
use crate::intents::standing;

pub(crate) async fn find(conn: &mut PgConnection, id: OperationId) -> Result<OperationRow, Error> {
    db::operations::find(conn, id)
        .await?
        .ok_or_else(|| Error::NotFound(format!("operation {id}")))
}

/// Loads one operation.
///
/// # Errors
/// 404, or the error of the database.
pub async fn load(conn: &mut PgConnection, id: OperationId) -> Result<Operation, Error> {
    let row = find(conn, id).await?;
    let missing = || Error::NotFound(format!("operation {id}"));
    render_all(conn, vec![row]).await?.pop().ok_or_else(missing)
}

/// Renders operations with their steps.
///
/// # Errors
/// When the database fails.
pub async fn render_all(
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
            let mut operation = render_operation(row, own)?;
            match operation.done {
                true => operation.result = Some(standing::link_results(&operation, around, &runs)),
                false => {
                    operation.blocked_by =
                        around.and_then(|around| standing::blocked_by(&operation.steps, around))
                }
            }
            Ok(operation)
        })
        .collect()
}

fn render_operation(row: OperationRow, steps: Vec<StepRow>) -> Result<Operation, Error> {
    let state = row.state;
    let steps: Vec<Step> = steps.into_iter().map(render_step).collect();
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
        progress: render_progress(&row, &steps, state),
        error: row.error.as_ref().map(read_failure),
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

fn render_step(row: StepRow) -> Step {
    Step {
        job: row.job.0,
        step: row.step.to_string(),
        kind: row.kind.to_string(),
        state: row.state.to_string(),
        attempt: row.attempt,
        round: row.round,
        progress: row
            .progress
            .and_then(|progress| serde_json::from_value(progress).ok()),
        waiting_for: row.waiting_for,
        failure: row.failure.as_ref().map(read_failure),
        created_at: row.created_at,
        started_at: row.started_at.map(|at| at.to_jiff()),
        finished_at: row.finished_at.map(|at| at.to_jiff()),
    }
}

/// The progress of an operation. The message comes from the step at work, else from the node's
/// blocker, else from the operation's own row.
fn render_progress(row: &OperationRow, steps: &[Step], state: OperationState) -> OperationProgress {
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
        percent: report.and_then(compute_percent),
        message: said
            .into_iter()
            .flatten()
            .next()
            .unwrap_or_else(|| row.message.clone()),
    }
}

fn compute_percent(report: &Progress) -> Option<f64> {
    let (done, total) = report.done.zip(report.total)?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "a percentage needs no more than the 52 bits it keeps"
    )]
    (total > 0).then(|| (done as f64 / total as f64 * 100.0).min(100.0))
}

/// Reads a stored failure. Missing members are filled with defaults instead of failing the read,
/// because the failure is only displayed.
fn read_failure(stored: &Value) -> Failure {
    let text = |member: &str| stored[member].as_str().map(str::to_owned);
    Failure {
        code: text("code").map_or(FailureCode::Failed, |code| FailureCode::from(code.as_str())),
        message: text("message").unwrap_or_else(|| stored.to_string()),
        retryable: stored["retryable"].as_bool().unwrap_or(false),
    }
}
