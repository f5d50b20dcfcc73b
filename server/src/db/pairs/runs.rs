//! Runs of pairs. Only one run is open per pool. The holder of the row's lock moves a run one step
//! further, and a run ends with its verdicts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::fabric::Verdicts;
use muster_core::gates::Suite;
use muster_core::ids::{ObjectId, OperationId};
use muster_core::words;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// A new run.
#[derive(Clone, Debug)]
pub struct NewRun<'a> {
    /// Also the id of the run's operation.
    pub id: OperationId,
    pub pool: ObjectId,
    pub actor: &'a str,
    pub suite: &'a Suite,
    pub variables: &'a BTreeMap<String, String>,
    pub beyond: usize,
    pub begun_at: Timestamp,
    pub deadline_at: Timestamp,
}

/// Inserts a run. Another open run of the pool is a conflict.
///
/// # Errors
/// When a constraint is violated.
pub async fn insert(conn: &mut PgConnection, run: &NewRun<'_>) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO pair_runs (id, pool_id, actor, suite, variables, beyond, begun_at, deadline_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        run.id as OperationId,
        run.pool as ObjectId,
        run.actor,
        Json(run.suite) as _,
        Json(run.variables) as _,
        i32::try_from(run.beyond).unwrap_or(i32::MAX),
        run.begun_at.to_sqlx() as _,
        run.deadline_at.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A run still measuring, or with nodes not yet returned to the scheduler.
#[derive(Clone, Debug)]
pub struct OpenRun {
    pub id: OperationId,
    pub pool: ObjectId,
    pub pool_name: String,
    pub suite: Suite,
    pub deadline_at: Timestamp,
    /// A stop of the run was requested.
    pub stop: bool,
    /// The result of the measurements, once they have ended.
    pub ended: Option<Ended>,
}

words! {
    /// The way the measurements of a run ended.
    Ending, "end of the measurements" {
        /// Every required pair is measured.
        Done = "done",
        /// The run passed its deadline.
        Overdue = "overdue",
        /// A person asked to stop the run.
        Stopped = "stopped",
        /// Fewer than two nodes could be held.
        TooFew = "too_few",
    }
}

/// The end of a run's measurements, with their verdicts.
#[derive(Clone, Debug)]
pub struct Ended {
    pub how: Ending,
    pub at: Timestamp,
    pub verdicts: Verdicts,
}

/// Locks the next run with remaining work after the id `after`. Runs locked by another replica are
/// skipped.
///
/// # Errors
/// When the stored suite or verdicts cannot be parsed.
pub async fn lock_open(
    conn: &mut PgConnection,
    after: OperationId,
) -> Result<Option<OpenRun>, Error> {
    let row = sqlx::query!(
        r#"SELECT r.id AS "id: OperationId", r.pool_id AS "pool: ObjectId", pool.name AS pool_name, r.suite AS "suite: Json<Suite>",
                  r.deadline_at, o.cancel_asked_at IS NOT NULL AS "stop!", r.ended, r.ended_at, r.verdicts AS "verdicts: Json<Verdicts>"
           FROM pair_runs r JOIN objects pool ON pool.id = r.pool_id JOIN operations o ON o.id = r.id
           WHERE r.closed_at IS NULL AND r.id > $1 ORDER BY r.id LIMIT 1 FOR UPDATE OF r SKIP LOCKED"#,
        after as OperationId,
    )
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let ended = match row.ended.zip(row.ended_at) {
        Some((how, at)) => Some(Ended {
            how,
            at: at.to_jiff(),
            verdicts: row.verdicts.map(|json| json.0).unwrap_or_default(),
        }),
        None => None,
    };
    Ok(Some(OpenRun {
        id: row.id,
        pool: row.pool,
        pool_name: row.pool_name,
        suite: row.suite.0,
        deadline_at: row.deadline_at.to_jiff(),
        stop: row.stop,
        ended,
    }))
}

/// Closes a run without remaining work. The caller holds the row's lock.
pub async fn close(conn: &mut PgConnection, run: OperationId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE pair_runs SET closed_at = $2 WHERE id = $1",
        run as OperationId,
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends a run's measurements. The caller holds the row's lock.
pub async fn end(
    conn: &mut PgConnection,
    run: OperationId,
    how: Ending,
    verdicts: &Verdicts,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE pair_runs SET ended = $2, verdicts = $3, ended_at = $4 WHERE id = $1 AND ended_at IS NULL",
        run as OperationId,
        how.as_str(),
        Json(verdicts) as _,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A run as shown to people.
#[derive(Clone, Debug)]
pub struct RunRow {
    pub id: Uuid,
    pub actor: String,
    pub suite: String,
    pub beyond: i32,
    pub begun_at: Timestamp,
    pub deadline_at: Timestamp,
    pub ended_at: Option<jiff_sqlx::Timestamp>,
    pub ended: Option<Ending>,
    pub verdicts: Option<Json<Verdicts>>,
}

/// Lists the runs of a pool, newest first.
///
/// # Errors
/// When stored verdicts cannot be parsed.
pub async fn list(
    conn: &mut PgConnection,
    pool: ObjectId,
    limit: i64,
) -> Result<Vec<RunRow>, Error> {
    Ok(sqlx::query_as!(RunRow, r#"SELECT id, actor, (suite ->> 'name') || ' ' || (suite ->> 'version') AS "suite!", beyond, begun_at, deadline_at, ended_at, ended,
                  verdicts AS "verdicts: Json<Verdicts>"
           FROM pair_runs WHERE pool_id = $1 ORDER BY begun_at DESC, id DESC LIMIT $2"#,
        pool as ObjectId,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns one run of a pool.
///
/// # Errors
/// As [`list`].
pub async fn find(
    conn: &mut PgConnection,
    pool: ObjectId,
    run: Uuid,
) -> Result<Option<RunRow>, Error> {
    Ok(
        sqlx::query_as!(RunRow, r#"SELECT id, actor, (suite ->> 'name') || ' ' || (suite ->> 'version') AS "suite!", beyond, begun_at, deadline_at, ended_at, ended,
                  verdicts AS "verdicts: Json<Verdicts>"
           FROM pair_runs WHERE pool_id = $1 AND id = $2"#, pool as ObjectId, run,)
            .fetch_optional(conn)
            .await?,
    )
}
