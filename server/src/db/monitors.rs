//! Monitors: the next query of each, and the last answers.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::ObjectId;
use muster_core::rollout::{Answers, MonitorState};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};

use crate::error::Error;
use crate::sealed::Sealed;

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
    /// The secret of the same moment as the spec.
    pub secret: Option<Sealed>,
}

/// A monitor by name.
#[derive(Clone, Debug)]
pub struct NamedRow {
    pub name: String,
    pub spec: Value,
    pub answers: AnswersRow,
}

impl AnswersRow {
    /// Returns the start of a state.
    pub fn since(&self, state: MonitorState) -> Option<Timestamp> {
        let since = match state {
            MonitorState::Quiet | MonitorState::Firing => self.since,
            MonitorState::Silent | MonitorState::Unknown => self.missed_since,
        };
        since.map(|at| at.to_jiff())
    }

    /// Returns the answers for the decision on the state.
    pub fn answers(&self) -> Answers {
        let at = self.answered_at.map(|at| at.to_jiff());
        Answers {
            last: at.zip(self.series.and_then(|series| u64::try_from(series).ok())),
            missed: u32::try_from(self.missed).unwrap_or_default(),
        }
    }
}

/// Forgets the answers of a new monitor, or of a monitor with another query. The query is due at once.
pub async fn restart(conn: &mut PgConnection, monitor: ObjectId) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO monitor_answers (monitor_id, due_at) VALUES ($1, '-infinity')
         ON CONFLICT (monitor_id) DO UPDATE SET due_at = '-infinity', asked_at = NULL, answered_at = NULL, series = NULL, since = NULL,
             missed = 0, missed_since = NULL, problem = NULL",
        monitor as ObjectId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Asks a monitor at once. The last answers stay.
pub async fn ask_soon(conn: &mut PgConnection, monitor: ObjectId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE monitor_answers SET due_at = '-infinity' WHERE monitor_id = $1",
        monitor as ObjectId,
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

/// Takes the due monitors: no other server asks them before `until`. After a clock was set back,
/// monitors asked in the future are due too.
pub async fn take_due(
    conn: &mut PgConnection,
    now: Timestamp,
    until: Timestamp,
    limit: i64,
) -> Result<Vec<AskedRow>, Error> {
    let mut tx = conn.begin().await?;
    let taken = sqlx::query_scalar!(
        r#"UPDATE monitor_answers SET asked_at = $1, due_at = $2 WHERE monitor_id IN (
               SELECT monitor_id FROM monitor_answers WHERE due_at <= $1 OR asked_at > $1
               ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED)
           RETURNING monitor_id AS "monitor: ObjectId""#,
        now.to_sqlx() as _,
        until.to_sqlx() as _,
        limit,
    )
    .fetch_all(&mut *tx)
    .await?;
    // Read under the locks: a change of the query or the URL waits, and then drops the answer.
    let rows = sqlx::query!(
        r#"SELECT a.monitor_id AS "monitor: ObjectId", a.asked_at AS "asked_at!: jiff_sqlx::Timestamp", o.spec,
                  s.key_id AS "key_id?", s.wrapped_key AS "wrapped_key?", s.ciphertext AS "ciphertext?"
           FROM monitor_answers a JOIN objects o ON o.id = a.monitor_id LEFT JOIN secrets s ON s.object_id = o.id
           WHERE a.monitor_id = ANY ($1)"#,
        &taken as &[ObjectId],
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    let asked = rows.into_iter().map(|row| {
        let parts = row.key_id.zip(row.wrapped_key).zip(row.ciphertext);
        AskedRow {
            monitor: row.monitor,
            asked_at: row.asked_at,
            spec: row.spec,
            secret: parts.map(|((key_id, wrapped_key), ciphertext)| Sealed {
                key_id,
                wrapped_key,
                ciphertext,
            }),
        }
    });
    Ok(asked.collect())
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
