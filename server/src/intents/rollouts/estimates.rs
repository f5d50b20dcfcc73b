//! Estimated ends. A reader of a small rollout gets a new estimate. The estimate of a large rollout
//! takes seconds, so a task calculates and stores it every few minutes.

use jiff::{SignedDuration, Timestamp};
use muster_api::rollouts::{RolloutEstimate, RolloutState};
use muster_core::rollout::{Calendar, Eta, Fleet, RolloutPolicy, estimate_within};
use sqlx::PgConnection;

use super::find;
use super::fleet::{self, Loaded};
use crate::app::App;
use crate::db;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;

/// Nodes of a large rollout.
const LARGE: u16 = 250;
/// Plans multiplied by nodes, for each of the two runs of an estimate at a read: less than a second.
const WORK_OF_A_READ: usize = 100_000;
/// The same for an estimate of the task: seconds of one processor, also at the end of the server.
const WORK_OF_THE_TASK: usize = 5_000_000;
/// Time between two estimates of a rollout.
const EVERY: SignedDuration = SignedDuration::from_mins(5);
/// Most estimates in a round.
const MOST: usize = 20;

/// Calculates and stores the due estimates of large rollouts. Returns their number.
///
/// # Errors
/// When the database fails.
pub async fn estimate_large(app: &App) -> Result<usize, Error> {
    for done in 0..MOST {
        let mut conn = app.pool.acquire().await?;
        let now = app.clock.now();
        let large = i64::from(LARGE);
        let Some(id) = db::rollouts::take_estimate(&mut conn, large, now - EVERY, now).await?
        else {
            return Ok(done);
        };
        let row = find(&mut conn, &id.to_string()).await?;
        let loaded = match fleet::load(&mut conn, &row, now).await {
            Ok(loaded) => loaded,
            Err(Error::Conflict { detail, .. }) => {
                let unreadable = RolloutEstimate {
                    unknown: Some(detail),
                    as_of: Some(now),
                    ..RolloutEstimate::default()
                };
                db::rollouts::keep_estimate(&mut conn, id, &unreadable, now).await?;
                continue;
            }
            Err(error) => return Err(error),
        };
        drop(conn);
        let calculated = tokio::task::spawn_blocking(move || {
            let calendar = &loaded.windows.calendar;
            calculate(&row.policy, &loaded.fleet, calendar, WORK_OF_THE_TASK, now)
        });
        let estimate = RolloutEstimate {
            as_of: Some(now),
            ..calculated.await.map_err(Error::internal)?
        };
        let mut conn = app.pool.acquire().await?;
        db::rollouts::keep_estimate(&mut conn, id, &estimate, now).await?;
    }
    Ok(MOST)
}

/// Returns the estimated end of an open rollout for a reader: of a plan, the end after a start now.
///
/// # Errors
/// When the database fails.
pub(super) async fn find_estimate(
    conn: &mut PgConnection,
    row: &RolloutRow,
    loaded: &Loaded,
    now: Timestamp,
) -> Result<RolloutEstimate, Error> {
    let nodes = loaded.fleet.nodes.len();
    // A halt has no end to calculate.
    if nodes < usize::from(LARGE) || row.state == RolloutState::Halted {
        let calendar = &loaded.windows.calendar;
        let fleet = &loaded.fleet;
        return Ok(calculate(&row.policy, fleet, calendar, WORK_OF_A_READ, now));
    }
    let stored = db::rollouts::find_estimate(conn, row.id).await?;
    Ok(stored.unwrap_or_else(|| RolloutEstimate {
        unknown: Some(format!(
            "the end of {nodes} nodes is being calculated: look again in a minute"
        )),
        ..RolloutEstimate::default()
    }))
}

/// Estimates the end. The sentences name no user of a job, because a reader may not see every node.
fn calculate(
    policy: &RolloutPolicy,
    fleet: &Fleet,
    calendar: &Calendar,
    work: usize,
    now: Timestamp,
) -> RolloutEstimate {
    match estimate_within(policy, &fleet.without_holders(), calendar, work, now) {
        Eta::Ended => RolloutEstimate {
            early: Some(now),
            late: Some(now),
            ..RolloutEstimate::default()
        },
        Eta::Ends(estimate) => RolloutEstimate {
            early: Some(estimate.early),
            late: Some(estimate.late),
            assumes: estimate.assumes,
            ..RolloutEstimate::default()
        },
        Eta::Unknown { why } => RolloutEstimate {
            unknown: Some(why),
            ..RolloutEstimate::default()
        },
    }
}
