//! Idempotency keys. Each key is stored in the transaction of its effect, so that a repeated
//! request takes effect once.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use serde_json::Value;
use sqlx::PgConnection;

use crate::error::Error;

/// A stored answer.
#[derive(Clone, Debug)]
pub struct StoredAnswer {
    /// Hash of the answered request.
    pub request: Vec<u8>,
    pub status: i32,
    pub body: Value,
    pub location: Option<String>,
}

/// Waits for a concurrent request with the same key to end, then returns the stored answer, if any.
pub async fn find(
    conn: &mut PgConnection,
    actor: &str,
    key: &str,
) -> Result<Option<StoredAnswer>, Error> {
    let lock = format!("idempotency {actor} {key}");
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        lock
    )
    .execute(&mut *conn)
    .await?;
    Ok(sqlx::query_as!(
        StoredAnswer,
        "SELECT request, status, body, location FROM idempotency_keys WHERE actor = $1 AND key = $2",
        actor,
        key,
    )
    .fetch_optional(conn)
    .await?)
}

/// Stores an answer under its key.
pub async fn insert(
    conn: &mut PgConnection,
    actor: &str,
    key: &str,
    answer: &StoredAnswer,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO idempotency_keys (actor, key, request, status, body, location, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        actor,
        key,
        answer.request,
        answer.status,
        answer.body,
        answer.location,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes at most `limit` keys older than `before`. Returns the number of deleted keys.
pub async fn delete_old(
    conn: &mut PgConnection,
    before: Timestamp,
    limit: i64,
) -> Result<u64, Error> {
    let gone = sqlx::query!(
        "DELETE FROM idempotency_keys k USING (
             SELECT actor, key FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
         ) old WHERE k.actor = old.actor AND k.key = old.key",
        before.to_sqlx() as _,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(gone.rows_affected())
}
