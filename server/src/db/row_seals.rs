//! Seals of the rows that decide rights, and the window for rows of the version before.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::access::Scope;
use muster_core::ids::{TokenId, UserId};
use sqlx::PgConnection;
use sqlx::types::Json;

use super::tokens::TokenRow;
use super::users::UserRow;
use crate::error::Error;

/// The window for rows without a seal.
#[derive(Clone, Debug)]
pub struct WindowRow {
    pub opened_at: Timestamp,
    pub until: Timestamp,
    pub seal: Vec<u8>,
}

/// The members of a session that the seal covers.
#[derive(Clone, Debug)]
pub struct OpenSession {
    pub token_hash: Vec<u8>,
    pub user_id: UserId,
    pub expires_at: Timestamp,
    pub seal: Option<Vec<u8>>,
}

/// Seals to write over a token.
#[derive(Clone, Copy, Debug)]
pub struct TokenSeals<'a> {
    /// The stored seal, as read.
    pub before: Option<&'a [u8]>,
    pub seal: &'a [u8],
    /// The seal over a plain hash.
    pub plain: Option<&'a [u8]>,
}

/// Seals a token, unless another transaction has sealed or revoked the token meanwhile. `false`:
/// not sealed.
pub async fn set_token(
    conn: &mut PgConnection,
    id: TokenId,
    seals: TokenSeals<'_>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE tokens SET seal = $3, plain_seal = $4, seal_refused_at = NULL WHERE id = $1 AND seal IS NOT DISTINCT FROM $2 AND revoked_at IS NULL",
        id as TokenId,
        seals.before,
        seals.seal,
        seals.plain,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Seals a person, unless another transaction has sealed the person meanwhile. `before` is the
/// stored seal, as read. `false`: not sealed.
pub async fn set_user(
    conn: &mut PgConnection,
    id: UserId,
    before: Option<&[u8]>,
    seal: &[u8],
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE users SET seal = $3, seal_refused_at = NULL WHERE id = $1 AND seal IS NOT DISTINCT FROM $2",
        id as UserId,
        before,
        seal,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Seals a session. `false`: the session has ended.
pub async fn set_session(
    conn: &mut PgConnection,
    token_hash: &[u8],
    seal: &[u8],
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE sessions SET seal = $2, seal_refused_at = NULL WHERE token_hash = $1",
        token_hash,
        seal,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Lists valid tokens after an id, 500 at most.
pub async fn list_tokens(
    conn: &mut PgConnection,
    after: TokenId,
    now: Timestamp,
) -> Result<Vec<TokenRow>, Error> {
    Ok(sqlx::query_as!(
        TokenRow,
        r#"SELECT id AS "id: TokenId", name, token_hash, key_id, role, created_at, expires_at, last_used, revoked_at, person, releases_per_hour,
                  scope AS "scope: Json<Scope>", made_by AS "made_by: TokenId", keeps_release_verbs AS keeps_lost_verbs, keeps_unarmed, seal, plain_seal
           FROM tokens WHERE id > $1 AND revoked_at IS NULL AND expires_at > $2 ORDER BY id LIMIT 500"#,
        after as TokenId,
        now.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists people after an id, 500 at most.
pub async fn list_users(conn: &mut PgConnection, after: UserId) -> Result<Vec<UserRow>, Error> {
    Ok(sqlx::query_as!(
        UserRow,
        r#"SELECT id AS "id: UserId", name, password_hash, role, groups, disabled_at IS NOT NULL AS "disabled!", last_seen, keeps_release_verbs AS keeps_lost_verbs, vouched_at, issuer, subject, seal
           FROM users WHERE id > $1 ORDER BY id LIMIT 500"#,
        after as UserId,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists open sessions after a hash, 500 at most.
pub async fn list_sessions(
    conn: &mut PgConnection,
    after: &[u8],
    now: Timestamp,
) -> Result<Vec<OpenSession>, Error> {
    Ok(sqlx::query_as!(
        OpenSession,
        r#"SELECT token_hash, user_id AS "user_id: UserId", expires_at, seal
           FROM sessions WHERE token_hash > $1 AND expires_at > $2 ORDER BY token_hash LIMIT 500"#,
        after,
        now.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?)
}

/// Records the refusal of a token. `false`: a refusal is recorded already, or another request holds
/// the row.
pub async fn note_token(
    conn: &mut PgConnection,
    id: TokenId,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE tokens SET seal_refused_at = $2
         WHERE id IN (SELECT id FROM tokens WHERE id = $1 AND seal_refused_at IS NULL FOR NO KEY UPDATE SKIP LOCKED)",
        id as TokenId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Records the refusal of a person. `false`: as [`note_token`].
pub async fn note_user(conn: &mut PgConnection, id: UserId, now: Timestamp) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE users SET seal_refused_at = $2
         WHERE id IN (SELECT id FROM users WHERE id = $1 AND seal_refused_at IS NULL FOR NO KEY UPDATE SKIP LOCKED)",
        id as UserId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Records the refusal of a session. `false`: as [`note_token`].
pub async fn note_session(
    conn: &mut PgConnection,
    token_hash: &[u8],
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE sessions SET seal_refused_at = $2
         WHERE token_hash IN (SELECT token_hash FROM sessions WHERE token_hash = $1 AND seal_refused_at IS NULL FOR NO KEY UPDATE SKIP LOCKED)",
        token_hash,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Returns the window, open or closed. `None`: rows of the version before were not adopted.
pub async fn find_window(conn: &mut PgConnection) -> Result<Option<WindowRow>, Error> {
    Ok(
        sqlx::query_as!(WindowRow, "SELECT opened_at, until, seal FROM row_seals")
            .fetch_optional(conn)
            .await?,
    )
}

/// Stores the first window. `false`: another replica has stored a window.
pub async fn insert_window(conn: &mut PgConnection, window: &WindowRow) -> Result<bool, Error> {
    let done = sqlx::query!(
        "INSERT INTO row_seals (opened_at, until, seal) VALUES ($1, $2, $3) ON CONFLICT (single) DO NOTHING",
        window.opened_at.to_sqlx() as _,
        window.until.to_sqlx() as _,
        window.seal,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Stores or replaces the window.
pub async fn set_window(conn: &mut PgConnection, window: &WindowRow) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO row_seals (opened_at, until, seal) VALUES ($1, $2, $3)
         ON CONFLICT (single) DO UPDATE SET opened_at = $1, until = $2, seal = $3",
        window.opened_at.to_sqlx() as _,
        window.until.to_sqlx() as _,
        window.seal,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Replaces the seal of the window, unless another window was stored meanwhile.
pub async fn set_window_seal(
    conn: &mut PgConnection,
    before: &[u8],
    seal: &[u8],
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE row_seals SET seal = $2 WHERE seal = $1",
        before,
        seal
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns whether the history tells of an adoption, or of a seal by a person, removed segments
/// included.
pub async fn is_adoption_known(conn: &mut PgConnection) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM events WHERE kind IN ('rows.adopted', 'rows.sealed'))
                  OR EXISTS (SELECT FROM removed_segments WHERE tells_adoption) AS "known!""#
    )
    .fetch_one(conn)
    .await?)
}
