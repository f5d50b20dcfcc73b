//! Sessions of people at their identity provider, and the logout tokens received of late. Only
//! hashes are stored.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::UserId;
use sqlx::PgConnection;

use crate::error::Error;

/// Records the person of a provider's session.
///
/// # Errors
/// When the database fails.
pub async fn record(
    conn: &mut PgConnection,
    session: &[u8; 32],
    user: UserId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO provider_sessions (session_hash, user_id, seen_at) VALUES ($1, $2, $3)
         ON CONFLICT (session_hash) DO UPDATE SET user_id = excluded.user_id, seen_at = excluded.seen_at",
        session,
        user as UserId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the person of a provider's session.
///
/// # Errors
/// When the database fails.
pub async fn find(conn: &mut PgConnection, session: &[u8; 32]) -> Result<Option<UserId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT user_id AS "user: UserId" FROM provider_sessions WHERE session_hash = $1"#,
        session,
    )
    .fetch_optional(conn)
    .await?)
}

/// Deletes the sessions recorded before a time.
///
/// # Errors
/// When the database fails.
pub async fn delete_before(conn: &mut PgConnection, before: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "DELETE FROM provider_sessions WHERE seen_at < $1",
        before.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a logout token. `false`: the token was recorded before.
///
/// # Errors
/// When the database fails.
pub async fn note_logout(
    conn: &mut PgConnection,
    token: &[u8; 32],
    now: Timestamp,
) -> Result<bool, Error> {
    let noted = sqlx::query!(
        "INSERT INTO provider_logouts (token_hash, received_at) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        token,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(noted.rows_affected() == 1)
}

/// Deletes the logout tokens received before a time.
///
/// # Errors
/// When the database fails.
pub async fn delete_logouts(conn: &mut PgConnection, before: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "DELETE FROM provider_logouts WHERE received_at < $1",
        before.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}
