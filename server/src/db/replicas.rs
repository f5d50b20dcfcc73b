//! Claims made by pools, up to the number of replicas declared in the spec, and pools without
//! enough nodes.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::ObjectId;
use sqlx::PgConnection;

use super::objects::{Labels, ObjectRow};
use crate::error::Error;

/// Locks the next pool after the id `after` with fewer claims than declared replicas, or with a
/// recorded shortage. Pools locked by other transactions are skipped.
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

/// Counts of the open claims made by a pool.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// Claims not under release.
    pub claimed: i64,
    /// Claims not under release with a node in service.
    pub in_service: i64,
    /// Claims under release.
    pub leaving: i64,
}

/// Counts the claims made by a pool.
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

/// Returns the start of a pool's shortage of nodes, if any.
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

/// Records a shortage of nodes for a pool. `false`: a shortage was already recorded.
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

/// Ends the shortage of a pool. `false`: no shortage was recorded.
pub async fn end_shortage(conn: &mut PgConnection, pool: ObjectId) -> Result<bool, Error> {
    let done = sqlx::query!(
        "DELETE FROM pool_shortages WHERE pool_id = $1",
        pool as ObjectId
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
