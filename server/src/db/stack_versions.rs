//! The digests of published versions of stacks. A version never changes.

use muster_core::ids::ObjectId;
use sqlx::PgConnection;

use crate::error::Error;

/// Records the digest of a version, unless the version has a digest. Returns the digest of the
/// version. A server of the version before has written the digest into an event only.
pub async fn publish(
    conn: &mut PgConnection,
    stack: ObjectId,
    version: &str,
    digest: &str,
) -> Result<String, Error> {
    sqlx::query!(
        "INSERT INTO stack_versions (stack_id, version, digest)
         SELECT $1::uuid, $2::text, COALESCE(
             (SELECT e.detail ->> 'digest' FROM events e
              WHERE e.object_id = $1 AND e.detail ->> 'version' = $2 AND e.detail ->> 'digest' IS NOT NULL ORDER BY e.seq LIMIT 1), $3::text)
         ON CONFLICT (stack_id, version) DO NOTHING",
        stack as ObjectId,
        version,
        digest,
    )
    .execute(&mut *conn)
    .await?;
    Ok(sqlx::query_scalar!(
        "SELECT digest FROM stack_versions WHERE stack_id = $1 AND version = $2",
        stack as ObjectId,
        version,
    )
    .fetch_one(conn)
    .await?)
}
