//! Uploads of blobs with the uploading actor. The bytes are files outside the database.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::values::Digest;
use sqlx::PgConnection;

use crate::error::Error;

/// Records the upload of a blob. A second upload replaces the record, because the file was missing
/// and had to be uploaded again.
pub async fn set_stored(
    conn: &mut PgConnection,
    digest: Digest,
    size: i64,
    by: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO blobs (digest, size, stored_at, stored_by) VALUES ($1, $2, $3, $4)
         ON CONFLICT (digest) DO UPDATE SET size = $2, stored_at = $3, stored_by = $4",
        &digest.0,
        size,
        now.to_sqlx() as _,
        by,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a blob found in storage, unless a record exists. Returns whether a record was added.
pub async fn insert_found(
    conn: &mut PgConnection,
    digest: Digest,
    size: i64,
    by: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "INSERT INTO blobs (digest, size, stored_at, stored_by) VALUES ($1, $2, $3, $4) ON CONFLICT (digest) DO NOTHING",
        &digest.0,
        size,
        now.to_sqlx() as _,
        by,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Returns whether the upload of a blob is recorded.
pub async fn is_recorded(conn: &mut PgConnection, digest: Digest) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM blobs WHERE digest = $1) AS "recorded!""#,
        &digest.0,
    )
    .fetch_one(conn)
    .await?)
}
