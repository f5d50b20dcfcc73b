//! Administrators' tokens without a person, and tokens stored as plain hashes.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::TokenId;
use sqlx::PgConnection;

use crate::error::Error;

/// An administrator's token that counts without an armed local administrator.
#[derive(Clone, Debug)]
pub struct UnarmedRow {
    pub name: String,
    /// The latest recorded use or refusal, at most one a day.
    pub unarmed_seen_at: Option<jiff_sqlx::Timestamp>,
}

/// A token stored as a plain hash.
#[derive(Clone, Debug)]
pub struct PlainRow {
    pub id: TokenId,
    pub name: String,
}

/// Records a use or a refusal of an administrator's token without a person. `false`: one within the
/// last day is recorded already, or another request holds the row.
pub async fn note_use(conn: &mut PgConnection, id: TokenId, now: Timestamp) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE tokens SET unarmed_used_at = $2 WHERE id IN (
             SELECT id FROM tokens
             WHERE id = $1 AND (unarmed_used_at IS NULL OR unarmed_used_at <= $2::timestamptz - interval '1 day')
             FOR NO KEY UPDATE SKIP LOCKED)",
        id as TokenId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// An administrator's token without a person, used or refused.
#[derive(Clone, Debug)]
pub struct UsedRow {
    pub name: String,
    /// The token counts without an armed local administrator. Otherwise the use was refused.
    pub keeps_unarmed: bool,
}

/// Returns the token with the latest recorded use after a time. A refusal counts only without a
/// use.
pub async fn find_used_since(
    conn: &mut PgConnection,
    since: Timestamp,
) -> Result<Option<UsedRow>, Error> {
    Ok(sqlx::query_as!(
        UsedRow,
        "SELECT name, keeps_unarmed FROM tokens WHERE unarmed_used_at > $1 ORDER BY keeps_unarmed DESC, unarmed_used_at DESC LIMIT 1",
        since.to_sqlx() as _,
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists the valid administrators' tokens from before the rule, by name. At most 1000.
pub async fn list_kept(conn: &mut PgConnection, now: Timestamp) -> Result<Vec<UnarmedRow>, Error> {
    Ok(sqlx::query_as!(
        UnarmedRow,
        "SELECT name, unarmed_used_at AS unarmed_seen_at FROM tokens
         WHERE keeps_unarmed AND revoked_at IS NULL AND expires_at > $1 ORDER BY name LIMIT 1000",
        now.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the valid tokens stored as plain hashes, by name. At most 1000.
pub async fn list_plain(conn: &mut PgConnection, now: Timestamp) -> Result<Vec<PlainRow>, Error> {
    Ok(sqlx::query_as!(
        PlainRow,
        r#"SELECT id AS "id: TokenId", name FROM tokens
           WHERE key_id IS NULL AND revoked_at IS NULL AND expires_at > $1 ORDER BY name LIMIT 1000"#,
        now.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?)
}
