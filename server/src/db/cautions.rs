//! Cautions: periods in which the database is older than other systems remember (a restored backup,
//! for example), until an administrator confirms.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::EventId;
use muster_core::wire::node::Failure;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// An unconfirmed caution.
#[derive(Clone, Debug)]
pub struct CautionRow {
    pub id: Uuid,
    pub because: String,
    pub noticed_at: Timestamp,
}

/// Returns the open caution. The database allows at most one.
pub async fn find_open(conn: &mut PgConnection) -> Result<Option<CautionRow>, Error> {
    Ok(sqlx::query_as!(
        CautionRow,
        "SELECT id, because, noticed_at FROM cautions WHERE confirmed_at IS NULL"
    )
    .fetch_optional(conn)
    .await?)
}

/// Opens a caution and voids every permit. Also raises the revision counter of cluster member lists
/// above any revision already sent. Otherwise an agent with a list from before the restore would
/// take the older list for the newer one. `false`: a caution is already open.
pub async fn open(conn: &mut PgConnection, because: &str, now: Timestamp) -> Result<bool, Error> {
    let opened = sqlx::query!(
        "INSERT INTO cautions (id, because, noticed_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        Uuid::now_v7(),
        because,
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    if opened.rows_affected() == 0 {
        return Ok(false);
    }
    // The clock before the restore may have differed. Permits of open jobs are voided even when
    // expired.
    sqlx::query!(
        "UPDATE permits p SET void = true
         WHERE NOT void AND (expires_at > $1 OR EXISTS (SELECT FROM jobs j WHERE j.permit_id = p.id AND j.state IN ('queued', 'leased')))",
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    // The time in microseconds exceeds the number of lists ever made, and grows until any later
    // caution.
    sqlx::query!(
        "SELECT setval('cluster_revisions', GREATEST(nextval('cluster_revisions'), $1))",
        now.as_microsecond(),
    )
    .fetch_one(conn)
    .await?;
    Ok(true)
}

/// Confirms and ends a caution. `false`: the given caution is not the open one.
pub async fn confirm(
    conn: &mut PgConnection,
    id: Uuid,
    by: &str,
    note: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE cautions SET confirmed_at = $2, confirmed_by = $3, note = $4 WHERE id = $1 AND confirmed_at IS NULL",
        id,
        now.to_sqlx() as _,
        by,
        note,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Fails the open jobs with void permits, so that new jobs are created under new permits, and makes
/// waiting nodes due now.
pub async fn begin_anew(
    conn: &mut PgConnection,
    failure: &Failure,
    now: Timestamp,
) -> Result<(), Error> {
    // Locks the nodes first and in order of id, the lock order used everywhere.
    sqlx::query!(
        "SELECT id FROM nodes WHERE id IN (SELECT node_id FROM jobs WHERE permit_id IS NOT NULL AND state IN ('queued', 'leased'))
         ORDER BY id FOR UPDATE"
    )
    .fetch_all(&mut *conn)
    .await?;
    super::jobs::fail_void(conn, failure, now).await?;
    sqlx::query!(
        "UPDATE nodes SET due_at = $1 WHERE due_at > $1",
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns whether an event exists in this database. `false` means that the event was written to
/// another or a newer copy.
pub async fn is_known_event(conn: &mut PgConnection, event: EventId) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM events WHERE id = $1) AS "known!""#,
        event as EventId
    )
    .fetch_one(conn)
    .await?)
}

/// Returns the latest event. `None`: the database is new.
pub async fn latest_event(conn: &mut PgConnection) -> Result<Option<EventId>, Error> {
    Ok(
        sqlx::query_scalar!(r#"SELECT id AS "id: EventId" FROM events ORDER BY seq DESC LIMIT 1"#)
            .fetch_optional(conn)
            .await?,
    )
}
