//! Tokens, people and role bindings from before a change of their role's verbs. Such roles keep the
//! lost verbs for one version: the release verbs (migration 0065) or the raw verbs (0074).

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::access::Role;
use muster_core::ids::TokenId;
use sqlx::PgConnection;

use crate::error::Error;

/// A token or a person with kept verbs.
#[derive(Clone, Debug)]
pub struct KeptRow {
    pub name: String,
    pub role: Role,
    /// The latest recorded use of a kept verb, at most one a day.
    pub lost_verbs_used_at: Option<jiff_sqlx::Timestamp>,
}

/// A role binding with kept verbs.
#[derive(Clone, Debug)]
pub struct KeptBinding {
    pub name: String,
    pub subject: String,
    pub role: String,
}

/// Lists the valid tokens with kept verbs, by name. At most 1000.
///
/// # Errors
/// When the database fails.
pub async fn list_tokens(conn: &mut PgConnection, now: Timestamp) -> Result<Vec<KeptRow>, Error> {
    Ok(sqlx::query_as!(
        KeptRow,
        "SELECT name, role, release_verbs_used_at AS lost_verbs_used_at FROM tokens
         WHERE keeps_release_verbs AND revoked_at IS NULL AND expires_at > $1 ORDER BY name LIMIT 1000",
        now.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the people with kept verbs, by name. At most 1000.
///
/// # Errors
/// When the database fails.
pub async fn list_people(conn: &mut PgConnection) -> Result<Vec<KeptRow>, Error> {
    Ok(sqlx::query_as!(
        KeptRow,
        "SELECT name, role, release_verbs_used_at AS lost_verbs_used_at FROM users
         WHERE keeps_release_verbs AND disabled_at IS NULL ORDER BY name LIMIT 1000",
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the role bindings with kept verbs, by name. At most 1000.
///
/// # Errors
/// When the database fails.
pub async fn list_bindings(conn: &mut PgConnection) -> Result<Vec<KeptBinding>, Error> {
    Ok(sqlx::query_as!(
        KeptBinding,
        r#"SELECT name, coalesce(spec ->> 'subject', '') AS "subject!", coalesce(spec ->> 'role', '') AS "role!" FROM objects
           WHERE keeps_release_verbs ORDER BY name LIMIT 1000"#,
    )
    .fetch_all(conn)
    .await?)
}

/// Records that a token used a kept verb. `false`: a use within the last day is recorded already, or
/// another request holds the row. The statement never waits, because the caller holds locks.
///
/// # Errors
/// When the database fails.
pub async fn note_token(
    conn: &mut PgConnection,
    id: TokenId,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE tokens SET release_verbs_used_at = $2 WHERE id IN (
             SELECT id FROM tokens
             WHERE id = $1 AND (release_verbs_used_at IS NULL OR release_verbs_used_at <= $2::timestamptz - interval '1 day')
             FOR NO KEY UPDATE SKIP LOCKED)",
        id as TokenId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Records that a person used a kept verb. `false`: as [`note_token`].
///
/// # Errors
/// When the database fails.
pub async fn note_person(
    conn: &mut PgConnection,
    name: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE users SET release_verbs_used_at = $2 WHERE id IN (
             SELECT id FROM users
             WHERE name = $1 AND (release_verbs_used_at IS NULL OR release_verbs_used_at <= $2::timestamptz - interval '1 day')
             FOR NO KEY UPDATE SKIP LOCKED)",
        name,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
