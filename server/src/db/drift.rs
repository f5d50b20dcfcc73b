//! How a node compares with its stack: what the newest look found.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::NodeId;
use muster_core::stacks::ConvergeReport;
use muster_core::wire::agent::JobResult;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::error::Error;

/// A look, by a converge or by a comparison that changed nothing.
#[derive(Clone, Debug)]
pub struct Look {
    pub observed_at: Timestamp,
    pub report: ConvergeReport,
}

/// The newest look at a node.
///
/// # Errors
/// When the database fails or the report cannot be read any more.
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
        JobResult::Converged(report) => Some(Look { observed_at: row.finished_at.to_jiff(), report }),
        _ => None,
    }))
}

/// The name of the stack that the pool of a node's claim asks for.
///
/// # Errors
/// When the database fails.
pub async fn find_stack(conn: &mut PgConnection, node: NodeId) -> Result<Option<String>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT pool.spec ->> 'stack' AS "stack!" FROM claims c JOIN objects pool ON pool.id = c.pool_id
           WHERE c.node_id = $1 AND c.state <> 'released'"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// A node in service, and whether it is to be looked at.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub id: NodeId,
    pub name: String,
    /// It rests, and nobody has looked since `before`, with whatever result.
    pub due: bool,
}

/// The next nodes in service behind `after`, by id.
///
/// # Errors
/// When the database fails.
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
