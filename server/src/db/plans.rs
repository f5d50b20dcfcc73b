//! The nodes affected by a change: nodes claimed by the pools depending on the changed object.

use muster_core::ids::ObjectId;
use serde_json::Value;
use sqlx::PgConnection;

use crate::error::Error;

/// Lists the pools depending on an object: the pool itself, pools referring to the object, and
/// pools referring to a referrer of the object.
pub async fn list_pools(conn: &mut PgConnection, object: ObjectId) -> Result<Vec<ObjectId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: ObjectId" FROM objects WHERE kind = 'pool' AND (
               id = $1 OR id IN (SELECT from_id FROM object_refs WHERE to_id = $1)
               OR id IN (SELECT p.from_id FROM object_refs p JOIN object_refs s ON s.from_id = p.to_id WHERE s.to_id = $1))"#,
        object as ObjectId,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the names of nodes claimed by the pools, ordered by name, and counts all of them.
pub async fn list_held(
    conn: &mut PgConnection,
    pools: &[ObjectId],
    limit: i64,
) -> Result<(Vec<String>, i64), Error> {
    let ids: Vec<uuid::Uuid> = pools.iter().map(|id| id.0).collect();
    let names = sqlx::query_scalar!(
        "SELECT n.name FROM claims c JOIN nodes n ON n.id = c.node_id
         WHERE c.state <> 'released' AND c.pool_id = ANY($1) ORDER BY n.name LIMIT $2",
        &ids,
        limit,
    )
    .fetch_all(&mut *conn)
    .await?;
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM claims WHERE state <> 'released' AND pool_id = ANY($1)"#,
        &ids,
    )
    .fetch_one(conn)
    .await?;
    Ok((names, count))
}

/// Lists the specs of the suites named by pools.
pub async fn list_suites(conn: &mut PgConnection, pools: &[ObjectId]) -> Result<Vec<Value>, Error> {
    let ids: Vec<uuid::Uuid> = pools.iter().map(|id| id.0).collect();
    Ok(sqlx::query_scalar!(
        "SELECT s.spec FROM objects s WHERE s.kind = 'suite'
           AND s.id IN (SELECT to_id FROM object_refs WHERE from_id = ANY($1) AND pointer = '/spec/suite')",
        &ids,
    )
    .fetch_all(conn)
    .await?)
}
