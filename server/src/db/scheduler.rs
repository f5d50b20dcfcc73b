//! Cluster members without jobs from their scheduler, with the state and reason reported by the
//! scheduler.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::clusters::ClusterSpec;
use muster_core::ids::{NodeId, ObjectId};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// A cluster served by a site's agent.
#[derive(Clone, Debug)]
pub struct ClusterRow {
    pub id: ObjectId,
    pub name: String,
    pub spec: Json<ClusterSpec>,
}

/// Lists the clusters of a site, ordered by name.
///
/// # Errors
/// When a stored cluster cannot be parsed.
pub async fn list_clusters(conn: &mut PgConnection, site: &str) -> Result<Vec<ClusterRow>, Error> {
    Ok(sqlx::query_as!(
        ClusterRow,
        r#"SELECT id AS "id: ObjectId", name, spec AS "spec: Json<ClusterSpec>" FROM objects
           WHERE kind = 'cluster' AND spec ->> 'site' = $1 ORDER BY name"#,
        site,
    )
    .fetch_all(conn)
    .await?)
}

/// A member of a cluster, with the latest report of the scheduler.
#[derive(Clone, Debug)]
pub struct MemberOut {
    pub id: NodeId,
    pub name: String,
    pub serves: bool,
    /// The node is being measured, in a run of pairs or by a sweep. Muster itself keeps jobs away
    /// for the time of the measurement.
    pub held: bool,
    /// The state reported by the scheduler, if the node received no jobs.
    pub state: Option<String>,
    pub reason: Option<String>,
}

/// Lists all members of a cluster.
pub async fn list_members(conn: &mut PgConnection, cluster: &str) -> Result<Vec<MemberOut>, Error> {
    Ok(sqlx::query_as!(
        MemberOut,
        r#"SELECT n.id AS "id: NodeId", n.name, n.state = 'in_service' AS "serves!",
                  n.held_back OR EXISTS (SELECT FROM pair_ends e WHERE e.node_id = n.id AND e.back_at IS NULL) AS "held!", o.state AS "state?", o.reason AS "reason?"
           FROM nodes n
           JOIN claims c ON c.node_id = n.id AND c.state <> 'released'
           JOIN objects pool ON pool.id = c.pool_id AND pool.spec ->> 'cluster' = $1
           LEFT JOIN scheduler_outs o ON o.node_id = n.id
           WHERE n.in_cluster ORDER BY n.name"#,
        cluster,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns the reason of a node's drain, as last reported by the scheduler.
pub async fn find_reason(conn: &mut PgConnection, node: NodeId) -> Result<Option<String>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT reason FROM scheduler_outs WHERE node_id = $1",
        node as NodeId
    )
    .fetch_optional(conn)
    .await?
    .flatten())
}

/// Records that a node receives no jobs since now, with the scheduler's state and reason.
pub async fn set_out(
    conn: &mut PgConnection,
    node: NodeId,
    state: &str,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO scheduler_outs (node_id, state, reason, since, seen_at) VALUES ($1, $2, $3, $4, $4)
         ON CONFLICT (node_id) DO UPDATE SET state = $2, reason = $3, since = $4, seen_at = $4",
        node as NodeId,
        state,
        reason,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records that nodes are still without jobs. For nodes back in service meanwhile, the period
/// starts again now. Nodes in service become due for a reconcile pass, because a state seen twice
/// counts as steady.
pub async fn see_again(
    conn: &mut PgConnection,
    nodes: &[NodeId],
    now: Timestamp,
) -> Result<(), Error> {
    let nodes: Vec<Uuid> = nodes.iter().map(|node| node.0).collect();
    sqlx::query!(
        "UPDATE scheduler_outs o SET seen_at = GREATEST(o.since, $2),
                since = CASE WHEN n.state = 'in_service' AND o.since <= n.entered_at THEN $2 ELSE o.since END
         FROM nodes n WHERE n.id = o.node_id AND o.node_id = ANY($1)",
        &nodes,
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "UPDATE nodes SET due_at = LEAST(COALESCE(due_at, $2), $2) WHERE id = ANY($1) AND state = 'in_service' AND wish IS NULL",
        &nodes,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes the records of nodes receiving jobs again. A write-off of such a node ends.
pub async fn forget(conn: &mut PgConnection, nodes: &[NodeId]) -> Result<(), Error> {
    let nodes: Vec<Uuid> = nodes.iter().map(|node| node.0).collect();
    sqlx::query!("DELETE FROM scheduler_outs WHERE node_id = ANY($1)", &nodes)
        .execute(&mut *conn)
        .await?;
    sqlx::query!(
        "UPDATE claims c SET written_off_until = NULL, written_off_reason = NULL, written_off_by = NULL
         FROM nodes n WHERE n.id = c.node_id AND n.id = ANY($1) AND n.state = 'in_service' AND c.written_off_until IS NOT NULL",
        &nodes
    )
    .execute(conn)
    .await?;
    Ok(())
}
