//! Outcomes of jobs, with the attempt number.

use axum::extract::State;
use http::{HeaderMap, StatusCode};
use muster_core::ids::JobId;
use muster_core::wire::calls::ReportOutcome;
use muster_core::wire::result::Outcome;

use super::Agent;
use super::jobs::{note_attempt, stale};
use super::node_notes::NodeNotes;
use super::redaction::redact_outcome;
use super::told::Told;
use crate::app::App;
use crate::db;
use crate::engine::outcomes::{Applied, Reporter};
use crate::engine::revocations::ListedJob;
use crate::engine::{self, outcomes};
use crate::error::Error;
use crate::http::extract::Path;

/// Ends a job, and runs a reconcile pass of its node in the same transaction. Where the pass fails,
/// only the outcome is committed, because the step on the machine is done. The engine then repeats
/// the pass.
pub(super) async fn take_outcome(
    State(app): State<App>,
    agent: Agent,
    Path(job): Path<JobId>,
    headers: HeaderMap,
    Told(report): Told<ReportOutcome>,
) -> Result<StatusCode, Error> {
    note_attempt(job, report.attempt);
    let report = redact_outcome(report).await?;
    let ended = EndedJob {
        job,
        report: &report,
        notes: NodeNotes::read(&headers),
    };
    match end_job(&app, &agent, &ended, true).await? {
        Ended::Well => {}
        Ended::PassFailed(error) => {
            tracing::warn!(error = ?error, "the reconcile pass of a node failed after a job; the engine repeats the pass");
            end_job(&app, &agent, &ended, false).await?;
        }
    }
    log_ended(&report.outcome);
    Ok(StatusCode::NO_CONTENT)
}

fn log_ended(outcome: &Outcome) {
    match outcome {
        Outcome::Succeeded { .. } => tracing::info!("job succeeded"),
        Outcome::Failed { failure } => {
            tracing::info!(code = %failure.code, failure = failure.message, "job failed");
        }
        Outcome::Cancelled => tracing::info!("job cancelled"),
    }
}

/// A job's outcome, as the agent reports it.
struct EndedJob<'a> {
    job: JobId,
    report: &'a ReportOutcome,
    notes: NodeNotes,
}

/// The result of an outcome and of the following reconcile pass.
enum Ended {
    Well,
    /// The pass failed, and the transaction is not committed.
    PassFailed(Error),
}

async fn end_job(
    app: &App,
    agent: &Agent,
    ended: &EndedJob<'_>,
    reconcile_at_once: bool,
) -> Result<Ended, Error> {
    let EndedJob { job, report, notes } = *ended;
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    agent.fence(&mut tx, report.epoch, app).await?;
    let reporter = Reporter {
        agent: agent.id,
        site: agent.site,
        name: &agent.name,
    };
    let node = match outcomes::apply(&mut tx, reporter, job, report, now).await? {
        Applied::Committed(node) => node,
        Applied::Stale => {
            tx.commit().await?;
            return Err(stale());
        }
    };
    let listed = ListedJob { node, job, report };
    notes.record(&mut tx, reporter, listed, now).await?;
    if !reconcile_at_once {
        db::lifecycle::make_due(&mut tx, node, now).await?;
        tx.commit().await?;
        app.wake_engine.notify_one();
        return Ok(Ended::Well);
    }
    let reconciled = match engine::reconcile_now(&mut tx, node, now).await {
        Ok(reconciled) => reconciled,
        Err(error @ Error::Unavailable(_)) => return Err(error),
        Err(error) => {
            tx.rollback().await?;
            return Ok(Ended::PassFailed(error));
        }
    };
    tx.commit().await?;
    // The outcome is committed. An error here would make the agent send the outcome again.
    if let Err(error) = reconciled.wake(app).await {
        tracing::warn!(error = ?error, "passes waiting for a node's power were not woken; they retry on their own timer");
    }
    Ok(Ended::Well)
}
