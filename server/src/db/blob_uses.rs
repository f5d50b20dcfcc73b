//! The documents that may name blobs: all declared objects, and the revisions of pools.

use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A document without its lists of packages. The lists name no blob outside of a bundle.
#[derive(Clone, Debug)]
pub struct UserRow {
    pub id: Uuid,
    /// Kind and name, for messages.
    pub place: String,
    pub spec: Value,
    /// The digest of an image; null for other kinds.
    pub image: Value,
    /// The bundle of a stack; null for other kinds.
    pub bundle: Value,
}

/// Lists the declared objects of all kinds.
pub async fn list_documents(conn: &mut PgConnection) -> Result<Vec<UserRow>, Error> {
    Ok(sqlx::query_as!(
        UserRow,
        r#"SELECT id, kind || ' ' || name AS "place!", spec #- '{lock,packages}' #- '{packages}' AS "spec!",
                  CASE kind WHEN 'image' THEN COALESCE(spec -> 'digest', '""') ELSE 'null' END AS "image!",
                  CASE kind WHEN 'stack' THEN COALESCE(spec -> 'bundle', 'null') ELSE 'null' END AS "bundle!"
           FROM objects ORDER BY id"#,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the ids of the revisions of pools. A revision never changes.
pub async fn list_revision_ids(conn: &mut PgConnection) -> Result<Vec<Uuid>, Error> {
    Ok(
        sqlx::query_scalar!("SELECT id FROM pool_revisions ORDER BY id")
            .fetch_all(conn)
            .await?,
    )
}

/// Lists revisions by id.
pub async fn list_revisions(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<UserRow>, Error> {
    Ok(sqlx::query_as!(
        UserRow,
        r#"SELECT r.id, 'revision ' || r.number || ' of pool ' || pool.name AS "place!",
                  jsonb_build_array(r.image #- '{packages}', r.stack #- '{lock,packages}' #- '{packages}', r.network_profile) AS "spec!",
                  COALESCE(r.image -> 'digest', '""') AS "image!", COALESCE(r.stack -> 'bundle', 'null') AS "bundle!"
           FROM pool_revisions r JOIN objects pool ON pool.id = r.pool_id WHERE r.id = ANY ($1) ORDER BY r.id"#,
        ids,
    )
    .fetch_all(conn)
    .await?)
}
