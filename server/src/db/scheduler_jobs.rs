//! Jobs on the nodes of clusters, as last listed by the schedulers.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{NodeId, ObjectId};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// Largest number of jobs kept for a node.
pub const KEPT: usize = 8;

/// A stored job of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeptJob {
    /// The latest end; `None` for a job without an end.
    pub ends: Option<Timestamp>,
    pub id: String,
    pub user: String,
    pub state: String,
    /// The scheduler requeues the job on request. False if unknown.
    #[serde(default)]
    pub requeues: bool,
}

/// The jobs of a node.
#[derive(Clone, Debug)]
pub struct NodeJobs {
    pub node: NodeId,
    /// The jobs that end last, at least 1 and at most [`KEPT`].
    pub jobs: Vec<KeptJob>,
    /// All jobs on the node.
    pub running: i32,
}

/// Replaces the jobs of a cluster's nodes by those of a look. Nodes missing in `nodes` have no job.
/// Unchanged rows are not written. Returns the time of the look before.
pub async fn replace(
    conn: &mut PgConnection,
    cluster: ObjectId,
    nodes: &[NodeJobs],
    now: Timestamp,
) -> Result<Option<Timestamp>, Error> {
    let before = sqlx::query_scalar!(
        r#"WITH before AS (SELECT seen_at FROM scheduler_looks WHERE cluster_id = $1)
           INSERT INTO scheduler_looks (cluster_id, seen_at) VALUES ($1, $2) ON CONFLICT (cluster_id) DO UPDATE SET seen_at = $2
           RETURNING (SELECT seen_at FROM before) AS "before: jiff_sqlx::Timestamp""#,
        cluster as ObjectId,
        now.to_sqlx() as _,
    )
    .fetch_one(&mut *conn)
    .await?;
    let ids: Vec<Uuid> = nodes.iter().map(|node| node.node.0).collect();
    let jobs: Vec<Json<&[KeptJob]>> = nodes.iter().map(|node| Json(&node.jobs[..])).collect();
    let running: Vec<i32> = nodes.iter().map(|node| node.running).collect();
    sqlx::query!(
        "WITH seen AS (SELECT * FROM unnest($2::uuid[], $3::jsonb[], $4::integer[]) AS s (node_id, jobs, running)),
              gone AS (DELETE FROM scheduler_jobs j WHERE j.cluster_id = $1 AND NOT EXISTS (SELECT FROM seen s WHERE s.node_id = j.node_id))
         INSERT INTO scheduler_jobs AS j (node_id, cluster_id, jobs, running) SELECT s.node_id, $1, s.jobs, s.running FROM seen s
         ON CONFLICT (node_id) DO UPDATE SET cluster_id = $1, jobs = EXCLUDED.jobs, running = EXCLUDED.running
         WHERE (j.cluster_id, j.jobs, j.running) IS DISTINCT FROM ($1, EXCLUDED.jobs, EXCLUDED.running)",
        cluster as ObjectId,
        &ids,
        &jobs as _,
        &running,
    )
    .execute(conn)
    .await?;
    Ok(before.map(|at| at.to_jiff()))
}

/// Records why the reservations of a cluster failed, or that they are as needed. Returns whether they
/// failed before.
pub async fn set_failure(
    conn: &mut PgConnection,
    cluster: ObjectId,
    failure: Option<(&str, &str)>,
    now: Timestamp,
) -> Result<bool, Error> {
    let (code, message) = failure.unzip();
    let before = sqlx::query_scalar!(
        r#"WITH before AS (SELECT failing_since FROM scheduler_looks WHERE cluster_id = $1)
           UPDATE scheduler_looks SET failure_code = $2, failure = $3, failing_since = CASE WHEN $2::text IS NOT NULL THEN COALESCE(failing_since, $4) END
           WHERE cluster_id = $1 RETURNING (SELECT failing_since FROM before) AS "before: jiff_sqlx::Timestamp""#,
        cluster as ObjectId,
        code,
        message,
        now.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?;
    Ok(before.is_some())
}

/// The cluster of a pool.
#[derive(Clone, Debug)]
pub struct LookRow {
    pub cluster: ObjectId,
    /// The last list of jobs; `None` if the scheduler never gave a list.
    pub seen_at: Option<jiff_sqlx::Timestamp>,
    /// Start of the time in which the reservations of waiting nodes fail.
    pub failing_since: Option<jiff_sqlx::Timestamp>,
    pub failure_code: Option<String>,
    pub failure: Option<String>,
}

/// Returns the last look at the cluster of a pool; `None` for a pool without a cluster.
pub async fn find_look(conn: &mut PgConnection, pool: ObjectId) -> Result<Option<LookRow>, Error> {
    Ok(sqlx::query_as!(
        LookRow,
        r#"SELECT cluster.id AS "cluster: ObjectId", look.seen_at AS "seen_at?: jiff_sqlx::Timestamp",
                  look.failing_since AS "failing_since?: jiff_sqlx::Timestamp", look.failure_code AS "failure_code?", look.failure AS "failure?"
           FROM objects pool JOIN objects cluster ON cluster.kind = 'cluster' AND cluster.name = pool.spec ->> 'cluster'
                LEFT JOIN scheduler_looks look ON look.cluster_id = cluster.id
           WHERE pool.id = $1"#,
        pool as ObjectId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists the nodes of a cluster with jobs.
pub async fn list(conn: &mut PgConnection, cluster: ObjectId) -> Result<Vec<NodeJobs>, Error> {
    let rows = sqlx::query!(
        r#"SELECT node_id AS "node: NodeId", jobs AS "jobs: Json<Vec<KeptJob>>", running FROM scheduler_jobs WHERE cluster_id = $1"#,
        cluster as ObjectId,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| NodeJobs {
            node: row.node,
            jobs: row.jobs.0,
            running: row.running,
        })
        .collect())
}
