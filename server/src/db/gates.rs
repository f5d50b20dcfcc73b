//! Runs of suites and the results of their gates.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::gates::{GateResult, SuiteVerdict};
use muster_core::ids::{GateRunId, JobId, NodeId};
use muster_core::lifecycle::steps::Step;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// A finished run.
#[derive(Clone, Debug)]
pub struct GateRun {
    pub id: GateRunId,
    pub suite: String,
    /// `pass`, `fail` or `unknown`.
    pub verdict: SuiteVerdict,
    pub fingerprint: String,
    pub finished_at: Timestamp,
    pub step: Step,
    /// The run is void since this time, because parts of the node were replaced.
    pub voided_at: Option<jiff_sqlx::Timestamp>,
}

/// A run to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewRun<'text> {
    pub node: NodeId,
    pub job: JobId,
    /// Name and version.
    pub suite: &'text str,
    /// `pass`, `fail` or `unknown`.
    pub verdict: &'text str,
    pub fingerprint: &'text str,
}

/// Stores a run and the results. A former run of the same job is deleted first and remains only in
/// the events.
pub async fn insert(
    conn: &mut PgConnection,
    run: NewRun<'_>,
    results: &[GateResult],
    now: Timestamp,
) -> Result<GateRunId, Error> {
    let id = GateRunId::new();
    sqlx::query!("DELETE FROM gate_runs WHERE job_id = $1", run.job as JobId)
        .execute(&mut *conn)
        .await?;
    sqlx::query!(
        "INSERT INTO gate_runs (id, node_id, job_id, suite, verdict, fingerprint, finished_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        id as GateRunId,
        run.node as NodeId,
        run.job as JobId,
        run.suite,
        run.verdict,
        run.fingerprint,
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    let gates: Vec<String> = results.iter().map(|result| result.gate.clone()).collect();
    let verdicts: Vec<String> = results
        .iter()
        .map(|result| result.verdict.as_str().to_owned())
        .collect();
    let shadows: Vec<bool> = results.iter().map(|result| result.shadow).collect();
    let waived: Vec<bool> = results
        .iter()
        .map(|result| result.waived.is_some())
        .collect();
    let documents: Vec<serde_json::Value> = results
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<_, _>>()
        .map_err(Error::internal)?;
    sqlx::query!(
        "INSERT INTO gate_results (run_id, position, gate, verdict, shadow, waived, result)
         SELECT $1, row.position::integer, row.gate, row.verdict, row.shadow, row.waived, row.result
         FROM unnest($2::text[], $3::text[], $4::boolean[], $5::boolean[], $6::jsonb[]) WITH ORDINALITY
              AS row (gate, verdict, shadow, waived, result, position)",
        id as GateRunId,
        &gates,
        &verdicts,
        &shadows,
        &waived,
        &documents,
    )
    .execute(&mut *conn)
    .await?;
    super::rollout_comparisons::forget(conn, run.node, Some(&gates)).await?;
    Ok(id)
}

/// Lists the runs of a node, newest first.
pub async fn list(
    conn: &mut PgConnection,
    node: NodeId,
    limit: i64,
) -> Result<Vec<GateRun>, Error> {
    Ok(sqlx::query_as!(GateRun, r#"SELECT r.id AS "id: GateRunId", r.suite, r.verdict, r.fingerprint, r.finished_at, j.step, r.voided_at
           FROM gate_runs r JOIN jobs j ON j.id = r.job_id WHERE r.node_id = $1 ORDER BY r.id DESC LIMIT $2"#,
        node as NodeId,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists runs by id. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<GateRun>, Error> {
    Ok(sqlx::query_as!(GateRun, r#"SELECT r.id AS "id: GateRunId", r.suite, r.verdict, r.fingerprint, r.finished_at, j.step, r.voided_at
           FROM gate_runs r JOIN jobs j ON j.id = r.job_id WHERE r.id = ANY ($1)"#, ids,)
        .fetch_all(conn)
        .await?)
}

/// Returns the results of a run, in order of execution.
pub async fn list_results(
    conn: &mut PgConnection,
    run: GateRunId,
) -> Result<Vec<GateResult>, Error> {
    let rows = sqlx::query_scalar!(
        r#"SELECT result AS "result: Json<GateResult>" FROM gate_results WHERE run_id = $1 ORDER BY position"#,
        run as GateRunId,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|json| json.0).collect())
}

/// Marks all runs of a node as void. Former results do not apply to newly installed parts.
pub async fn void_runs(conn: &mut PgConnection, node: NodeId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE gate_runs SET voided_at = $2 WHERE node_id = $1 AND voided_at IS NULL",
        node as NodeId,
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    super::rollout_comparisons::forget(conn, node, None).await?;
    Ok(())
}
