//! Jobs: units of work leased to agents, fenced by attempt numbers.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{AgentId, JobId, NodeId, ObjectId, OperationId, PermitId};
use muster_core::lifecycle::steps::Step;
use muster_core::lifecycle::wait::WaitReason;
use muster_core::wire::node::{Failure, Progress};
use muster_core::wire::result::JobResult;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// A job to be queued.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub id: JobId,
    pub node: NodeId,
    pub site: ObjectId,
    pub operation: OperationId,
    pub visit: i64,
    pub step: Step,
    pub round: i32,
    pub epoch: i64,
    pub nonce: String,
    pub permit: Option<PermitId>,
}

/// Queues a job for the site's agent.
pub async fn insert(conn: &mut PgConnection, job: &NewJob, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO jobs (id, node_id, site_id, operation_id, visit, step, kind, epoch, state, not_before, timeout_s, nonce, permit_id, created_at,
                           round)
         VALUES ($1, $2, $3, $4, $5, $6, $6, $7, 'queued', $8, $9, $10, $11, $8, $12)",
        job.id as JobId,
        job.node as NodeId,
        job.site as ObjectId,
        job.operation as OperationId,
        job.visit,
        job.step.as_str(),
        job.epoch,
        now.to_sqlx() as _,
        i64::try_from(job.step.timeout_s()).unwrap_or(i64::MAX),
        job.nonce,
        job.permit as Option<PermitId>,
        job.round,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Queues a job again as another round. Acts recorded in earlier rounds no longer apply.
pub async fn retry(
    conn: &mut PgConnection,
    job: JobId,
    nonce: &str,
    permit: Option<PermitId>,
    operation: OperationId,
    not_before: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE jobs SET state = 'queued', round = round + 1, cancel = false, not_before = $2, nonce = $3, permit_id = $4,
                operation_id = $5, leased_by = NULL, lease_until = NULL, progress = NULL, waiting_for = NULL, result = NULL, failure = NULL,
                started_at = NULL, finished_at = NULL
         WHERE id = $1",
        job as JobId,
        not_before.to_sqlx() as _,
        nonce,
        permit as Option<PermitId>,
        operation as OperationId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Marks a job as superseded: another job of the same stay performs the step from now on.
pub async fn supersede(conn: &mut PgConnection, job: JobId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE jobs SET superseded = true WHERE id = $1",
        job as JobId
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Requests cancellation from the worker of a job. A job not yet leased is cancelled at once.
pub async fn cancel(conn: &mut PgConnection, job: JobId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE jobs SET cancel = true, state = CASE WHEN state = 'queued' THEN 'cancelled' ELSE state END,
                finished_at = CASE WHEN state = 'queued' THEN $2 ELSE finished_at END
         WHERE id = $1 AND state IN ('queued', 'leased')",
        job as JobId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A job at the time of its lease.
#[derive(Clone, Debug)]
pub struct LeasedRow {
    pub id: JobId,
    pub node: NodeId,
    pub operation: Option<OperationId>,
    /// The id of the request that created the operation.
    pub request_id: Option<String>,
    pub step: Step,
    pub attempt: i32,
    pub round: i32,
    pub epoch: i64,
    pub timeout_s: i64,
    pub nonce: Option<String>,
    pub permit: Option<PermitId>,
}

/// Leases queued jobs of a site to its agent, oldest first, and raises their attempt numbers. Only
/// the given steps are leased. During a caution of the site only jobs without a permit are leased.
pub async fn lease(
    conn: &mut PgConnection,
    site: ObjectId,
    agent: AgentId,
    steps: &[String],
    capacity: i64,
    now: Timestamp,
    until: Timestamp,
) -> Result<Vec<LeasedRow>, Error> {
    Ok(sqlx::query_as!(
        LeasedRow,
        r#"WITH open AS (
               SELECT NOT EXISTS (SELECT FROM cautions c WHERE confirmed_at IS NULL
                   AND (whole_fleet OR EXISTS (SELECT FROM caution_witnesses w WHERE w.caution_id = c.id AND w.site_id = $1))) AS all_of_them),
           ready AS (
               SELECT id FROM jobs
               WHERE site_id = $1 AND state = 'queued' AND not_before <= $4 AND step = ANY ($6)
                 AND (permit_id IS NULL OR (SELECT all_of_them FROM open))
               ORDER BY not_before, id LIMIT $3 FOR UPDATE SKIP LOCKED)
           UPDATE jobs SET state = 'leased', attempt = attempt + 1, leased_by = $2, lease_until = $5,
                  started_at = COALESCE(started_at, $4), waiting_for = NULL
           FROM ready WHERE jobs.id = ready.id
           RETURNING jobs.id AS "id: JobId", node_id AS "node: NodeId", operation_id AS "operation: OperationId", step, attempt, round,
                     epoch, timeout_s, nonce, permit_id AS "permit: PermitId",
                     (SELECT o.request_id FROM operations o WHERE o.id = jobs.operation_id) AS request_id"#,
        site as ObjectId,
        agent as AgentId,
        capacity,
        now.to_sqlx() as _,
        until.to_sqlx() as _,
        steps,
    )
    .fetch_all(conn)
    .await?)
}

/// Locks a leased job and its node. `None`: the attempt is stale or another agent has the lease.
pub async fn lock_current(
    conn: &mut PgConnection,
    job: JobId,
    agent: AgentId,
    attempt: i32,
) -> Result<Option<CurrentJob>, Error> {
    // Locks the node first, like the engine. A common lock order prevents deadlocks.
    Ok(sqlx::query_as!(
        CurrentJob,
        r#"SELECT j.id AS "id: JobId", j.node_id AS "node: NodeId", j.operation_id AS "operation: OperationId", j.step, j.round, j.epoch, j.visit,
                  j.cancel, j.permit_id AS "permit: PermitId"
           FROM nodes n JOIN jobs j ON j.node_id = n.id
           WHERE j.id = $1 AND j.leased_by = $2 AND j.attempt = $3 AND j.state = 'leased' FOR UPDATE OF n, j"#,
        job as JobId,
        agent as AgentId,
        attempt,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the node and operation of a job of the agent's site, leased to any agent or none.
pub async fn find(
    conn: &mut PgConnection,
    job: JobId,
    agent: AgentId,
) -> Result<Option<(NodeId, Option<OperationId>)>, Error> {
    let row = sqlx::query!(
        r#"SELECT j.node_id AS "node: NodeId", j.operation_id AS "operation: OperationId"
           FROM jobs j JOIN agents a ON a.site_id = j.site_id WHERE j.id = $1 AND a.id = $2"#,
        job as JobId,
        agent as AgentId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| (row.node, row.operation)))
}

/// A job under its current lease.
#[derive(Clone, Debug)]
pub struct CurrentJob {
    pub id: JobId,
    pub node: NodeId,
    pub operation: Option<OperationId>,
    pub step: Step,
    pub round: i32,
    pub epoch: i64,
    pub visit: i64,
    pub cancel: bool,
    pub permit: Option<PermitId>,
}

/// Renews a lease and stores the worker's progress and wait condition. The wait condition appears
/// on the node at once, without a reconcile pass of the engine.
pub async fn renew(
    conn: &mut PgConnection,
    job: &CurrentJob,
    until: Timestamp,
    progress: Option<&Progress>,
    waiting_for: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "WITH kept AS (
             UPDATE jobs SET lease_until = $2, progress = COALESCE($3, progress), waiting_for = COALESCE($4, waiting_for) WHERE id = $1)
         UPDATE nodes SET waiting_for = $4, waiting_since = $7, waiting_reason = $8
         WHERE id = $5 AND visit = $6 AND $4 IS NOT NULL AND waiting_for IS DISTINCT FROM $4",
        job.id as JobId,
        until.to_sqlx() as _,
        progress.map(Json) as _,
        waiting_for,
        job.node as NodeId,
        job.visit,
        now.to_sqlx() as _,
        WaitReason::Step.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The end of a job, as stored.
#[derive(Clone, Debug)]
pub enum Ending<'a> {
    Succeeded(&'a JobResult),
    Failed(&'a Failure),
    Cancelled,
}

/// Ends a job.
pub async fn finish(
    conn: &mut PgConnection,
    job: JobId,
    ending: &Ending<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    let (state, result, failure) = match ending {
        Ending::Succeeded(result) => ("succeeded", Some(Json(*result)), None),
        Ending::Failed(failure) => ("failed", None, Some(Json(*failure))),
        Ending::Cancelled => ("cancelled", None, None),
    };
    sqlx::query!(
        "UPDATE jobs SET state = $2, result = $3, failure = $4, finished_at = $5, leased_by = NULL, lease_until = NULL, waiting_for = NULL
         WHERE id = $1",
        job as JobId,
        state,
        result as _,
        failure as _,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes the evidence from the results of ended gate jobs. The results of the gates are stored
/// apart.
pub async fn remove_evidence(conn: &mut PgConnection, jobs: &[Uuid]) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE jobs SET result = jsonb_set(result, '{results}',
                (SELECT COALESCE(jsonb_agg(without_evidence(gate.result) ORDER BY gate.position), '[]')
                 FROM jsonb_array_elements(jobs.result -> 'results') WITH ORDINALITY AS gate (result, position)))
         WHERE id = ANY ($1) AND result ->> 'kind' = 'gated'",
        jobs,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes the evidence from the results of ended pair jobs.
pub async fn remove_pair_evidence(conn: &mut PgConnection, jobs: &[Uuid]) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE jobs SET result = jsonb_set(result, '{ways}', ways_without_evidence(result -> 'ways'))
         WHERE id = ANY ($1) AND result ->> 'kind' = 'paired' AND result ? 'ways'",
        jobs,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Fails a leased job because its order cannot be built. `false`: another attempt has the lease by
/// now.
pub async fn refuse(
    conn: &mut PgConnection,
    job: JobId,
    attempt: i32,
    failure: &Failure,
    now: Timestamp,
) -> Result<bool, Error> {
    let refused = sqlx::query!(
        "UPDATE jobs SET state = 'failed', failure = $3, finished_at = $4, leased_by = NULL, lease_until = NULL, waiting_for = NULL
         WHERE id = $1 AND attempt = $2 AND state = 'leased'",
        job as JobId,
        attempt,
        Json(failure) as _,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(refused.rows_affected() == 1)
}

/// Shows the current step on the nodes of newly leased jobs, and marks their operations as running.
/// Nodes locked by other transactions are skipped: the jobs are already locked here, and all other
/// code locks the node first, so waiting could deadlock.
pub async fn show_leased(
    conn: &mut PgConnection,
    leased: &[LeasedRow],
    now: Timestamp,
) -> Result<(), Error> {
    if leased.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = leased.iter().map(|row| row.id.0).collect();
    let titles: Vec<String> = leased
        .iter()
        .map(|row| row.step.title().to_owned())
        .collect();
    sqlx::query!(
        "WITH free AS (
             SELECT n.id, told.title FROM unnest($1::uuid[], $2::text[]) AS told (job, title)
             JOIN jobs j ON j.id = told.job JOIN nodes n ON n.id = j.node_id AND n.visit = j.visit
             FOR UPDATE OF n SKIP LOCKED)
         UPDATE nodes SET waiting_for = free.title, waiting_since = $3, waiting_reason = $4, next_action = 'continue after this step: ' || free.title
         FROM free WHERE nodes.id = free.id",
        &ids,
        &titles,
        now.to_sqlx() as _,
        WaitReason::Step.as_str(),
    )
    .execute(&mut *conn)
    .await?;
    super::operations::continue_unknown(conn, &ids).await
}

/// A job with a silent worker.
#[derive(Clone, Debug)]
pub struct LostJob {
    pub id: JobId,
    pub node: NodeId,
    pub operation: Option<OperationId>,
    /// The word of the step, also of a newer version.
    pub step: String,
}

/// Queues jobs with expired leases again. The next attempt has a higher number. Nodes are locked
/// together with their jobs; jobs locked by other transactions are handled by the next call.
pub async fn expire_leases(conn: &mut PgConnection, now: Timestamp) -> Result<Vec<LostJob>, Error> {
    Ok(sqlx::query_as!(
        LostJob,
        r#"WITH silent AS (
               SELECT j.id FROM jobs j JOIN nodes n ON n.id = j.node_id WHERE j.state = 'leased' AND j.lease_until < $1
               FOR UPDATE OF n, j SKIP LOCKED)
           UPDATE jobs SET state = 'queued', leased_by = NULL, lease_until = NULL
           FROM silent WHERE jobs.id = silent.id
           RETURNING jobs.id AS "id: JobId", node_id AS "node: NodeId", operation_id AS "operation: OperationId",
                     step AS "step: String""#,
        now.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?)
}

/// Queues the jobs of a replaced agent process again. Returns their number.
pub async fn requeue_of(conn: &mut PgConnection, agent: AgentId) -> Result<u64, Error> {
    let done = sqlx::query!(
        "UPDATE jobs SET state = 'queued', leased_by = NULL, lease_until = NULL WHERE state = 'leased' AND leased_by = $1",
        agent as AgentId,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Queues the jobs leased by agents of a site enrolled by `muster dev` again.
pub async fn requeue_dev(conn: &mut PgConnection, site: ObjectId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE jobs SET state = 'queued', leased_by = NULL, lease_until = NULL
         WHERE state = 'leased' AND leased_by IN (SELECT id FROM agents WHERE site_id = $1 AND name LIKE 'dev-%')",
        site as ObjectId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns whether a node has a job that is queued or leased.
pub async fn has_open(conn: &mut PgConnection, node: NodeId) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM jobs WHERE node_id = $1 AND state IN ('queued', 'leased')) AS "open!""#,
        node as NodeId,
    )
    .fetch_one(conn)
    .await?)
}

/// Fails the open jobs with void permits.
pub async fn fail_void(
    conn: &mut PgConnection,
    failure: &Failure,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE jobs j SET state = 'failed', failure = $1, finished_at = $2, leased_by = NULL, lease_until = NULL, waiting_for = NULL
         FROM permits p WHERE p.id = j.permit_id AND p.void AND j.state IN ('queued', 'leased')",
        Json(failure) as _,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Requests cancellation of an operation's jobs. Agents receive the request with the next lease
/// renewal. Queued jobs are cancelled at once. Returns the number of affected jobs.
pub async fn cancel_of(
    conn: &mut PgConnection,
    operation: OperationId,
    now: Timestamp,
) -> Result<u64, Error> {
    let asked = sqlx::query!(
        "UPDATE jobs SET cancel = true, state = CASE WHEN state = 'queued' THEN 'cancelled' ELSE state END,
                finished_at = CASE WHEN state = 'queued' THEN $2 ELSE finished_at END
         WHERE operation_id = $1 AND state IN ('queued', 'leased')",
        operation as OperationId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(asked.rows_affected())
}

/// A job not leased to any agent.
#[derive(Clone, Debug)]
pub struct HeldBackRow {
    pub id: JobId,
    pub node: NodeId,
    pub node_name: String,
    pub operation: Option<OperationId>,
    /// The word of the step, also of a newer version.
    pub step: String,
}

/// Records a wait condition on the queued jobs of a site with a step outside `steps`. Returns the
/// jobs changed by this call.
pub async fn mark_waiting(
    conn: &mut PgConnection,
    site: ObjectId,
    steps: &[String],
    awaited: &str,
) -> Result<Vec<HeldBackRow>, Error> {
    Ok(sqlx::query_as!(
        HeldBackRow,
        r#"UPDATE jobs j SET waiting_for = $3 FROM nodes n
           WHERE j.site_id = $1 AND j.state = 'queued' AND j.step <> ALL ($2) AND j.waiting_for IS DISTINCT FROM $3 AND n.id = j.node_id
           RETURNING j.id AS "id: JobId", j.node_id AS "node: NodeId", n.name AS node_name, j.operation_id AS "operation: OperationId",
                     j.step AS "step: String""#,
        site as ObjectId,
        steps,
        awaited,
    )
    .fetch_all(conn)
    .await?)
}
