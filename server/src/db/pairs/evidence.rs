//! Removal of the old evidence of measurements.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A measurement with old evidence.
#[derive(Clone, Copy, Debug)]
pub struct OldTrial {
    pub run: Uuid,
    pub round: i32,
    pub a: i32,
    pub job: Option<Uuid>,
}

/// Locks measurements from before a time with stored evidence. The newest run and the last run with
/// only passes of each suite of a pool are left out, and measurements of a node under a legal hold.
pub async fn lock_old_trials(
    conn: &mut PgConnection,
    before: Timestamp,
    limit: i64,
) -> Result<Vec<OldTrial>, Error> {
    Ok(sqlx::query_as!(
        OldTrial,
        r#"SELECT t.run_id AS run, t.round, t.a, t.job_id AS job
           FROM pair_trials t JOIN pair_runs r ON r.id = t.run_id
           WHERE t.finished_at < $1 AND t.evidence_removed_at IS NULL AND r.ended_at IS NOT NULL
             AND NOT EXISTS (SELECT FROM pair_ends e JOIN legal_holds h ON h.node_id = e.node_id
                             WHERE e.run_id = t.run_id AND e.position IN (t.a, t.b))
             AND EXISTS (SELECT FROM pair_runs l WHERE l.pool_id = r.pool_id AND l.id > r.id AND l.ended_at IS NOT NULL AND l.suite ->> 'name' = r.suite ->> 'name')
             AND r.id IS DISTINCT FROM (
                 SELECT p.id FROM pair_runs p
                 WHERE p.pool_id = r.pool_id AND p.suite ->> 'name' = r.suite ->> 'name' AND p.ended = 'done'
                   AND NOT EXISTS (SELECT FROM pair_trials f WHERE f.run_id = p.id AND f.verdict IS DISTINCT FROM 'pass')
                 ORDER BY p.id DESC LIMIT 1)
           ORDER BY t.run_id, t.round, t.a LIMIT $2 FOR UPDATE OF t"#,
        before.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Removes the evidence of measurements, also from the results of the jobs. Verdicts and measured
/// values stay.
pub async fn remove_evidence(
    conn: &mut PgConnection,
    trials: &[OldTrial],
    now: Timestamp,
) -> Result<(), Error> {
    let runs: Vec<Uuid> = trials.iter().map(|trial| trial.run).collect();
    let rounds: Vec<i32> = trials.iter().map(|trial| trial.round).collect();
    let ends: Vec<i32> = trials.iter().map(|trial| trial.a).collect();
    sqlx::query!(
        "UPDATE pair_trials t SET ways = ways_without_evidence(t.ways), evidence_removed_at = $4
         FROM unnest($1::uuid[], $2::integer[], $3::integer[]) AS old (run_id, round, a)
         WHERE t.run_id = old.run_id AND t.round = old.round AND t.a = old.a",
        &runs,
        &rounds,
        &ends,
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    let jobs: Vec<Uuid> = trials.iter().filter_map(|trial| trial.job).collect();
    crate::db::jobs::remove_pair_evidence(conn, &jobs).await
}

/// Lists pair jobs from before a time whose measurement was removed with its pool, and whose result
/// still has evidence. Jobs of a node under a legal hold are left out.
pub async fn list_lone_jobs(
    conn: &mut PgConnection,
    before: Timestamp,
    limit: i64,
) -> Result<Vec<Uuid>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT j.id FROM jobs j
         WHERE j.kind = 'pair' AND j.result ->> 'kind' = 'paired' AND j.finished_at < $1 AND NOT EXISTS (SELECT FROM pair_trials t WHERE t.job_id = j.id)
           AND jsonb_path_exists(j.result, '$.ways[*].results[*].evidence.argv[*]')
           AND NOT EXISTS (SELECT FROM legal_holds h
                           WHERE h.node_id = j.node_id OR h.node_id::text IN (j.result #>> '{ways,0,to}', j.result #>> '{ways,1,to}'))
         ORDER BY j.id LIMIT $2",
        before.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?)
}
