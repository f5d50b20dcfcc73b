//! Logs of jobs, claims by pool, names of nodes.

use jiff::Timestamp;
use muster_core::ids::{JobId, NodeId, ObjectId, OperationId};
use muster_core::lifecycle::state::State;
use muster_core::lifecycle::steps::{JobState, Step};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A job, for the head of its log.
#[derive(Clone, Debug)]
pub struct JobRow {
    pub step: Step,
    pub state: JobState,
    pub node: String,
    pub operation: Option<OperationId>,
}

/// Returns one job.
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

/// Lists log lines after the id `after`, oldest first.
pub async fn list_lines(
    conn: &mut PgConnection,
    job: JobId,
    after: i64,
    limit: i64,
) -> Result<Vec<LineRow>, Error> {
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

/// Returns the id just before the last `lines` lines of a job's log, for use as `after`.
pub async fn find_tail(conn: &mut PgConnection, job: JobId, lines: i64) -> Result<i64, Error> {
    let id = sqlx::query_scalar!(
        "SELECT id FROM job_logs WHERE job_id = $1 ORDER BY id DESC OFFSET $2 LIMIT 1",
        job as JobId,
        lines
    );
    Ok(id.fetch_optional(conn).await?.unwrap_or(0))
}

/// The number of a pool's claims with a node in one state.
#[derive(Clone, Debug)]
pub struct PoolCount {
    pub pool: ObjectId,
    pub state: State,
    pub count: i64,
}

/// Counts claimed nodes by pool and state. `nodes` limits the count to the given nodes.
pub async fn count_pools(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
) -> Result<Vec<PoolCount>, Error> {
    Ok(sqlx::query_as!(
        PoolCount,
        r#"SELECT c.pool_id AS "pool: ObjectId", n.state, count(*) AS "count!"
           FROM claims c JOIN nodes n ON n.id = c.node_id
           WHERE c.state <> 'released' AND ($1::uuid[] IS NULL OR c.node_id = ANY ($1))
           GROUP BY c.pool_id, n.state"#,
        nodes,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the names of nodes.
pub async fn list_names(
    conn: &mut PgConnection,
    nodes: &[NodeId],
) -> Result<Vec<(NodeId, String)>, Error> {
    let ids: Vec<Uuid> = nodes.iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"SELECT id AS "id: NodeId", name FROM nodes WHERE id = ANY($1)"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.name)).collect())
}
