//! Runs of pairs. Each round of the engine advances every open run by a step: hold idle nodes,
//! measure pairs, end with verdicts, return the nodes to the scheduler. `core/fabric` chooses the
//! pairs and evaluates the failures. A node returns to the scheduler, or leaves service, in the
//! node's own reconcile pass.
//!
//! A step of a run locks the run's row, and locks nodes before other rows of the nodes. A node's
//! pass locks the node. The pass only reads the run, and writes the run's rows of the locked node.

mod findings; // The result of a run, and the blamed nodes
mod run; // A run with its nodes and measurements
mod steps; // The steps of a run: gather, measure, stop, finish, return
mod trials; // The results of measurements

use jiff::{SignedDuration, Timestamp};
use muster_core::ids::OperationId;
use muster_core::lifecycle::snapshot::Pairing;
use muster_core::lifecycle::steps::JobState;
use muster_core::recovery::Cause;
use sqlx::PgConnection;
use tracing::Instrument as _;
use uuid::Uuid;

use self::run::Run;
use crate::app::App;
use crate::db;
use crate::db::lifecycle::EngineNode;
use crate::db::pairs::ends::EndRow;
use crate::db::pairs::runs::{Ending, OpenRun};
use crate::error::Error;

/// The pause before a scheduler is asked again to take a node back.
const GIVE_BACK_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// The request of a run of pairs to a node in service.
///
/// # Errors
/// When the database fails.
pub(super) async fn find_pairing(
    conn: &mut PgConnection,
    node: &EngineNode,
    now: Timestamp,
) -> Result<Option<Pairing>, Error> {
    let Some(part) = db::pairs::ends::find_part(conn, node.id).await? else {
        return Ok(None);
    };
    Ok(Some(match (part.over, part.hold, part.back) {
        (true, _, Some(JobState::Succeeded)) => Pairing::Back,
        (true, _, Some(JobState::Queued | JobState::Leased)) => {
            Pairing::Waits("the scheduler to use it again".into())
        }
        (true, _, Some(_)) => Pairing::GiveBack(
            part.back_failed_at
                .map_or(now, |at| at.to_jiff() + GIVE_BACK_AGAIN),
        ),
        (true, _, None) => match (part.gate, part.blamed) {
            (Some(gate), Some(what)) => Pairing::Faulty(Cause::pairs(&gate, what)),
            (_, _) => Pairing::GiveBack(now),
        },
        (false, None, _) => Pairing::Hold,
        (false, Some(JobState::Succeeded), _) => match part.other {
            Some(_) if part.asks => Pairing::Measure,
            Some(other) => Pairing::Waits(format!("the measurement with {other}")),
            None => Pairing::Waits("the other nodes of the pair run".into()),
        },
        (false, Some(_), _) => Pairing::Waits("the scheduler to hold back its jobs".into()),
    }))
}

/// Advances every open run not locked by another replica. Returns whether a run advanced.
///
/// # Errors
///
/// When the database is unavailable.
pub(super) async fn advance_runs(app: &App) -> Result<bool, Error> {
    let (mut after, mut moved) = (OperationId(Uuid::nil()), false);
    loop {
        let mut tx = app.pool.begin().await?;
        let Some(run) = db::pairs::runs::lock_open(&mut tx, after).await? else {
            return Ok(moved);
        };
        after = run.id;
        let span = tracing::error_span!("pairs", operation = %run.id);
        match advance(&mut tx, &run, app.clock.now())
            .instrument(span)
            .await
        {
            Ok(true) => {
                tx.commit().await?;
                moved = true;
            }
            Ok(false) => {}
            Err(error @ Error::Unavailable(_)) => return Err(error),
            // A failed run does not delay other runs; the next poll tries again.
            Err(error) => {
                tracing::error!(run = %run.id, error = ?error, "a run of pairs could not go on")
            }
        }
    }
}

/// Takes one step of a run. Returns whether there was a step to take.
async fn advance(conn: &mut PgConnection, run: &OpenRun, now: Timestamp) -> Result<bool, Error> {
    let run = Run {
        row: run,
        ends: db::pairs::ends::list(conn, run.id).await?,
        trials: db::pairs::trials::list(conn, run.id).await?,
        now,
    };
    if let Some(ended) = &run.row.ended {
        return steps::give_back(conn, &run, ended).await;
    }
    let leaving: Vec<(&str, String)> = run.ends.iter().filter_map(find_departure).collect();
    if !leaving.is_empty() {
        db::pairs::ends::wake(conn, run.row.id, now).await?;
        for (name, why) in leaving {
            db::pairs::ends::leave_out(conn, run.row.id, name, &why, now).await?;
        }
        return Ok(true);
    }
    if trials::settle(conn, &run).await? {
        return Ok(true);
    }
    if run.row.stop {
        steps::stop(conn, &run, Ending::Stopped).await
    } else if now >= run.row.deadline_at {
        steps::stop(conn, &run, Ending::Overdue).await
    } else if run.measured().is_empty() {
        steps::gather(conn, &run).await
    } else {
        steps::measure(conn, &run).await
    }
}

/// The name of a node leaving the run now, and the reason.
fn find_departure(end: &EndRow) -> Option<(&str, String)> {
    let why = match (&end.left_out, end.node, end.hold) {
        (Some(_), _, _) => return None,
        (None, None, _) => "it was removed".to_owned(),
        (None, Some(_), _) if end.stop => "stopped on request".to_owned(),
        (None, Some(_), Some(JobState::Cancelled)) => "something else was asked of it".to_owned(),
        (None, Some(_), Some(JobState::Failed)) => {
            format!(
                "its scheduler did not hold it: {}",
                end.failure.as_deref().unwrap_or("without a reason")
            )
        }
        (None, Some(_), _) => return None,
    };
    Some((&end.name, why))
}
