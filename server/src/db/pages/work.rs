//! Logs of jobs, claims by pool, the history backwards.

use jiff::Timestamp;
use muster_core::ids::{EventId, JobId, NodeId, ObjectId, OperationId};
use sqlx::PgConnection;

use crate::db::events;
use crate::db::events::EventRow;
use crate::error::Error;

/// A job, for the head of its log.
#[derive(Clone, Debug)]
pub struct JobRow {
    pub step: String,
    pub state: String,
    pub node: String,
    pub operation: Option<OperationId>,
}

/// One job.
///
/// # Errors
/// When the database fails.
pub async fn find_job(conn: &mut PgConnection, job: JobId) -> Result<Option<JobRow>, Error> {
    Ok(sqlx::query_as!(
        JobRow,
        r#"SELECT j.step, j.state, n.name AS node, j.operation_id AS "operation: OperationId"
           FROM jobs j JOIN nodes n ON n.id = j.node_id WHERE j.id = $1"#,
        job as JobId,
    )
    .fetch_optional(conn)
    .await?)
}

/// A line of a job's log.
#[derive(Clone, Debug)]
pub struct LineRow {
    pub id: i64,
    pub attempt: i32,
    pub at: Timestamp,
    pub text: String,
}

/// Lines after `after`, oldest first.
///
/// # Errors
/// When the database fails.
pub async fn list_lines(conn: &mut PgConnection, job: JobId, after: i64, limit: i64) -> Result<Vec<LineRow>, Error> {
    Ok(sqlx::query_as!(
        LineRow,
        "SELECT id, attempt, at, text FROM job_logs WHERE job_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        job as JobId,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Where the last `lines` lines of a job's log begin: pass it as `after`.
///
/// # Errors
/// When the database fails.
pub async fn find_tail(conn: &mut PgConnection, job: JobId, lines: i64) -> Result<i64, Error> {
    let id = sqlx::query_scalar!(
        "SELECT id FROM job_logs WHERE job_id = $1 ORDER BY id DESC OFFSET $2 LIMIT 1",
        job as JobId,
        lines
    );
    Ok(id.fetch_optional(conn).await?.unwrap_or(0))
}

/// Claims of a pool whose nodes are in a state.
#[derive(Clone, Debug)]
pub struct PoolCount {
    pub pool: ObjectId,
    pub state: String,
    pub count: i64,
}

/// Nodes of pools by state.
///
/// # Errors
/// When the database fails.
pub async fn count_pools(conn: &mut PgConnection) -> Result<Vec<PoolCount>, Error> {
    Ok(sqlx::query_as!(
        PoolCount,
        r#"SELECT c.pool_id AS "pool: ObjectId", n.state, count(*) AS "count!"
           FROM claims c JOIN nodes n ON n.id = c.node_id WHERE c.state <> 'released'
           GROUP BY c.pool_id, n.state"#,
    )
    .fetch_all(conn)
    .await?)
}

/// Events before `before`, newest first; of one node, or of all.
///
/// # Errors
/// When the database fails.
pub async fn list_events_before(
    conn: &mut PgConnection,
    node: Option<NodeId>,
    before: i64,
    limit: i64,
) -> Result<Vec<EventRow>, Error> {
    Ok(match node {
        Some(node) => {
            sqlx::query_as!(
                EventRow,
                r#"SELECT seq, id AS "id: EventId", at, actor, kind, node_id AS "node: NodeId", object_id AS "object: ObjectId",
                          operation_id AS "operation: OperationId", request_id, summary, detail
                   FROM events WHERE node_id = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3"#,
                node as NodeId,
                before,
                limit,
            )
            .fetch_all(conn)
            .await?
        }
        None => {
            sqlx::query_as!(
                EventRow,
                r#"SELECT seq, id AS "id: EventId", at, actor, kind, node_id AS "node: NodeId", object_id AS "object: ObjectId",
                          operation_id AS "operation: OperationId", request_id, summary, detail
                   FROM events WHERE seq < $1 ORDER BY seq DESC LIMIT $2"#,
                before,
                limit,
            )
            .fetch_all(conn)
            .await?
        }
    })
}

/// Which nodes have events after `after`, as far as no transaction can still put one in between.
///
/// # Errors
/// When the database fails.
pub async fn list_changed(
    conn: &mut PgConnection,
    after: i64,
    limit: i64,
) -> Result<Vec<(i64, Option<NodeId>)>, Error> {
    let whole = events::whole(conn).await?;
    let rows = sqlx::query!(
        r#"SELECT seq, node_id AS "node: NodeId" FROM events WHERE seq > $1 AND seq <= $3 ORDER BY seq LIMIT $2"#,
        after,
        limit,
        whole,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.seq, row.node)).collect())
}

/// The names of nodes.
///
/// # Errors
/// When the database fails.
pub async fn list_names(conn: &mut PgConnection, nodes: &[NodeId]) -> Result<Vec<(NodeId, String)>, Error> {
    let ids: Vec<uuid::Uuid> = nodes.iter().map(|id| id.0).collect();
    let rows =
        sqlx::query!(r#"SELECT id AS "id: NodeId", name FROM nodes WHERE id = ANY($1)"#, &ids).fetch_all(conn).await?;
    Ok(rows.into_iter().map(|row| (row.id, row.name)).collect())
}
