//! API tokens of machines. Only a hash of each token is stored, usually keyed (MAC).

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::access::{Role, Scope};
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
    /// The key used for the MAC. `None`: the hash is a plain SHA-256.
    pub key_id: Option<String>,
    pub role: Role,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub last_used: Option<jiff_sqlx::Timestamp>,
    pub revoked_at: Option<jiff_sqlx::Timestamp>,
    /// The person owning the token. `None`: the token was made with direct access to the database,
    /// without a signed-in person.
    pub person: Option<String>,
    pub releases_per_hour: Option<i32>,
    /// The scope in which the role is granted.
    pub scope: Json<Scope>,
    /// The token used to create this token.
    pub made_by: Option<TokenId>,
    /// The stored role is older than a change of its verbs, and keeps the lost verbs.
    pub keeps_lost_verbs: bool,
    /// An administrator's token without a person, older than the need to arm the local
    /// administrator.
    pub keeps_unarmed: bool,
    /// The seal over the members that decide rights.
    pub seal: Option<Vec<u8>>,
    /// The seal over a plain hash.
    pub plain_seal: Option<Vec<u8>>,
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

/// Inserts a token. A taken name is a conflict.
///
/// # Errors
/// When the name is taken.
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

/// Replaces the stored hash of a token, unless another transaction has replaced the hash meanwhile.
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

/// The owner and limits of a token.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    pub person: &'a str,
    pub made_by: Option<TokenId>,
    /// The scope in which the role is granted.
    pub scope: &'a Scope,
    /// Maximum number of nodes released per hour without a second person.
    pub releases_per_hour: i32,
}

/// Stores the owner and limits of a token.
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

/// Returns one token in any state, expired and revoked included.
pub async fn find(conn: &mut PgConnection, id: TokenId) -> Result<Option<TokenRow>, Error> {
    Ok(sqlx::query_as!(TokenRow, r#"SELECT id AS "id: TokenId", name, token_hash, key_id, role, created_at, expires_at, last_used, revoked_at, person, releases_per_hour,
                  scope AS "scope: Json<Scope>", made_by AS "made_by: TokenId", keeps_release_verbs AS keeps_lost_verbs, keeps_unarmed, seal, plain_seal FROM tokens WHERE id = $1"#, id as TokenId,)
        .fetch_optional(conn)
        .await?)
}

/// Returns one token by name or id, in any state.
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

/// Lists tokens by id. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<TokenRow>, Error> {
    Ok(sqlx::query_as!(TokenRow, r#"SELECT id AS "id: TokenId", name, token_hash, key_id, role, created_at, expires_at, last_used, revoked_at, person, releases_per_hour,
                  scope AS "scope: Json<Scope>", made_by AS "made_by: TokenId", keeps_release_verbs AS keeps_lost_verbs, keeps_unarmed, seal, plain_seal FROM tokens WHERE id = ANY ($1)"#, ids,)
        .fetch_all(conn)
        .await?)
}

/// Records the use of a token, at most once a minute, so that reads do not become writes.
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

/// Returns the expiry of a valid token. `None`: the token is expired or revoked. The shared lock
/// keeps the token valid until the transaction ends: a revocation waits, and then sees all tokens
/// created with this token.
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

/// A token just revoked.
#[derive(Clone, Debug)]
pub struct Revoked {
    pub id: TokenId,
    pub name: String,
}

/// Revokes a token and every token created with it, directly or indirectly. Returns the tokens
/// revoked now; tokens revoked before are not included. The seals go, so that no writer of the
/// database takes a revocation back.
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
               UPDATE tokens SET revoked_at = $2, seal = NULL FROM made WHERE tokens.id = made.id AND tokens.revoked_at IS NULL
               RETURNING tokens.id AS "id: TokenId", tokens.name"#,
            id as TokenId,
            now.to_sqlx() as _,
        )
        .fetch_all(&mut *conn)
        .await?;
        if some.is_empty() {
            return Ok(all);
        }
        // A token may have created another while its lock was awaited. Revoked tokens create no
        // more, so the loop ends.
        all.extend(some);
    }
}

/// Counts the valid tokens made with another key than `key_id`.
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
