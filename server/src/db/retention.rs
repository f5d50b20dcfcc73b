//! Removal of old records, in batches. Each function removes at most `limit` rows of the given
//! nodes. The caller leaves out the nodes under a legal hold.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{GateRunId, JobId, NodeId};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A gate run with old evidence.
#[derive(Clone, Copy, Debug)]
pub struct OldRun {
    pub id: GateRunId,
    pub job: JobId,
}

/// Takes the lock for removals until the transaction ends. `false`: another replica removes.
pub async fn try_lock(conn: &mut PgConnection) -> Result<bool, Error> {
    // The key must be below 2^62: keys above record how far the history is complete.
    Ok(
        sqlx::query_scalar!(r#"SELECT pg_try_advisory_xact_lock(727371653) AS "mine!""#)
            .fetch_one(conn)
            .await?,
    )
}

/// Waits for the running batch of a removal, and takes the lock for removals until the transaction
/// ends.
pub async fn lock(conn: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!("SELECT pg_advisory_xact_lock(727371653)")
        .execute(conn)
        .await?;
    Ok(())
}

/// Lists nodes without a legal hold, after an id, in order.
pub async fn list_nodes(
    conn: &mut PgConnection,
    after: Uuid,
    limit: i64,
) -> Result<Vec<NodeId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: NodeId" FROM nodes n
           WHERE id > $1 AND NOT EXISTS (SELECT FROM legal_holds h WHERE h.node_id = n.id) ORDER BY id LIMIT $2"#,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Deletes log lines of jobs that ended before a time. The log of the newest failed job of a node
/// stays: a repair reads the lines of the BMC.
pub async fn delete_job_logs(
    conn: &mut PgConnection,
    nodes: &[Uuid],
    before: Timestamp,
    limit: i64,
) -> Result<u64, Error> {
    let done = sqlx::query!(
        "DELETE FROM job_logs WHERE id IN (
             SELECT l.id FROM jobs j JOIN job_logs l ON l.job_id = j.id WHERE j.node_id = ANY ($1) AND j.finished_at < $2
               AND j.id NOT IN (SELECT DISTINCT ON (f.node_id) f.id FROM jobs f WHERE f.node_id = ANY ($1) AND f.state = 'failed'
                                ORDER BY f.node_id, f.id DESC)
             LIMIT $3)",
        nodes,
        before.to_sqlx() as _,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Deletes inventories from before a time. The newest of each source and the first of each node
/// stay, because decisions read both.
pub async fn delete_facts(
    conn: &mut PgConnection,
    nodes: &[Uuid],
    before: Timestamp,
    limit: i64,
) -> Result<u64, Error> {
    let done = sqlx::query!(
        "DELETE FROM facts WHERE id IN (
             SELECT f.id FROM (
                 SELECT id, observed_at, row_number() OVER (PARTITION BY node_id, source ORDER BY observed_at DESC, id DESC) AS newest,
                        row_number() OVER (PARTITION BY node_id ORDER BY observed_at, id) AS first
                 FROM facts WHERE node_id = ANY ($1)) f
             WHERE f.observed_at < $2 AND f.newest > 1 AND f.first > 1 LIMIT $3)",
        nodes,
        before.to_sqlx() as _,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Deletes console output from before a time. The newest chunk of each node stays, because the next
/// chunk continues the count.
pub async fn delete_consoles(
    conn: &mut PgConnection,
    nodes: &[Uuid],
    before: Timestamp,
    limit: i64,
) -> Result<u64, Error> {
    let done = sqlx::query!(
        "DELETE FROM console_chunks WHERE (node_id, id) IN (
             SELECT c.node_id, c.id FROM console_chunks c
             WHERE c.node_id = ANY ($1) AND c.at < $2 AND c.id < (SELECT max(l.id) FROM console_chunks l WHERE l.node_id = c.node_id) LIMIT $3)",
        nodes,
        before.to_sqlx() as _,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Locks gate runs from before a time with stored evidence. The newest run and the last passed run
/// of each suite of a node are left out: a repair reads the newest failure.
pub async fn lock_old_runs(
    conn: &mut PgConnection,
    nodes: &[Uuid],
    before: Timestamp,
    limit: i64,
) -> Result<Vec<OldRun>, Error> {
    Ok(sqlx::query_as!(
        OldRun,
        r#"SELECT r.id AS "id: GateRunId", r.job_id AS "job: JobId" FROM gate_runs r
           WHERE r.node_id = ANY ($1) AND r.finished_at < $2 AND r.evidence_removed_at IS NULL
             AND r.id IS DISTINCT FROM (SELECT p.id FROM gate_runs p
                                        WHERE p.node_id = r.node_id AND p.verdict = 'pass' AND split_part(p.suite, ' ', 1) = split_part(r.suite, ' ', 1)
                                        ORDER BY p.id DESC LIMIT 1)
             AND EXISTS (SELECT FROM gate_runs l
                         WHERE l.node_id = r.node_id AND l.id > r.id AND split_part(l.suite, ' ', 1) = split_part(r.suite, ' ', 1))
           ORDER BY r.id LIMIT $3 FOR UPDATE OF r"#,
        nodes,
        before.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Removes the evidence of gate runs. Verdicts and measured values stay.
pub async fn remove_evidence(
    conn: &mut PgConnection,
    runs: &[OldRun],
    now: Timestamp,
) -> Result<(), Error> {
    let ids: Vec<Uuid> = runs.iter().map(|run| run.id.0).collect();
    let jobs: Vec<Uuid> = runs.iter().map(|run| run.job.0).collect();
    sqlx::query!(
        "UPDATE gate_results SET result = without_evidence(result) WHERE run_id = ANY ($1)",
        &ids,
    )
    .execute(&mut *conn)
    .await?;
    super::jobs::remove_evidence(conn, &jobs).await?;
    sqlx::query!(
        "UPDATE gate_runs SET evidence_removed_at = $2 WHERE id = ANY ($1)",
        &ids,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}
