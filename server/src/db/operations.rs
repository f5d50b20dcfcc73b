//! Operations: requested actions and their progress. The steps are jobs. Only the engine moves an
//! operation on.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::operations::OperationState;
use muster_core::gates::SuiteVerdict;
use muster_core::ids::{ClaimId, JobId, NodeId, OperationId, RolloutId};
use muster_core::lifecycle::steps::{JobState, Step};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::lifecycle::EngineNode;
use crate::error::Error;

/// A long-running action to be recorded.
#[derive(Clone, Debug)]
pub struct NewOperation {
    pub id: OperationId,
    /// `accept`, `claim`, `release`…
    pub kind: &'static str,
    pub node: Option<NodeId>,
    pub claim: Option<ClaimId>,
    pub actor: String,
    pub request_id: Option<String>,
    pub message: String,
    pub now: Timestamp,
}

/// An operation as stored, with the name of its node and the deadline of the node's state.
#[derive(Clone, Debug)]
pub struct OperationRow {
    pub id: OperationId,
    pub kind: String,
    pub node: Option<NodeId>,
    pub node_name: Option<String>,
    /// The deadline of the node's state, while the node works on this operation.
    pub deadline_at: Option<jiff_sqlx::Timestamp>,
    pub waiting_for: Option<String>,
    pub claim: Option<ClaimId>,
    pub state: OperationState,
    pub actor: String,
    pub request_id: Option<String>,
    pub message: String,
    pub error: Option<Value>,
    pub created_at: Timestamp,
    pub started_at: Option<jiff_sqlx::Timestamp>,
    pub finished_at: Option<jiff_sqlx::Timestamp>,
}

/// A step of an operation: a job as readers see it.
#[derive(Clone, Debug)]
pub struct StepRow {
    pub operation: Option<OperationId>,
    pub job: JobId,
    pub step: Step,
    pub kind: Step,
    pub state: JobState,
    pub attempt: i32,
    pub round: i32,
    pub progress: Option<Value>,
    pub waiting_for: Option<String>,
    pub failure: Option<Value>,
    pub created_at: Timestamp,
    pub started_at: Option<jiff_sqlx::Timestamp>,
    pub finished_at: Option<jiff_sqlx::Timestamp>,
}

/// A line of an operation's log.
#[derive(Clone, Debug)]
pub struct LogRow {
    pub id: i64,
    pub job: JobId,
    pub step: Step,
    pub attempt: i32,
    pub at: Timestamp,
    pub text: String,
}

/// Inserts an operation as queued.
pub async fn insert(conn: &mut PgConnection, operation: &NewOperation) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO operations (id, kind, node_id, claim_id, state, actor, request_id, message, created_at)
         VALUES ($1, $2, $3, $4, 'queued', $5, $6, $7, $8)",
        operation.id as OperationId,
        operation.kind,
        operation.node as Option<NodeId>,
        operation.claim as Option<ClaimId>,
        operation.actor,
        operation.request_id,
        operation.message,
        operation.now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    let node_id = operation.node.map(tracing::field::display);
    tracing::info!(operation = %operation.id, kind = operation.kind, node_id, "operation created");
    Ok(())
}

/// Stores the suite given with a request for a run of gates.
pub async fn set_suite(conn: &mut PgConnection, id: OperationId, suite: &str) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE operations SET suite = $2 WHERE id = $1",
        id as OperationId,
        suite
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Stores the rollout behind an operation.
pub async fn set_rollout(
    conn: &mut PgConnection,
    id: OperationId,
    rollout: RolloutId,
) -> sqlx::Result<()> {
    let named = sqlx::query!(
        "UPDATE operations SET rollout_id = $2 WHERE id = $1",
        id as OperationId,
        rollout as RolloutId
    );
    named.execute(conn).await.map(drop)
}

/// Records that the drain of an operation requeues the jobs of the node.
pub async fn set_requeue(conn: &mut PgConnection, id: OperationId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE operations SET requeue_jobs = true WHERE id = $1",
        id as OperationId
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns whether the drain of an operation requeues the jobs of the node. A replaced or stopped
/// operation, and an operation of a halted rollout, requeues no job.
pub async fn requeues(conn: &mut PgConnection, id: OperationId) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT o.requeue_jobs FROM operations o JOIN rollouts r ON r.id = o.rollout_id
         WHERE o.id = $1 AND o.finished_at IS NULL AND o.cancel_asked_at IS NULL AND r.state = 'running'",
        id as OperationId
    )
    .fetch_optional(conn)
    .await?
    .unwrap_or_default())
}

/// Returns the reason of a person for an act beyond the budget, given with an operation.
pub async fn find_override(
    conn: &mut PgConnection,
    operation: OperationId,
) -> Result<Option<String>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT override_reason FROM operations WHERE id = $1",
        operation as OperationId
    )
    .fetch_optional(conn)
    .await?
    .flatten())
}

/// Stores the reason of a person for an act beyond the budget.
pub async fn set_override(
    conn: &mut PgConnection,
    operation: OperationId,
    reason: &str,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE operations SET override_reason = $2 WHERE id = $1",
        operation as OperationId,
        reason
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Inserts an operation already completed in the transaction of its request.
pub async fn insert_done(conn: &mut PgConnection, operation: &NewOperation) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO operations (id, kind, node_id, state, actor, request_id, message, created_at, started_at, finished_at)
         VALUES ($1, $2, $3, 'succeeded', $4, $5, $6, $7, $7, $7)",
        operation.id as OperationId,
        operation.kind,
        operation.node as Option<NodeId>,
        operation.actor,
        operation.request_id,
        operation.message,
        operation.now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns one operation.
pub async fn find(conn: &mut PgConnection, id: OperationId) -> Result<Option<OperationRow>, Error> {
    Ok(sqlx::query_as!(
        OperationRow,
        r#"SELECT o.id AS "id: OperationId", o.kind, o.node_id AS "node: NodeId", n.name AS "node_name?",
                  n.deadline_at AS "deadline_at?", n.waiting_for AS "waiting_for?", o.claim_id AS "claim: ClaimId",
                  o.state, o.actor, o.request_id, o.message, o.error, o.created_at, o.started_at, o.finished_at
           FROM operations o LEFT JOIN nodes n ON n.id = o.node_id
           WHERE o.id = $1"#,
        id as OperationId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists operations by id, in any order. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<OperationRow>, Error> {
    Ok(sqlx::query_as!(
        OperationRow,
        r#"SELECT o.id AS "id!: OperationId", o.kind AS "kind!", o.node_id AS "node: NodeId", n.name AS "node_name?",
                  n.deadline_at AS "deadline_at?", n.waiting_for AS "waiting_for?", o.claim_id AS "claim: ClaimId",
                  o.state AS "state!", o.actor AS "actor!", o.request_id, o.message AS "message!", o.error, o.created_at AS "created_at!", o.started_at, o.finished_at
           FROM operations o LEFT JOIN nodes n ON n.id = o.node_id
           WHERE o.id = ANY($1)"#,
        ids,
    )
    .fetch_all(conn)
    .await?)
}

/// The surroundings of an operation: the node's wait condition, protection, reserved power in
/// watts, place and claim.
#[derive(Clone, Debug)]
pub struct AroundRow {
    pub operation: OperationId,
    pub waiting_for: Option<String>,
    /// A word of `WaitReason`.
    pub waiting_reason: Option<String>,
    pub waiting_since: Option<jiff_sqlx::Timestamp>,
    pub site: Option<String>,
    pub rack: Option<String>,
    /// The name of the pool that claims the node.
    pub pool: Option<String>,
    /// The name of the claim, unless released.
    pub claim: Option<String>,
}

/// Returns the surroundings of operations.
pub async fn list_around(
    conn: &mut PgConnection,
    operations: &[OperationId],
) -> Result<Vec<AroundRow>, Error> {
    let ids: Vec<Uuid> = operations.iter().map(|id| id.0).collect();
    Ok(sqlx::query_as!(
        AroundRow,
        r#"SELECT o.id AS "operation!: OperationId", n.waiting_for AS "waiting_for?",
                  n.waiting_reason AS "waiting_reason?", n.waiting_since AS "waiting_since?", site.name AS "site?",
                  rack.name AS "rack?", pool.name AS "pool?", c.name AS "claim?"
           FROM operations o LEFT JOIN nodes n ON n.id = o.node_id
           LEFT JOIN objects site ON site.id = n.site_id LEFT JOIN objects rack ON rack.id = n.rack_id
           LEFT JOIN claims c ON c.id = o.claim_id AND c.state <> 'released'
           LEFT JOIN claims held ON held.node_id = n.id AND held.state <> 'released' LEFT JOIN objects pool ON pool.id = held.pool_id
           WHERE o.id = ANY($1)"#,
        &ids,
    )
    .fetch_all(conn)
    .await?)
}

/// A run of gates made by an operation.
#[derive(Clone, Debug)]
pub struct RunRow {
    pub operation: OperationId,
    pub suite: String,
    pub verdict: SuiteVerdict,
}

/// Lists the runs of gates made by operations, oldest first.
pub async fn list_runs(
    conn: &mut PgConnection,
    operations: &[OperationId],
) -> Result<Vec<RunRow>, Error> {
    let ids: Vec<Uuid> = operations.iter().map(|id| id.0).collect();
    Ok(sqlx::query_as!(
        RunRow,
        r#"SELECT j.operation_id AS "operation!: OperationId", r.suite, r.verdict
           FROM jobs j JOIN gate_runs r ON r.job_id = j.id WHERE j.operation_id = ANY($1) ORDER BY r.id"#,
        &ids,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the steps of operations, oldest first.
pub async fn list_steps(
    conn: &mut PgConnection,
    operations: &[OperationId],
) -> Result<Vec<StepRow>, Error> {
    let ids: Vec<Uuid> = operations.iter().map(|id| id.0).collect();
    Ok(
        sqlx::query_as!(StepRow, r#"SELECT operation_id AS "operation: OperationId", id AS "job: JobId", step, kind, state, attempt, round, progress,
                  waiting_for, failure, created_at, started_at, finished_at
           FROM jobs WHERE operation_id = ANY($1) ORDER BY id"#, &ids,)
            .fetch_all(conn)
            .await?,
    )
}

/// Lists the newest steps of a node, newest first, across all operations.
pub async fn list_node_steps(
    conn: &mut PgConnection,
    node: NodeId,
    limit: i64,
) -> Result<Vec<StepRow>, Error> {
    Ok(sqlx::query_as!(StepRow, r#"SELECT operation_id AS "operation: OperationId", id AS "job: JobId", step, kind, state, attempt, round, progress,
                  waiting_for, failure, created_at, started_at, finished_at
           FROM jobs WHERE node_id = $1 ORDER BY id DESC LIMIT $2"#,
        node as NodeId,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the log lines of an operation after the id `after`, oldest first.
pub async fn list_log(
    conn: &mut PgConnection,
    operation: OperationId,
    after: i64,
    limit: i64,
) -> Result<Vec<LogRow>, Error> {
    Ok(sqlx::query_as!(
        LogRow,
        r#"SELECT l.id, l.job_id AS "job: JobId", j.step, l.attempt, l.at, l.text
           FROM job_logs l JOIN jobs j ON j.id = l.job_id
           WHERE j.operation_id = $1 AND l.id > $2 ORDER BY l.id LIMIT $3"#,
        operation as OperationId,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Opens an operation for work without a request by a client. The operation is running with the
/// given step.
pub async fn open(
    conn: &mut PgConnection,
    node: &EngineNode,
    step: Step,
    now: Timestamp,
) -> Result<OperationId, Error> {
    let id = OperationId::new();
    sqlx::query!(
        "INSERT INTO operations (id, kind, node_id, claim_id, state, actor, created_at, started_at, message)
         VALUES ($1, $2, $3, $4, 'running', 'muster', $5, $5, $6)",
        id as OperationId,
        step.as_str(),
        node.id as NodeId,
        node.claim.map(|(claim, _)| claim) as Option<ClaimId>,
        now.to_sqlx() as _,
        step.title(),
    )
    .execute(conn)
    .await?;
    tracing::info!(operation = %id, kind = step.as_str(), node_id = %node.id, "operation created");
    Ok(id)
}

/// Marks an open operation as running.
pub async fn run(
    conn: &mut PgConnection,
    id: OperationId,
    message: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE operations SET state = 'running', started_at = COALESCE(started_at, $2), message = $3
         WHERE id = $1 AND state IN ('queued', 'running', 'unknown')",
        id as OperationId,
        now.to_sqlx() as _,
        message,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends an operation that is still open.
pub async fn end(
    conn: &mut PgConnection,
    id: OperationId,
    state: OperationState,
    message: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let error =
        (state == OperationState::Failed).then(|| serde_json::json!({ "message": message }));
    let ended = sqlx::query!(
        "UPDATE operations SET state = $2, message = $3, error = $4, finished_at = $5, started_at = COALESCE(started_at, $5)
         WHERE id = $1 AND state IN ('queued', 'running', 'unknown')",
        id as OperationId,
        state as OperationState,
        message,
        error,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    if ended.rows_affected() > 0 {
        tracing::info!(operation = %id, %state, result = message, "operation ended");
    }
    Ok(())
}

/// Marks the unknown operations of newly leased jobs as running.
pub async fn continue_unknown(conn: &mut PgConnection, jobs: &[Uuid]) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE operations SET state = 'running' WHERE state = 'unknown' AND id IN (SELECT operation_id FROM jobs WHERE id = ANY($1))",
        jobs,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Marks a running operation as unknown: the agent is away and the result of the step is not known.
/// The message names the event that will decide. The operation runs again with the next lease.
pub async fn set_unknown(
    conn: &mut PgConnection,
    id: OperationId,
    message: &str,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE operations SET state = 'unknown', message = $2 WHERE id = $1 AND state = 'running'",
        id as OperationId,
        message,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a request to stop an operation. Further steps of the operation do not begin, even if a
/// step is running now.
pub async fn ask_to_stop(
    conn: &mut PgConnection,
    id: OperationId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE operations SET cancel_asked_at = COALESCE(cancel_asked_at, $2) WHERE id = $1 AND finished_at IS NULL",
        id as OperationId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Counts queued and leased jobs, by state.
pub async fn count_open_jobs(conn: &mut PgConnection) -> Result<Vec<(String, i64)>, Error> {
    let rows = sqlx::query!(
        r#"SELECT state, count(*) AS "count!" FROM jobs WHERE state = 'queued' GROUP BY state
           UNION ALL SELECT state, count(*) FROM jobs WHERE state = 'leased' GROUP BY state"#
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.state.unwrap_or_default(), row.count))
        .collect())
}
