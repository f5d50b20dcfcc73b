//! Monitors: the next query of each, and the last answers.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::ObjectId;
use muster_core::rollout::Answers;
use serde_json::Value;
use sqlx::PgConnection;

use crate::error::Error;

/// The last answers of a monitor.
#[derive(Clone, Debug)]
pub struct AnswersRow {
    pub answered_at: Option<jiff_sqlx::Timestamp>,
    pub series: Option<i64>,
    pub since: Option<jiff_sqlx::Timestamp>,
    pub missed: i32,
    pub missed_since: Option<jiff_sqlx::Timestamp>,
    pub problem: Option<String>,
}

/// A monitor to be asked.
#[derive(Clone, Debug)]
pub struct AskedRow {
    pub monitor: ObjectId,
    pub asked_at: jiff_sqlx::Timestamp,
    pub spec: Value,
}

/// A monitor by name.
#[derive(Clone, Debug)]
pub struct NamedRow {
    pub name: String,
    pub spec: Value,
    pub answers: AnswersRow,
}

impl AnswersRow {
    /// Returns the answers for the decision on the state.
    pub fn answers(&self) -> Answers {
        let at = self.answered_at.map(|at| at.to_jiff());
        Answers {
            last: at.zip(self.series.and_then(|series| u64::try_from(series).ok())),
            missed: u32::try_from(self.missed).unwrap_or_default(),
        }
    }
}

/// Forgets the answers of a new or changed monitor, and asks at once.
pub async fn restart(
    conn: &mut PgConnection,
    monitor: ObjectId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO monitor_answers (monitor_id, due_at) VALUES ($1, $2)
         ON CONFLICT (monitor_id) DO UPDATE SET due_at = $2, asked_at = NULL, answered_at = NULL, series = NULL, since = NULL,
             missed = 0, missed_since = NULL, problem = NULL",
        monitor as ObjectId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the last answers of a monitor.
pub async fn find_answers(
    conn: &mut PgConnection,
    monitor: ObjectId,
) -> Result<Option<AnswersRow>, Error> {
    Ok(sqlx::query_as!(
        AnswersRow,
        r#"SELECT answered_at AS "answered_at: jiff_sqlx::Timestamp", series, since AS "since: jiff_sqlx::Timestamp", missed,
                  missed_since AS "missed_since: jiff_sqlx::Timestamp", problem
           FROM monitor_answers WHERE monitor_id = $1"#,
        monitor as ObjectId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists the monitors of these names, ordered by name. Names without a monitor are left out.
pub async fn list_named(conn: &mut PgConnection, names: &[String]) -> Result<Vec<NamedRow>, Error> {
    let rows = sqlx::query!(
        r#"SELECT o.name, o.spec, a.answered_at AS "answered_at: jiff_sqlx::Timestamp", a.series, a.since AS "since: jiff_sqlx::Timestamp",
                  a.missed, a.missed_since AS "missed_since: jiff_sqlx::Timestamp", a.problem
           FROM objects o JOIN monitor_answers a ON a.monitor_id = o.id
           WHERE o.kind = 'monitor' AND o.name = ANY ($1) ORDER BY o.name"#,
        names,
    )
    .fetch_all(conn)
    .await?;
    let named = rows.into_iter().map(|row| NamedRow {
        name: row.name,
        spec: row.spec,
        answers: AnswersRow {
            answered_at: row.answered_at,
            series: row.series,
            since: row.since,
            missed: row.missed,
            missed_since: row.missed_since,
            problem: row.problem,
        },
    });
    Ok(named.collect())
}

/// Takes the due monitors: no other server asks them before `until`.
pub async fn take_due(
    conn: &mut PgConnection,
    now: Timestamp,
    until: Timestamp,
    limit: i64,
) -> Result<Vec<AskedRow>, Error> {
    Ok(sqlx::query_as!(
        AskedRow,
        r#"UPDATE monitor_answers a SET asked_at = $1, due_at = $2 FROM objects o
           WHERE o.id = a.monitor_id AND a.monitor_id IN (
               SELECT monitor_id FROM monitor_answers WHERE due_at <= $1 ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED)
           RETURNING a.monitor_id AS "monitor: ObjectId", a.asked_at AS "asked_at!: jiff_sqlx::Timestamp", o.spec"#,
        now.to_sqlx() as _,
        until.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Records an answer. An answer to an older query, or to the query before a change, is dropped.
pub async fn set_answer(
    conn: &mut PgConnection,
    asked: &AskedRow,
    series: i64,
    due_at: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE monitor_answers SET answered_at = $2, series = $3, due_at = $4, missed = 0, missed_since = NULL, problem = NULL,
             since = CASE WHEN (series > 0) = ($3::bigint > 0) THEN since ELSE $2 END
         WHERE monitor_id = $1 AND asked_at = $2",
        asked.monitor as ObjectId,
        asked.asked_at as _,
        series,
        due_at.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a missing answer.
pub async fn set_missed(
    conn: &mut PgConnection,
    asked: &AskedRow,
    problem: &str,
    due_at: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE monitor_answers SET missed = missed + 1, missed_since = coalesce(missed_since, $2), problem = $3, due_at = $4
         WHERE monitor_id = $1 AND asked_at = $2",
        asked.monitor as ObjectId,
        asked.asked_at as _,
        problem,
        due_at.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}
