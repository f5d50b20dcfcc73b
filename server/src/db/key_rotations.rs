//! Rotations of the server's keys, and the keys that each running server holds.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A rotation under way, by the ids of its keys.
#[derive(Clone, Debug)]
pub struct RotationRow {
    pub former: String,
    pub next: String,
    pub begun_at: jiff_sqlx::Timestamp,
}

/// A running server, by its latest report.
#[derive(Clone, Debug)]
pub struct HolderRow {
    pub host: String,
    /// Ids of the held master keys.
    pub keys: Vec<String>,
    /// Ids of the accepted authorities of agents. Empty: a server of the version before.
    pub authorities: Vec<String>,
    pub seen_at: jiff_sqlx::Timestamp,
}

/// Waits for another act on the server's keys, until the end of the transaction.
pub async fn lock_acts(conn: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        "key rotations"
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the rotation of a key. `None`: no rotation is under way.
pub async fn find(conn: &mut PgConnection, key: &str) -> Result<Option<RotationRow>, Error> {
    Ok(sqlx::query_as!(
        RotationRow,
        "SELECT former, next, begun_at FROM key_rotations WHERE key = $1",
        key
    )
    .fetch_optional(conn)
    .await?)
}

/// A new rotation.
#[derive(Clone, Copy, Debug)]
pub struct NewRotation<'a> {
    pub key: &'a str,
    pub former: &'a str,
    pub next: &'a str,
}

/// Stores a rotation.
pub async fn insert(
    conn: &mut PgConnection,
    rotation: NewRotation<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO key_rotations (key, former, next, begun_at) VALUES ($1, $2, $3, $4)",
        rotation.key,
        rotation.former,
        rotation.next,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends a rotation.
pub async fn delete(conn: &mut PgConnection, key: &str) -> Result<(), Error> {
    sqlx::query!("DELETE FROM key_rotations WHERE key = $1", key)
        .execute(conn)
        .await?;
    Ok(())
}

/// Records the keys of a running server.
pub async fn report_holder(
    conn: &mut PgConnection,
    replica: Uuid,
    holder: &HolderRow,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO key_holders (replica, host, keys, seen_at, authorities) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (replica) DO UPDATE SET host = $2, keys = $3, seen_at = $4, authorities = $5",
        replica,
        holder.host,
        &holder.keys[..],
        holder.seen_at as _,
        &holder.authorities[..],
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists the servers with a report since a time, 1000 at most.
pub async fn list_holders(
    conn: &mut PgConnection,
    since: Timestamp,
) -> Result<Vec<HolderRow>, Error> {
    Ok(sqlx::query_as!(
        HolderRow,
        "SELECT host, keys, seen_at, authorities FROM key_holders WHERE seen_at >= $1 ORDER BY host, replica LIMIT 1000",
        since.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?)
}

/// Forgets the servers without a report since a time.
pub async fn delete_holders(conn: &mut PgConnection, before: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "DELETE FROM key_holders WHERE seen_at < $1",
        before.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}
