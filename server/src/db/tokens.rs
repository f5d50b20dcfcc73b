//! Tokens of machines. Only what a key makes of them is stored.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::access::Scope;
use muster_core::ids::TokenId;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;
use crate::sealed::TokenMac;

/// A token as stored.
#[derive(Clone, Debug)]
pub struct TokenRow {
    pub id: TokenId,
    pub name: String,
    pub token_hash: Vec<u8>,
    /// Which key made it; none of a plain SHA-256.
    pub key_id: Option<String>,
    pub role: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub last_used: Option<jiff_sqlx::Timestamp>,
    pub revoked_at: Option<jiff_sqlx::Timestamp>,
    /// Whom it was made by; nobody's where it was made beside the database.
    pub person: Option<String>,
    pub releases_per_hour: Option<i32>,
    /// Where its role holds.
    pub scope: Json<Scope>,
    /// The token that it was made with.
    pub made_by: Option<TokenId>,
}

/// A token to write.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub id: TokenId,
    pub name: String,
    pub mac: TokenMac,
    pub role: &'static str,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Writes a token. A taken name is a conflict.
///
/// # Errors
/// When the database fails or the name is taken.
pub async fn insert(conn: &mut PgConnection, token: &NewToken) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO tokens (id, name, token_hash, key_id, role, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        token.id as TokenId,
        token.name,
        &token.mac.mac,
        token.mac.key_id,
        token.role,
        token.created_at.to_sqlx() as _,
        token.expires_at.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Keeps a token in another way, unless somebody else did meanwhile.
///
/// # Errors
/// When the database fails.
pub async fn set_mac(
    conn: &mut PgConnection,
    id: TokenId,
    before: &[u8],
    mac: &TokenMac,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE tokens SET token_hash = $3, key_id = $4 WHERE id = $1 AND token_hash = $2",
        id as TokenId,
        before,
        &mac.mac,
        mac.key_id,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What a token is held to.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    pub person: &'a str,
    pub made_by: Option<TokenId>,
    /// Where its role holds.
    pub scope: &'a Scope,
    /// How many nodes it may release in an hour alone.
    pub releases_per_hour: i32,
}

/// Writes down whose token it is, and what it is held to.
///
/// # Errors
/// When the database fails.
pub async fn set_owner(
    conn: &mut PgConnection,
    id: TokenId,
    owner: Owner<'_>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE tokens SET person = $2, releases_per_hour = $3, scope = $4, made_by = $5 WHERE id = $1",
        id as TokenId,
        owner.person,
        owner.releases_per_hour,
        Json(owner.scope) as _,
        owner.made_by as Option<TokenId>,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// One token, whatever became of it.
///
/// # Errors
/// When the database fails.
pub async fn find(conn: &mut PgConnection, id: TokenId) -> Result<Option<TokenRow>, Error> {
    Ok(sqlx::query_as!(
        TokenRow,
        r#"SELECT id AS "id: TokenId", name, token_hash, key_id, role, created_at, expires_at, last_used, revoked_at, person, releases_per_hour,
                  scope AS "scope: Json<Scope>", made_by AS "made_by: TokenId" FROM tokens WHERE id = $1"#,
        id as TokenId,
    )
    .fetch_optional(conn)
    .await?)
}

/// One token by name or id, whatever became of it.
///
/// # Errors
/// When the database fails.
pub async fn find_named(conn: &mut PgConnection, key: &str) -> Result<Option<TokenRow>, Error> {
    let id = sqlx::query_scalar!(
        r#"SELECT id AS "id: TokenId" FROM tokens WHERE name = $1 OR id = $2"#,
        key,
        Uuid::parse_str(key).ok(),
    );
    match id.fetch_optional(&mut *conn).await? {
        Some(id) => find(conn, id).await,
        None => Ok(None),
    }
}

/// Tokens by id; ids that are gone are left out.
///
/// # Errors
/// When the database fails.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<TokenRow>, Error> {
    Ok(sqlx::query_as!(
        TokenRow,
        r#"SELECT id AS "id: TokenId", name, token_hash, key_id, role, created_at, expires_at, last_used, revoked_at, person, releases_per_hour,
                  scope AS "scope: Json<Scope>", made_by AS "made_by: TokenId" FROM tokens WHERE id = ANY ($1)"#,
        ids,
    )
    .fetch_all(conn)
    .await?)
}

/// Notes the use of a token, at most once a minute: reads must not become writes.
///
/// # Errors
/// When the database fails.
pub async fn set_last_used(
    conn: &mut PgConnection,
    id: TokenId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE tokens SET last_used = $2 WHERE id = $1 AND (last_used IS NULL OR last_used < $2::timestamptz - interval '1 minute')",
        id as TokenId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// When a token that counts ends; nothing of one that does not. It counts until the caller's transaction ends: whoever revokes it waits for that, and then
/// sees what was made with it.
///
/// # Errors
/// When the database fails.
pub async fn hold(
    conn: &mut PgConnection,
    id: TokenId,
    now: Timestamp,
) -> Result<Option<Timestamp>, Error> {
    let held = sqlx::query_scalar!(
        "SELECT expires_at FROM tokens WHERE id = $1 AND revoked_at IS NULL AND expires_at > $2 FOR SHARE",
        id as TokenId,
        now.to_sqlx() as _,
    );
    Ok(held
        .fetch_optional(conn)
        .await?
        .map(|until| until.to_jiff()))
}

/// A token that was just ended.
#[derive(Clone, Debug)]
pub struct Revoked {
    pub id: TokenId,
    pub name: String,
}

/// Ends a token now, and every token that was made with it, or with one of those; which they were. None of them where they had ended before.
///
/// # Errors
/// When the database fails.
pub async fn revoke(
    conn: &mut PgConnection,
    id: TokenId,
    now: Timestamp,
) -> Result<Vec<Revoked>, Error> {
    let mut all = Vec::new();
    loop {
        let some = sqlx::query_as!(
            Revoked,
            r#"WITH RECURSIVE made (id) AS (
                   SELECT $1::uuid UNION SELECT t.id FROM tokens t JOIN made m ON t.made_by = m.id)
               UPDATE tokens SET revoked_at = $2 FROM made WHERE tokens.id = made.id AND tokens.revoked_at IS NULL
               RETURNING tokens.id AS "id: TokenId", tokens.name"#,
            id as TokenId,
            now.to_sqlx() as _,
        )
        .fetch_all(&mut *conn)
        .await?;
        if some.is_empty() {
            return Ok(all);
        }
        // One of them may have made another while it was waited for: none of these does any more.
        all.extend(some);
    }
}

/// How many tokens that still count were made with another key than this one.
///
/// # Errors
/// When the database fails.
pub async fn count_of_other_keys(
    conn: &mut PgConnection,
    key_id: &str,
    now: Timestamp,
) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM tokens
           WHERE key_id <> $1 AND revoked_at IS NULL AND expires_at > $2"#,
        key_id,
        now.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}
