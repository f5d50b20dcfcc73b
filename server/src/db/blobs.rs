//! Which blobs were brought, by whom. The bytes are files.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::values::Digest;
use sqlx::PgConnection;

use crate::error::Error;

/// Writes down who brought a blob. One that was brought before is brought again: its file was gone.
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

/// Writes down who brought a blob that is here, unless that is known; whether it was not.
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
