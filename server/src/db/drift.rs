//! Drift: the differences between a node and its stack, from the latest comparison.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::NodeId;
use muster_core::stacks::ConvergeReport;
use muster_core::wire::result::JobResult;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// A finished comparison of a node with its stack. The step was a converge, or a check without
/// changes.
#[derive(Clone, Debug)]
pub struct Look {
    pub observed_at: Timestamp,
    pub report: ConvergeReport,
}

/// Returns the latest comparison of a node.
///
/// # Errors
/// When the stored report cannot be parsed.
pub async fn find_look(conn: &mut PgConnection, node: NodeId) -> Result<Option<Look>, Error> {
    let row = sqlx::query!(
        r#"SELECT finished_at AS "finished_at!", result AS "result!: Json<JobResult>" FROM
             (SELECT step, state, finished_at, result FROM jobs WHERE node_id = $1 ORDER BY id DESC LIMIT 200) newest
           WHERE step IN ('converge', 'recheck', 'drift') AND state = 'succeeded' ORDER BY finished_at DESC LIMIT 1"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.and_then(|row| match row.result.0 {
        JobResult::Converged(report) => Some(Look {
            observed_at: row.finished_at.to_jiff(),
            report,
        }),
        _ => None,
    }))
}

/// Stores the number of differing items of a node. Returns the node's name and the former number.
pub async fn set_items(
    conn: &mut PgConnection,
    node: NodeId,
    items: i32,
) -> Result<(String, Option<i32>), Error> {
    let row = sqlx::query!(
        r#"WITH before AS (SELECT id, drift_items FROM nodes WHERE id = $1 FOR UPDATE)
           UPDATE nodes n SET drift_items = $2 FROM before WHERE n.id = before.id RETURNING n.name, before.drift_items AS "before?""#,
        node as NodeId,
        items,
    )
    .fetch_one(conn)
    .await?;
    Ok((row.name, row.before))
}

/// Counts the nodes in service with drift, among the given nodes or all.
pub async fn count_drifted(conn: &mut PgConnection, nodes: Option<&[Uuid]>) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM nodes WHERE drift_items > 0 AND state = 'in_service' AND ($1::uuid[] IS NULL OR id = ANY ($1))"#,
        nodes,
    )
    .fetch_one(conn)
    .await?)
}

/// Returns the name of the stack of the revision assigned to a node's claim.
pub async fn find_stack(conn: &mut PgConnection, node: NodeId) -> Result<Option<String>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT revision.stack_name FROM claims c LEFT JOIN present_revisions present ON present.pool_id = c.pool_id
         JOIN pool_revisions revision ON revision.id = COALESCE(c.assigned_id, present.revision_id)
         WHERE c.node_id = $1 AND c.state <> 'released'",
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// A node in service, with the decision whether to compare.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub id: NodeId,
    pub name: String,
    /// The node is idle: without open jobs and requested action. The latest comparison, successful
    /// or not, is older than `before`.
    pub due: bool,
}

/// Lists the next nodes in service after the id `after`, ordered by id.
pub async fn list_candidates(
    conn: &mut PgConnection,
    after: NodeId,
    before: Timestamp,
    limit: i64,
) -> Result<Vec<Candidate>, Error> {
    Ok(sqlx::query_as!(
        Candidate,
        r#"SELECT n.id AS "id: NodeId", n.name,
                  (n.wish IS NULL AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id AND (j.state IN ('queued', 'leased')
                       OR (j.step IN ('converge', 'recheck', 'drift') AND j.finished_at > $2)))) AS "due!"
           FROM (SELECT id, name, wish FROM nodes WHERE state = 'in_service' AND id > $1 ORDER BY id LIMIT $3) n ORDER BY n.id"#,
        after as NodeId,
        before.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?)
}
