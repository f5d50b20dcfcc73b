//! Claims that pools make by themselves, as many as their specs ask for; and pools that find no nodes for them.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::ObjectId;
use sqlx::PgConnection;

use super::objects::{Labels, ObjectRow};
use crate::error::Error;

/// Locks the next pool behind `after`, by id, that asks for more claims than it has, or is written down as one that finds no nodes. Pools that others are
/// deciding on are passed over.
pub async fn lock_next(
    conn: &mut PgConnection,
    after: ObjectId,
) -> Result<Option<ObjectRow>, Error> {
    Ok(sqlx::query_as!(
        ObjectRow,
        r#"SELECT id AS "id: ObjectId", kind, name, labels AS "labels: Labels", annotations AS "annotations: Labels", spec,
                  generation, created_at, updated_at
           FROM objects o
           WHERE kind = 'pool' AND id > $1
             AND ((spec ->> 'replicas')::bigint > (SELECT count(*) FROM claims c WHERE c.pool_id = o.id AND c.replica AND c.state = 'bound')
                  OR EXISTS (SELECT FROM pool_shortages s WHERE s.pool_id = o.id))
           ORDER BY id LIMIT 1 FOR NO KEY UPDATE OF o SKIP LOCKED"#,
        after as ObjectId,
    )
    .fetch_optional(conn)
    .await?)
}

/// The claims that a pool made and that are not over.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// That are not being released.
    pub claimed: i64,
    /// Those of them whose node is in service.
    pub in_service: i64,
    /// That are being released.
    pub leaving: i64,
}

/// Counts what a pool made.
pub async fn count(conn: &mut PgConnection, pool: ObjectId) -> Result<Made, Error> {
    Ok(sqlx::query_as!(
        Made,
        r#"SELECT count(*) FILTER (WHERE c.state = 'bound') AS "claimed!",
                  count(*) FILTER (WHERE c.state = 'bound' AND n.state = 'in_service') AS "in_service!",
                  count(*) FILTER (WHERE c.state = 'releasing') AS "leaving!"
           FROM claims c JOIN nodes n ON n.id = c.node_id WHERE c.pool_id = $1 AND c.replica AND c.state <> 'released'"#,
        pool as ObjectId,
    )
    .fetch_one(conn)
    .await?)
}

/// Since when a pool has been finding no nodes.
pub async fn find_shortage(
    conn: &mut PgConnection,
    pool: ObjectId,
) -> Result<Option<Timestamp>, Error> {
    let since = sqlx::query_scalar!(
        "SELECT since FROM pool_shortages WHERE pool_id = $1",
        pool as ObjectId
    );
    Ok(since
        .fetch_optional(conn)
        .await?
        .map(|since| since.to_jiff()))
}

/// Writes down that a pool finds no nodes. `false`: it was written down before.
pub async fn begin_shortage(
    conn: &mut PgConnection,
    pool: ObjectId,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "INSERT INTO pool_shortages (pool_id, since) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        pool as ObjectId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A pool has what it asks for. `false`: it was not written down as one that finds no nodes.
pub async fn end_shortage(conn: &mut PgConnection, pool: ObjectId) -> Result<bool, Error> {
    let done = sqlx::query!(
        "DELETE FROM pool_shortages WHERE pool_id = $1",
        pool as ObjectId
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
