//! Log lines of jobs. The log of a job has a size: beyond the size the first lines and the newest
//! lines stay, and a line marks the gap between both.

use jiff_sqlx::ToSqlx as _;
use muster_core::ids::JobId;
use muster_core::wire::calls::LogLine;
use sqlx::PgConnection;

use crate::error::Error;

/// Maximum size of a job's log in bytes. A line counts with its text and [`LINE_COST`].
const LOG_BYTES: i64 = 2 << 20;
/// Size of the first lines, which are kept.
const HEAD_BYTES: i64 = 1 << 20;
/// Size of the newest lines kept by a removal. The removal makes room for the next lines.
const TAIL_BYTES: i64 = 768 << 10;
/// Size of a line beside its text, so that empty lines count too.
const LINE_COST: i32 = 100;

/// The line in place of removed lines.
const GAP: &str = "… lines were removed here: the log of a job has at most 2 MiB, and keeps the first lines and the newest lines";

/// Appends log lines of an attempt, and removes lines in the middle of a log that is too large. The
/// caller holds the job's lock.
pub async fn append(
    conn: &mut PgConnection,
    job: JobId,
    attempt: i32,
    lines: &[LogLine],
) -> Result<(), Error> {
    if lines.is_empty() {
        return Ok(());
    }
    let at: Vec<jiff_sqlx::Timestamp> = lines.iter().map(|line| line.at.to_sqlx()).collect();
    let text: Vec<String> = lines.iter().map(|line| clean(&line.text)).collect();
    sqlx::query!(
        "INSERT INTO job_logs (job_id, attempt, at, text)
         SELECT $1, $2, line.at, line.text FROM unnest($3::timestamptz[], $4::text[]) AS line (at, text)",
        job as JobId,
        attempt,
        &at as _,
        &text,
    )
    .execute(&mut *conn)
    .await?;
    match measure(conn, job).await? > LOG_BYTES {
        true => remove_middle(conn, job).await,
        false => Ok(()),
    }
}

/// Prepares a line for storage: at most 4096 characters, without NUL (which Postgres cannot store).
fn clean(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(4096).collect()
}

/// Returns the size of a job's log.
async fn measure(conn: &mut PgConnection, job: JobId) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT COALESCE(sum(octet_length(text) + $2::integer), 0)::bigint AS "size!" FROM job_logs WHERE job_id = $1"#,
        job as JobId,
        LINE_COST,
    )
    .fetch_one(conn)
    .await?)
}

/// Removes the lines between the first and the newest. The first removed line becomes the mark of
/// the gap. A later removal begins at the same mark.
async fn remove_middle(conn: &mut PgConnection, job: JobId) -> Result<(), Error> {
    sqlx::query!(
        "WITH sized AS (
             SELECT id, is_gap, sum(octet_length(text) + $2::integer) OVER (ORDER BY id) AS till,
                    sum(octet_length(text) + $2::integer) OVER (ORDER BY id DESC) AS since
             FROM job_logs WHERE job_id = $1),
         middle AS (
             SELECT id FROM sized
             WHERE since > $4::bigint
               AND id >= COALESCE((SELECT min(id) FROM sized WHERE is_gap), (SELECT min(id) FROM sized WHERE till > $3::bigint))),
         removed AS (
             DELETE FROM job_logs WHERE id IN (SELECT id FROM middle) AND id > (SELECT min(id) FROM middle))
         UPDATE job_logs SET is_gap = true, text = $5 WHERE id = (SELECT min(id) FROM middle)",
        job as JobId,
        LINE_COST,
        HEAD_BYTES,
        TAIL_BYTES,
        GAP,
    )
    .execute(conn)
    .await?;
    Ok(())
}
