//! Starts of `once` acts. Each start is committed before the act, so that a later attempt sees a
//! possible earlier execution.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::JobId;
use muster_core::wire::job::ActRecord;
use sqlx::PgConnection;

use crate::error::Error;

/// Records the start of an act. Returns the existing record when the same round of the job has
/// already started the act, and `None` when the start is new.
pub async fn start(
    conn: &mut PgConnection,
    job: JobId,
    round: i32,
    act: &str,
    attempt: i32,
    before: &str,
    now: Timestamp,
) -> Result<Option<ActRecord>, Error> {
    let inserted = sqlx::query!(
        "INSERT INTO job_acts (job_id, round, act, attempt, before, started_at) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT DO NOTHING",
        job as JobId,
        round,
        act,
        attempt,
        before,
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    if inserted.rows_affected() == 1 {
        return Ok(None);
    }
    let known = list(conn, job, round, now).await?;
    Ok(known.into_iter().find(|record| record.act == act))
}

/// Lists the acts of a job's round, oldest first.
pub async fn list(
    conn: &mut PgConnection,
    job: JobId,
    round: i32,
    now: Timestamp,
) -> Result<Vec<ActRecord>, Error> {
    let rows = sqlx::query!(
        "SELECT act, attempt, before, started_at FROM job_acts WHERE job_id = $1 AND round = $2 ORDER BY started_at",
        job as JobId,
        round,
    )
    .fetch_all(conn)
    .await?;
    let record = |started_at: Timestamp, act, attempt, before| ActRecord {
        attempt,
        act,
        before,
        started_at,
        age_s: u64::try_from((now - started_at).get_seconds()).unwrap_or(0),
    };
    Ok(rows
        .into_iter()
        .map(|row| record(row.started_at.to_jiff(), row.act, row.attempt, row.before))
        .collect())
}
