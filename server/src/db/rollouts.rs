//! Rollouts and the marks of their nodes.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::operations::OperationState;
use muster_api::rollouts::RolloutState;
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId, RevisionId, RolloutId};
use muster_core::lifecycle::state::{Action, State};
use muster_core::rollout::{HaltReason, Mark, RolloutPolicy};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::objects::Labels;
use crate::error::Error;

/// A rollout as stored.
#[derive(Clone, Debug)]
pub struct RolloutRow {
    pub id: RolloutId,
    pub name: String,
    pub pool: ObjectId,
    pub pool_name: String,
    pub target: RevisionId,
    pub number: i32,
    pub policy: Json<RolloutPolicy>,
    pub state: RolloutState,
    pub digest: String,
    pub expires_at: Timestamp,
    pub planned: i32,
    pub promoted: bool,
    pub failed_and_left: i32,
    pub halt: Option<Json<HaltReason>>,
    pub stalled_since: Option<jiff_sqlx::Timestamp>,
    pub actor: String,
    pub created_at: Timestamp,
    pub started_at: Option<jiff_sqlx::Timestamp>,
    pub since: Option<jiff_sqlx::Timestamp>,
    pub ended_at: Option<jiff_sqlx::Timestamp>,
}

/// A rollout to be stored as planned.
#[derive(Clone, Debug)]
pub struct NewRollout<'a> {
    pub id: RolloutId,
    pub name: &'a str,
    pub pool: ObjectId,
    pub target: RevisionId,
    pub policy: &'a RolloutPolicy,
    pub digest: &'a str,
    pub expires_at: Timestamp,
    pub planned: i32,
    pub actor: &'a str,
    pub now: Timestamp,
}

/// A node of a rollout, with the facts of its claim and lifecycle.
#[derive(Clone, Debug)]
pub struct NodeRow {
    pub node: NodeId,
    pub name: String,
    pub claim: ClaimId,
    /// The revision assigned before the rollout took the node.
    pub before: Option<RevisionId>,
    pub mark: Mark,
    pub since: Timestamp,
    pub reason_code: Option<String>,
    pub reason: Option<String>,
    pub changed: bool,
    pub wrong: Vec<String>,
    pub failed_before: bool,
    pub deferred_until: Option<jiff_sqlx::Timestamp>,
    pub operation: Option<OperationId>,
    /// The claim still holds the node for the pool.
    pub is_member: bool,
    pub assigned: Option<i32>,
    pub running: Option<i32>,
    pub hold: bool,
    pub state: State,
    pub state_reason: Option<String>,
    pub action: Option<Action>,
    pub node_operation: Option<OperationId>,
    /// The kind of the node's open operation.
    pub open_operation: Option<String>,
    /// The state of the operation of the present attempt.
    pub attempt: Option<OperationState>,
    pub protected: bool,
    pub adopted: bool,
    pub site: String,
    pub rack: Option<String>,
    pub labels: Labels,
}

/// Counts the rollouts of a pool that were ever planned. The caller holds the lock on the pool's
/// revisions, so names have no gaps.
pub async fn count(conn: &mut PgConnection, pool: ObjectId) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM rollouts WHERE pool_id = $1"#,
        pool as ObjectId
    )
    .fetch_one(conn)
    .await?)
}

/// Stores a planned rollout.
///
/// # Errors
/// When a constraint is violated.
pub async fn insert(conn: &mut PgConnection, new: &NewRollout<'_>) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO rollouts (id, name, pool_id, target_id, policy, state, digest, expires_at, planned, actor, created_at)
         VALUES ($1, $2, $3, $4, $5, 'planned', $6, $7, $8, $9, $10)",
        new.id as RolloutId,
        new.name,
        new.pool as ObjectId,
        new.target as RevisionId,
        Json(new.policy) as _,
        new.digest,
        new.expires_at.to_sqlx() as _,
        new.planned,
        new.actor,
        new.now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns one rollout by name or id.
///
/// # Errors
/// When the stored policy cannot be parsed.
pub async fn find(conn: &mut PgConnection, key: &str) -> Result<Option<RolloutRow>, Error> {
    Ok(sqlx::query_as!(
        RolloutRow,
        r#"SELECT r.id AS "id: RolloutId", r.name, r.pool_id AS "pool: ObjectId", pool.name AS pool_name, r.target_id AS "target: RevisionId",
                  target.number, r.policy AS "policy: Json<RolloutPolicy>", r.state AS "state: RolloutState", r.digest, r.expires_at, r.planned, r.promoted,
                  r.failed_and_left, r.halt AS "halt: Json<HaltReason>", r.stalled_since, r.actor, r.created_at, r.started_at, r.since, r.ended_at
           FROM rollouts r JOIN objects pool ON pool.id = r.pool_id JOIN pool_revisions target ON target.id = r.target_id
           WHERE r.name = $1 OR r.id = $2"#,
        key,
        Uuid::parse_str(key).ok(),
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists the newest rollouts, of all pools or of one.
///
/// # Errors
/// When a stored policy cannot be parsed.
pub async fn list(
    conn: &mut PgConnection,
    pool: Option<ObjectId>,
    limit: i64,
) -> Result<Vec<RolloutRow>, Error> {
    Ok(sqlx::query_as!(
        RolloutRow,
        r#"SELECT r.id AS "id: RolloutId", r.name, r.pool_id AS "pool: ObjectId", pool.name AS pool_name, r.target_id AS "target: RevisionId",
                  target.number, r.policy AS "policy: Json<RolloutPolicy>", r.state AS "state: RolloutState", r.digest, r.expires_at, r.planned, r.promoted,
                  r.failed_and_left, r.halt AS "halt: Json<HaltReason>", r.stalled_since, r.actor, r.created_at, r.started_at, r.since, r.ended_at
           FROM rollouts r JOIN objects pool ON pool.id = r.pool_id JOIN pool_revisions target ON target.id = r.target_id
           WHERE $1::uuid IS NULL OR r.pool_id = $1 ORDER BY r.created_at DESC, r.id DESC LIMIT $2"#,
        pool as Option<ObjectId>,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Locks a rollout until the transaction ends. Returns the state under the lock.
pub async fn lock(conn: &mut PgConnection, id: RolloutId) -> Result<Option<RolloutState>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT state AS "state: RolloutState" FROM rollouts WHERE id = $1 FOR UPDATE"#,
        id as RolloutId
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists the rollouts that run or are halted, oldest first.
pub async fn list_open(conn: &mut PgConnection) -> Result<Vec<RolloutId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: RolloutId" FROM rollouts WHERE state IN ('running', 'halted') ORDER BY started_at, id"#
    )
    .fetch_all(conn)
    .await?)
}

/// Marks the plans that were not started in time as expired.
pub async fn expire(conn: &mut PgConnection, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET state = 'expired', ended_at = $1 WHERE state = 'planned' AND expires_at <= $1",
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Starts a planned rollout.
///
/// # Errors
/// When another rollout of the pool runs or is halted.
pub async fn start(conn: &mut PgConnection, id: RolloutId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET state = 'running', started_at = $2, since = $2 WHERE id = $1",
        id as RolloutId,
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a halt.
pub async fn halt(
    conn: &mut PgConnection,
    id: RolloutId,
    reason: &HaltReason,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET state = 'halted', halt = $2 WHERE id = $1",
        id as RolloutId,
        Json(reason) as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends a halt.
pub async fn resume(conn: &mut PgConnection, id: RolloutId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET state = 'running', halt = NULL, since = $2, stalled_since = NULL WHERE id = $1",
        id as RolloutId,
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the canary and its soak.
pub async fn promote(conn: &mut PgConnection, id: RolloutId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET promoted = true WHERE id = $1",
        id as RolloutId
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends a rollout.
pub async fn end(
    conn: &mut PgConnection,
    id: RolloutId,
    state: RolloutState,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET state = $2, halt = NULL, ended_at = $3 WHERE id = $1",
        id as RolloutId,
        state.as_str(),
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the start of a stall, or its end.
pub async fn set_stalled(
    conn: &mut PgConnection,
    id: RolloutId,
    since: Option<Timestamp>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET stalled_since = $2 WHERE id = $1",
        id as RolloutId,
        since.map(|since| since.to_sqlx()) as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Adds the claims of the rollout's pool that have no mark yet, and removes the nodes that left. A
/// failed node that leaves stays counted.
pub async fn follow_members(
    conn: &mut PgConnection,
    id: RolloutId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "WITH gone AS (
             DELETE FROM rollout_nodes r WHERE r.rollout_id = $1 AND NOT EXISTS (
                 SELECT FROM claims c JOIN rollouts o ON o.id = $1 AND o.pool_id = c.pool_id
                 WHERE c.id = r.claim_id AND c.node_id = r.node_id AND c.state = 'bound')
             RETURNING r.failed_before OR r.mark = 'failed' AS failed)
         UPDATE rollouts SET failed_and_left = failed_and_left + (SELECT count(*) FROM gone WHERE failed)::integer
         WHERE id = $1 AND EXISTS (SELECT FROM gone WHERE failed)",
        id as RolloutId
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "INSERT INTO rollout_nodes (rollout_id, node_id, claim_id, before_id, since)
         SELECT o.id, c.node_id, c.id, c.assigned_id, $2 FROM rollouts o JOIN claims c ON c.pool_id = o.pool_id AND c.state = 'bound'
         WHERE o.id = $1 ON CONFLICT DO NOTHING",
        id as RolloutId,
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists the nodes of a rollout with their facts, ordered by name.
pub async fn list_nodes(conn: &mut PgConnection, id: RolloutId) -> Result<Vec<NodeRow>, Error> {
    Ok(sqlx::query_as!(
        NodeRow,
        r#"SELECT r.node_id AS "node: NodeId", n.name, r.claim_id AS "claim: ClaimId", r.before_id AS "before: RevisionId", r.mark AS "mark: Mark", r.since, r.reason_code, r.reason,
                  r.changed, r.wrong, r.failed_before, r.deferred_until, r.operation_id AS "operation: OperationId",
                  c.state = 'bound' AND c.node_id = r.node_id AS "is_member!", assigned.number AS "assigned?", running.number AS "running?", c.hold,
                  n.state, n.reason AS state_reason, n.wish AS "action: Action", n.operation_id AS "node_operation: OperationId",
                  open.kind AS "open_operation?", attempt.state AS "attempt?", n.protected, n.adopted,
                  site.name AS site, rack.name AS "rack?", n.labels AS "labels: Labels"
           FROM rollout_nodes r JOIN nodes n ON n.id = r.node_id JOIN claims c ON c.id = r.claim_id JOIN objects site ON site.id = n.site_id
                LEFT JOIN pool_revisions assigned ON assigned.id = c.assigned_id LEFT JOIN pool_revisions running ON running.id = c.running_id
                LEFT JOIN operations open ON open.id = n.operation_id AND open.finished_at IS NULL
                LEFT JOIN operations attempt ON attempt.id = r.operation_id
                LEFT JOIN objects rack ON rack.id = n.rack_id
           WHERE r.rollout_id = $1 ORDER BY n.name"#,
        id as RolloutId
    )
    .fetch_all(conn)
    .await?)
}

/// A new mark of a node.
#[derive(Clone, Debug)]
pub struct NewMark<'a> {
    pub rollout: RolloutId,
    pub node: NodeId,
    pub mark: Mark,
    pub reason_code: &'a str,
    pub reason: &'a str,
    /// Of a done node: whether the rollout changed the node.
    pub changed: bool,
    pub deferred_until: Option<Timestamp>,
    /// The result of a wrong attempt, kept for the next attempt.
    pub wrong: Option<&'a str>,
    pub operation: Option<OperationId>,
}

/// Writes a mark with its reason.
pub async fn set_mark(
    conn: &mut PgConnection,
    new: &NewMark<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollout_nodes SET mark = $3, since = $4, reason_code = $5, reason = $6, changed = $7, deferred_until = $8,
                wrong = CASE WHEN $9::text IS NULL THEN wrong ELSE wrong || $9::text END, operation_id = COALESCE($10, operation_id),
                failed_before = failed_before OR $3 = 'failed'
         WHERE rollout_id = $1 AND node_id = $2",
        new.rollout as RolloutId,
        new.node as NodeId,
        new.mark.as_str(),
        now.to_sqlx() as _,
        new.reason_code,
        new.reason,
        new.changed,
        new.deferred_until.map(|until| until.to_sqlx()) as _,
        new.wrong,
        new.operation as Option<OperationId>,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the mark of a node.
pub async fn find_mark(
    conn: &mut PgConnection,
    rollout: RolloutId,
    node: NodeId,
) -> Result<Option<Mark>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT mark AS "mark: Mark" FROM rollout_nodes WHERE rollout_id = $1 AND node_id = $2"#,
        rollout as RolloutId,
        node as NodeId
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the rollout of a pool that runs or is halted.
pub async fn find_open(
    conn: &mut PgConnection,
    pool: ObjectId,
) -> Result<Option<RolloutId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: RolloutId" FROM rollouts WHERE pool_id = $1 AND state IN ('running', 'halted') FOR UPDATE"#,
        pool as ObjectId
    )
    .fetch_optional(conn)
    .await?)
}

/// Stores the digest and the size of a plan.
pub async fn set_plan(conn: &mut PgConnection, new: &NewRollout<'_>) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET digest = $2, planned = $3 WHERE id = $1",
        new.id as RolloutId,
        new.digest,
        new.planned,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Counts the nodes of a rollout by mark.
pub async fn count_marks(
    conn: &mut PgConnection,
    id: RolloutId,
) -> Result<Vec<(String, u32)>, Error> {
    let rows = sqlx::query!(
        r#"SELECT mark, count(*) AS "count!" FROM rollout_nodes WHERE rollout_id = $1 GROUP BY mark"#,
        id as RolloutId
    )
    .fetch_all(conn)
    .await?;
    let count = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(rows
        .into_iter()
        .map(|row| (row.mark, count(row.count)))
        .collect())
}
