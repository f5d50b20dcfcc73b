//! Trusted public keys, signatures of images, and pools that ask for a signature.

use muster_core::ids::{NodeId, ObjectId};
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::error::Error;

/// Lists the specs of all signing keys, ordered by name.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Value>, Error> {
    let specs = sqlx::query_scalar!(
        r#"SELECT spec AS "spec: Json<Value>" FROM objects WHERE kind = 'signing_key' ORDER BY name"#
    )
    .fetch_all(conn)
    .await?;
    Ok(specs.into_iter().map(|spec| spec.0).collect())
}

/// Lists the published signatures of images with a digest.
pub async fn list_signatures(conn: &mut PgConnection, digest: &str) -> Result<Vec<String>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT spec ->> 'signature' AS "signature!" FROM objects
           WHERE kind = 'image' AND spec ->> 'digest' = $1 AND spec ->> 'signature' IS NOT NULL ORDER BY name"#,
        digest,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns whether a pool asks for a signature.
pub async fn is_required(conn: &mut PgConnection, pool: ObjectId) -> Result<bool, Error> {
    let required = sqlx::query_scalar!(
        r#"SELECT spec @> '{"require_signature": true}' AS "required!" FROM objects WHERE id = $1"#,
        pool as ObjectId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(required.unwrap_or_default())
}

/// Returns the pool that a node is claimed for.
pub async fn find_pool(conn: &mut PgConnection, node: NodeId) -> Result<Option<ObjectId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT pool_id AS "pool: ObjectId" FROM claims WHERE node_id = $1 AND state <> 'released'"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}
