//! The steps of a run: gather, measure, stop, finish, return the nodes. Each function returns
//! whether there was a step to take.

use jiff::SignedDuration;
use muster_api::operations::OperationState;
use muster_core::fabric::{Limits, Next, next, verdicts};
use muster_core::lifecycle::steps::JobState;
use serde_json::json;
use sqlx::PgConnection;

use super::findings::{blame_ends, describe_result};
use super::run::Run;
use super::trials::build_unknown;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::pairs::ends::EndRow;
use crate::db::pairs::runs::{Ended, Ending};
use crate::db::pairs::trials::TrialRow;
use crate::error::Error;

/// Longest time for which an ended run waits for schedulers. Afterwards the requests to the
/// schedulers go on without the run.
const GIVEN_BACK_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// Most names of nodes in the last message of such an operation.
const NAMED: usize = 8;

/// Waits until every node is held or left out, and numbers the held nodes.
pub(super) async fn gather(conn: &mut PgConnection, run: &Run<'_>) -> Result<bool, Error> {
    let taking_part: Vec<&EndRow> = run
        .ends
        .iter()
        .filter(|end| end.left_out.is_none())
        .collect();
    if taking_part.len() < 2 {
        return finish(conn, run, Ending::TooFew).await;
    }
    if taking_part
        .iter()
        .any(|end| end.hold != Some(JobState::Succeeded))
    {
        return Ok(false);
    }
    db::pairs::ends::number(conn, run.row.id).await?;
    Ok(true)
}

/// Begins the next round once the former round is settled.
pub(super) async fn measure(conn: &mut PgConnection, run: &Run<'_>) -> Result<bool, Error> {
    if run.trials.iter().any(|trial| trial.verdict.is_none()) {
        return Ok(false);
    }
    let rounds = run.rounds();
    let ends = run.measured().len();
    match next(ends, &Limits::of(ends), &rounds) {
        Next::Done => finish(conn, run, Ending::Done).await,
        Next::Measure(pairs) => {
            db::pairs::trials::insert(conn, run.row.id, rounds.len(), &pairs, run.now).await?;
            db::pairs::ends::wake(conn, run.row.id, run.now).await?;
            let message = format!("round {}: {} pairs", rounds.len() + 1, pairs.len());
            db::operations::run(conn, run.row.id, &message, run.now).await?;
            Ok(true)
        }
    }
}

/// Ends the measurements under way, then the run, because a node under measurement must not get
/// jobs again.
pub(super) async fn stop(
    conn: &mut PgConnection,
    run: &Run<'_>,
    how: Ending,
) -> Result<bool, Error> {
    let open: Vec<&TrialRow> = run
        .trials
        .iter()
        .filter(|trial| trial.verdict.is_none())
        .collect();
    if open.is_empty() {
        return finish(conn, run, how).await;
    }
    // The job of a silent agent is queued again, and is cancelled immediately.
    let queued = |trial: &TrialRow| trial.state == Some(JobState::Queued);
    let running: Vec<&TrialRow> = open
        .into_iter()
        .filter(|trial| trial.job.is_none() || !trial.cancel || queued(trial))
        .collect();
    if running.is_empty() {
        return Ok(false);
    }
    db::pairs::ends::wake(conn, run.row.id, run.now).await?;
    for trial in running {
        match trial.job {
            Some(job) => db::jobs::cancel(conn, job, run.now).await?,
            None => {
                let settled = build_unknown("the run ended before it began");
                db::pairs::trials::settle(conn, run.row.id, trial, &settled, run.now).await?;
            }
        }
    }
    Ok(true)
}

/// Ends the measurements: stores the verdicts, blames nodes, and wakes every node of the run.
async fn finish(conn: &mut PgConnection, run: &Run<'_>, how: Ending) -> Result<bool, Error> {
    let (row, now, names) = (run.row, run.now, run.names());
    let found = verdicts(names.len(), &Limits::of(names.len()), &run.rounds());
    db::pairs::ends::wake(conn, row.id, now).await?;
    // The findings of a run stopped by a person are shown, but nodes are not blamed.
    if how != Ending::Stopped {
        blame_ends(conn, run, &found, &names).await?;
    }
    db::pairs::runs::end(conn, row.id, how, &found, now).await?;
    db::pairs::ends::let_go(conn, row.id, now).await?;
    let result = describe_result(run, how, &found);
    let message = format!("{result}; the nodes return to the scheduler");
    db::operations::run(conn, row.id, &message, now).await?;
    let summary = format!("pairs of {}: {result}", row.pool_name);
    let event = NewEvent::new(now, "muster", "pairs.ended", summary)
        .about(row.pool)
        .under(Some(row.id));
    let (count, sentences) = (run.trials.len(), found.sentences(&names));
    let detail = json!({ "pool": row.pool_name, "ended": how.as_str(), "nodes": names, "pairs": count, "findings": sentences });
    db::events::insert(conn, event.with(detail)).await?;
    Ok(true)
}

/// Ends the operation once no node is held. The next run may then be requested. A scheduler still
/// without the node keeps the operation open for [`GIVEN_BACK_WITHIN`].
pub(super) async fn give_back(
    conn: &mut PgConnection,
    run: &Run<'_>,
    ended: &Ended,
) -> Result<bool, Error> {
    let held: Vec<&str> = run
        .ends
        .iter()
        .filter(|end| !end.back)
        .map(|end| end.name.as_str())
        .collect();
    if !held.is_empty() && run.now < ended.at + GIVEN_BACK_WITHIN {
        return Ok(false);
    }
    let state = match ended.how {
        Ending::Done => OperationState::Succeeded,
        Ending::Stopped => OperationState::Cancelled,
        Ending::Overdue | Ending::TooFew => OperationState::Failed,
    };
    let mut message = describe_result(run, ended.how, &ended.verdicts);
    if !held.is_empty() {
        let named = held[..held.len().min(NAMED)].join(", ");
        message = format!(
            "{message}; {} nodes not yet resumed by the scheduler, retried: {named}",
            held.len()
        );
    }
    db::operations::end(conn, run.row.id, state, &message, run.now).await?;
    db::pairs::runs::close(conn, run.row.id, run.now).await?;
    Ok(true)
}
