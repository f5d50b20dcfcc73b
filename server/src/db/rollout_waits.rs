//! Waiting nodes of rollouts: waits for the end of jobs, and for the drains of other nodes.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{NodeId, ObjectId, OperationId, RolloutId};
use sqlx::PgConnection;

use crate::error::Error;

/// A waiting node in service.
#[derive(Clone, Debug)]
pub struct WaitingRow {
    pub name: String,
    pub rollout: RolloutId,
    /// Seconds before the end of the node's last job at which the node may be closed.
    pub lead_s: i64,
}

/// Lists the waiting nodes of a cluster in running rollouts, by name. A halted rollout keeps no node
/// from jobs.
pub async fn list_waiting(
    conn: &mut PgConnection,
    cluster: &str,
) -> Result<Vec<WaitingRow>, Error> {
    Ok(sqlx::query_as!(
        WaitingRow,
        r#"SELECT n.name, o.id AS "rollout: RolloutId", COALESCE((o.policy ->> 'drain_lead_s')::bigint, 0) AS "lead_s!"
           FROM rollouts o JOIN rollout_nodes r ON r.rollout_id = o.id AND r.mark = 'waiting'
                JOIN claims c ON c.id = r.claim_id AND c.node_id = r.node_id AND c.pool_id = o.pool_id AND c.state = 'bound'
                JOIN nodes n ON n.id = r.node_id AND n.state = 'in_service'
                JOIN objects pool ON pool.id = o.pool_id AND pool.spec ->> 'cluster' = $1
           WHERE o.state = 'running' ORDER BY n.name"#,
        cluster
    )
    .fetch_all(conn)
    .await?)
}

/// Compares the idle times of waiting and draining nodes with the jobs of a cluster. After a time
/// without looks the idle times begin anew: jobs may have run. Rows locked by a tick are left
/// for the next look.
pub async fn follow_jobs(
    conn: &mut PgConnection,
    cluster: ObjectId,
    watched: bool,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "WITH due AS (
             SELECT r.rollout_id, r.node_id, j.node_id IS NOT NULL AS busy
             FROM objects cluster JOIN objects pool ON pool.kind = 'pool' AND pool.spec ->> 'cluster' = cluster.name
                  JOIN rollouts o ON o.pool_id = pool.id AND o.started_at IS NOT NULL AND o.ended_at IS NULL
                  JOIN rollout_nodes r ON r.rollout_id = o.id AND r.mark IN ('waiting', 'changing')
                  LEFT JOIN scheduler_jobs j ON j.node_id = r.node_id AND j.cluster_id = cluster.id
             WHERE cluster.id = $1 AND ((r.idle_since IS NULL) <> (j.node_id IS NOT NULL) OR NOT $3 AND j.node_id IS NULL)
             FOR UPDATE OF r SKIP LOCKED)
         UPDATE rollout_nodes r SET idle_since = CASE WHEN due.busy THEN NULL ELSE $2::timestamptz END
         FROM due WHERE r.rollout_id = due.rollout_id AND r.node_id = due.node_id",
        cluster as ObjectId,
        now.to_sqlx() as _,
        watched,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Starts the waits of the waiting nodes anew.
pub async fn restart_waits(
    conn: &mut PgConnection,
    id: RolloutId,
    now: Timestamp,
) -> sqlx::Result<()> {
    let waits = sqlx::query!(
        "UPDATE rollout_nodes SET since = $2 WHERE rollout_id = $1 AND mark = 'waiting'",
        id as RolloutId,
        now.to_sqlx() as _
    );
    waits.execute(conn).await.map(drop)
}

/// Returns whether a rollout has closed the node by the operation, and starts the change after the
/// drains of all nodes of the unit.
pub async fn waits_for_unit(
    conn: &mut PgConnection,
    node: NodeId,
    operation: OperationId,
) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (
               SELECT FROM rollout_nodes r JOIN rollouts o ON o.id = r.rollout_id
               WHERE r.node_id = $1 AND r.operation_id = $2 AND r.mark = 'changing' AND r.unit_change = 'waits'
                     AND o.state IN ('running', 'halted', 'superseded')) AS "waits!""#,
        node as NodeId,
        operation as OperationId
    )
    .fetch_one(conn)
    .await?)
}
