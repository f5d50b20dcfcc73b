//! Circuit breakers of the fleet: failure signatures without automatic recovery, and the person
//! allowing recovery again.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A breaker, open or closed, with its cause and times.
#[derive(Clone, Debug)]
pub struct BreakerRow {
    pub id: Uuid,
    pub signature: String,
    pub because: String,
    pub opened_at: Timestamp,
    pub closes_at: Option<jiff_sqlx::Timestamp>,
    pub closed_at: Option<jiff_sqlx::Timestamp>,
    pub closed_by: Option<String>,
}

/// Opens the breaker of a signature, unless it is already open. With `closes_at` the breaker closes
/// automatically at that time. Returns whether this call opened the breaker.
pub async fn open(
    conn: &mut PgConnection,
    signature: &str,
    because: &str,
    closes_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<bool, Error> {
    sqlx::query!(
        "UPDATE breakers SET closed_at = closes_at, closed_by = 'muster' WHERE signature = $1 AND closed_at IS NULL AND closes_at <= $2",
        signature,
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    let opened = sqlx::query!(
        "INSERT INTO breakers (id, signature, because, opened_at, closes_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (signature) WHERE closed_at IS NULL DO NOTHING",
        Uuid::now_v7(),
        signature,
        because,
        now.to_sqlx() as _,
        closes_at.map(|at| at.to_sqlx()) as _,
    )
    .execute(conn)
    .await?;
    Ok(opened.rows_affected() == 1)
}

/// Returns whether the breaker of a signature is open at a time.
pub async fn is_open(
    conn: &mut PgConnection,
    signature: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM breakers WHERE signature = $1 AND closed_at IS NULL AND (closes_at IS NULL OR closes_at > $2)) AS "open!""#,
        signature,
        now.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}

/// Returns the time of the latest close by a person for a signature. Failures counted before are
/// ignored.
pub async fn find_reset(
    conn: &mut PgConnection,
    signature: &str,
) -> Result<Option<Timestamp>, Error> {
    let reset = sqlx::query_scalar!(
        r#"SELECT max(closed_at) AS "at: jiff_sqlx::Timestamp" FROM breakers WHERE signature = $1 AND closed_by <> 'muster'"#,
        signature,
    )
    .fetch_one(conn)
    .await?;
    Ok(reset.map(|at| at.to_jiff()))
}

/// Lists breakers by id. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<BreakerRow>, Error> {
    Ok(sqlx::query_as!(
        BreakerRow,
        "SELECT id, signature, because, opened_at, closes_at, closed_at, closed_by FROM breakers WHERE id = ANY ($1)",
        ids,
    )
    .fetch_all(conn)
    .await?)
}

/// Locks and returns one breaker.
pub async fn lock(conn: &mut PgConnection, id: Uuid) -> Result<Option<BreakerRow>, Error> {
    Ok(sqlx::query_as!(
        BreakerRow,
        "SELECT id, signature, because, opened_at, closes_at, closed_at, closed_by FROM breakers WHERE id = $1 FOR UPDATE",
        id,
    )
    .fetch_optional(conn)
    .await?)
}

/// Closes an open breaker. `false`: the breaker was not open.
pub async fn close(
    conn: &mut PgConnection,
    id: Uuid,
    by: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let closed = sqlx::query!(
        "UPDATE breakers SET closed_at = $2, closed_by = $3 WHERE id = $1 AND closed_at IS NULL",
        id,
        now.to_sqlx() as _,
        by,
    )
    .execute(conn)
    .await?;
    Ok(closed.rows_affected() == 1)
}
