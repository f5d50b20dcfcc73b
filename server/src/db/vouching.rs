//! The latest sign-in of people by an identity provider, and the latest use of sessions.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::UserId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// The latest sign-in of a person.
#[derive(Clone, Debug)]
pub struct VouchedRow {
    pub id: UserId,
    pub vouched_at: Timestamp,
}

/// Lists the latest sign-ins of people. People without a provider are left out.
///
/// # Errors
/// When the database fails.
pub async fn list(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<VouchedRow>, Error> {
    Ok(sqlx::query_as!(
        VouchedRow,
        r#"SELECT id AS "id: UserId", vouched_at FROM users WHERE id = ANY ($1) AND issuer IS NOT NULL"#,
        ids,
    )
    .fetch_all(conn)
    .await?)
}

/// Records a sign-in of a person by a provider.
///
/// # Errors
/// When the database fails.
pub async fn set(conn: &mut PgConnection, user: UserId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE users SET vouched_at = $2 WHERE id = $1",
        user as UserId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a warning about the end of the vouching. `false`: the person was warned since the latest
/// sign-in, or another request holds the row. The statement never waits.
///
/// # Errors
/// When the database fails.
pub async fn note_warning(
    conn: &mut PgConnection,
    user: UserId,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE users SET vouch_warned_at = $2 WHERE id IN (
             SELECT id FROM users WHERE id = $1 AND (vouch_warned_at IS NULL OR vouch_warned_at < vouched_at)
             FOR NO KEY UPDATE SKIP LOCKED)",
        user as UserId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes all sessions of a person. Returns the number of deleted sessions.
///
/// # Errors
/// When the database fails.
pub async fn delete_sessions(conn: &mut PgConnection, user: UserId) -> Result<u64, Error> {
    let gone = sqlx::query!("DELETE FROM sessions WHERE user_id = $1", user as UserId)
        .execute(conn)
        .await?;
    Ok(gone.rows_affected())
}

/// Records a use of a session.
///
/// # Errors
/// When the database fails.
pub async fn set_session_use(
    conn: &mut PgConnection,
    hash: &[u8; 32],
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE sessions SET seen_at = $2 WHERE token_hash = $1",
        hash,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}
