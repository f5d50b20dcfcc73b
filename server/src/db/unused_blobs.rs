//! Stored blobs without a use, and the time since which a blob is unused.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::values::Digest;
use sqlx::PgConnection;

use crate::error::Error;

/// A blob without a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnusedRow {
    pub digest: Digest,
    pub since: Timestamp,
}

/// Restarts the grace time of a blob. Waits for a running removal. Afterwards no blob is removed
/// until the transaction ends.
pub async fn keep_blob(conn: &mut PgConnection, digest: Digest) -> Result<(), Error> {
    // A write of a document shares the same lock, by the triggers of migration 0083.
    sqlx::query!("SELECT pg_advisory_xact_lock_shared(727371654)")
        .execute(&mut *conn)
        .await?;
    sqlx::query!("DELETE FROM unused_blobs WHERE digest = $1", &digest.0)
        .execute(conn)
        .await?;
    Ok(())
}

/// Takes the lock for a removal of blobs until the transaction ends. `false`: another replica
/// removes, or a document that names blobs is being written.
pub async fn try_lock(conn: &mut PgConnection) -> Result<bool, Error> {
    Ok(
        sqlx::query_scalar!(r#"SELECT pg_try_advisory_xact_lock(727371654) AS "mine!""#)
            .fetch_one(conn)
            .await?,
    )
}

/// Notes blobs as unused. Noted blobs keep their time.
pub async fn insert(
    conn: &mut PgConnection,
    digests: &[Digest],
    now: Timestamp,
) -> Result<(), Error> {
    let bytes = list_bytes(digests);
    sqlx::query!(
        "INSERT INTO unused_blobs (digest, since) SELECT one.digest, $2 FROM unnest($1::bytea[]) AS one (digest)
         WHERE NOT EXISTS (SELECT FROM unused_blobs u WHERE u.digest = one.digest) ON CONFLICT (digest) DO NOTHING",
        &bytes,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the grace time of blobs in use.
pub async fn delete(conn: &mut PgConnection, digests: &[Digest]) -> Result<(), Error> {
    let bytes = list_bytes(digests);
    sqlx::query!("DELETE FROM unused_blobs WHERE digest = ANY ($1)", &bytes)
        .execute(conn)
        .await?;
    Ok(())
}

/// Forgets a removed blob with its upload.
pub async fn delete_removed(conn: &mut PgConnection, digest: Digest) -> Result<(), Error> {
    delete(&mut *conn, &[digest]).await?;
    sqlx::query!("DELETE FROM blobs WHERE digest = $1", &digest.0)
        .execute(conn)
        .await?;
    Ok(())
}

/// Lists blobs that are unused since before a time, the oldest first. The list is empty after a
/// caution that ended later: a restored database may have lost documents with the blobs.
///
/// # Errors
/// When a stored digest has another length.
pub async fn list_old(
    conn: &mut PgConnection,
    before: Timestamp,
    limit: i64,
) -> Result<Vec<UnusedRow>, Error> {
    let rows = sqlx::query!(
        "SELECT digest, since FROM unused_blobs WHERE since < $1
           AND NOT EXISTS (SELECT FROM cautions c WHERE COALESCE(c.confirmed_at, c.noticed_at) >= $1)
         ORDER BY since, digest LIMIT $2",
        before.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let read = |bytes: Vec<u8>, since: Timestamp| match <[u8; 32]>::try_from(bytes) {
        Ok(bytes) => Ok(UnusedRow {
            digest: Digest(bytes),
            since,
        }),
        Err(_) => Err(Error::internal(anyhow::anyhow!("a digest has 32 bytes"))),
    };
    rows.into_iter()
        .map(|row| read(row.digest, row.since.to_jiff()))
        .collect()
}

fn list_bytes(digests: &[Digest]) -> Vec<Vec<u8>> {
    digests.iter().map(|digest| digest.0.to_vec()).collect()
}
