//! Stacks in the revisions of pools, with the nodes assigned to each revision.

use muster_core::ids::ObjectId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A revision of a pool, and the stack of the revision.
#[derive(Clone, Debug)]
pub struct UseRow {
    pub pool: ObjectId,
    pub number: i32,
    pub stack: String,
    pub version: String,
    /// The revision is the newest of the pool.
    pub newest: bool,
    /// Number of claimed nodes with this revision assigned.
    pub nodes: i64,
}

/// Lists the newest revision of each pool, and every revision assigned to a claim, newest first.
/// `nodes` limits the count to the given nodes.
pub async fn list_uses(
    conn: &mut PgConnection,
    pools: &[Uuid],
    nodes: Option<&[Uuid]>,
) -> Result<Vec<UseRow>, Error> {
    Ok(sqlx::query_as!(
        UseRow,
        r#"WITH held AS (
               SELECT COALESCE(c.assigned_id, present.revision_id) AS revision_id, count(*) AS nodes
               FROM claims c LEFT JOIN present_revisions present ON present.pool_id = c.pool_id
               WHERE c.state <> 'released' AND c.pool_id = ANY ($1) AND ($2::uuid[] IS NULL OR c.node_id = ANY ($2))
               GROUP BY 1
           ), newest AS (SELECT pool_id, max(number) AS number FROM pool_revisions WHERE pool_id = ANY ($1) GROUP BY pool_id)
           SELECT r.pool_id AS "pool!: ObjectId", r.number AS "number!", r.stack_name AS "stack!", COALESCE(r.stack ->> 'version', '') AS "version!",
                  r.number = newest.number AS "newest!", COALESCE(held.nodes, 0) AS "nodes!"
           FROM pool_revisions r JOIN newest ON newest.pool_id = r.pool_id LEFT JOIN held ON held.revision_id = r.id
           WHERE held.nodes > 0 OR r.number = newest.number ORDER BY r.pool_id, r.number DESC"#,
        pools,
        nodes,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns the names without a stack, in order.
pub async fn list_missing(conn: &mut PgConnection, names: &[String]) -> Result<Vec<String>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT wanted.name AS "name!" FROM unnest($1::text[]) AS wanted (name)
           WHERE NOT EXISTS (SELECT FROM objects o WHERE o.kind = 'stack' AND o.name = wanted.name) ORDER BY wanted.name"#,
        names,
    )
    .fetch_all(conn)
    .await?)
}
