//! Rollouts: plan, state and policy.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::rollouts::{RolloutEstimate, RolloutState};
use muster_core::ids::{ObjectId, RevisionId, RolloutId};
use muster_core::rollout::{HaltReason, RolloutPolicy};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

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
    /// Number of the revision of the superseded rollout.
    pub supersedes: Option<i32>,
    pub failed_and_left: i32,
    pub halt: Option<Json<HaltReason>>,
    pub stalled_since: Option<jiff_sqlx::Timestamp>,
    pub actor: String,
    /// The person behind the plan; `None` for a plan of a version before.
    pub person: Option<String>,
    /// The person behind the start; `None` for a start by a version before.
    pub started_by: Option<String>,
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
    pub person: &'a str,
    pub now: Timestamp,
}

/// Returns the next free number of a rollout named after a pool. A pool may have the former name of
/// another pool. The caller holds the lock on the pool's revisions.
pub async fn find_next_number(conn: &mut PgConnection, pool_name: &str) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT COALESCE(max(substring(name FROM '[0-9]+$')::bigint), 0) + 1 AS "next!" FROM rollouts WHERE name ~ ('^' || $1 || '-[0-9]{1,9}$')"#,
        pool_name
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
        "INSERT INTO rollouts (id, name, pool_id, target_id, policy, state, digest, expires_at, planned, actor, created_at, person)
         VALUES ($1, $2, $3, $4, $5, 'planned', $6, $7, $8, $9, $10, $11)",
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
        new.person,
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
                  r.failed_and_left, r.halt AS "halt: Json<HaltReason>", r.stalled_since, r.actor, r.person, r.started_by, r.created_at, r.started_at, r.since, r.ended_at,
                  -- The start of a rollout ends the superseded one at the same time. A plan is to supersede the open rollout.
                  (SELECT bad.number FROM rollouts s JOIN pool_revisions bad ON bad.id = s.target_id
                   WHERE s.pool_id = r.pool_id AND s.id <> r.id
                         AND CASE WHEN r.state = 'planned' THEN s.state IN ('running', 'halted')
                                  ELSE s.state = 'superseded' AND s.ended_at = r.started_at END
                   ORDER BY s.created_at DESC, s.id DESC LIMIT 1) AS supersedes
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
                  r.failed_and_left, r.halt AS "halt: Json<HaltReason>", r.stalled_since, r.actor, r.person, r.started_by, r.created_at, r.started_at, r.since, r.ended_at,
                  -- The start of a rollout ends the superseded one at the same time. A plan is to supersede the open rollout.
                  (SELECT bad.number FROM rollouts s JOIN pool_revisions bad ON bad.id = s.target_id
                   WHERE s.pool_id = r.pool_id AND s.id <> r.id
                         AND CASE WHEN r.state = 'planned' THEN s.state IN ('running', 'halted')
                                  ELSE s.state = 'superseded' AND s.ended_at = r.started_at END
                   ORDER BY s.created_at DESC, s.id DESC LIMIT 1) AS supersedes
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

/// Lists the rollouts that run or are halted, and superseded rollouts with nodes not ended, oldest
/// first.
pub async fn list_open(conn: &mut PgConnection) -> Result<Vec<RolloutId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: RolloutId" FROM rollouts r
           WHERE state IN ('running', 'halted') OR (state = 'superseded' AND EXISTS (
                     SELECT FROM rollout_nodes n WHERE n.rollout_id = r.id AND n.mark IN ('not_begun', 'waiting', 'changing', 'validating')))
           ORDER BY started_at, id"#
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
pub async fn start(
    conn: &mut PgConnection,
    id: RolloutId,
    person: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET state = 'running', started_at = $2, since = $2, started_by = $3, estimate = NULL, estimated_at = NULL WHERE id = $1",
        id as RolloutId,
        now.to_sqlx() as _,
        person
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
        "UPDATE rollouts SET state = 'running', halt = NULL, since = $2, stalled_since = NULL, estimate = NULL, estimated_at = NULL WHERE id = $1",
        id as RolloutId,
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Stores a changed policy, and forgets the estimate.
pub async fn set_policy(
    conn: &mut PgConnection,
    id: RolloutId,
    policy: &RolloutPolicy,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET policy = $2, estimate = NULL, estimated_at = NULL WHERE id = $1",
        id as RolloutId,
        Json(policy) as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the canary and its soak.
pub async fn promote(conn: &mut PgConnection, id: RolloutId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET promoted = true, estimate = NULL, estimated_at = NULL WHERE id = $1",
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

/// Takes the calculation of the estimated end of a plan or of a running rollout with at least `nodes`
/// nodes, unless begun by a server after `before`. A running rollout comes before a plan, and the
/// oldest estimate is the first.
pub async fn take_estimate(
    conn: &mut PgConnection,
    nodes: i64,
    before: Timestamp,
    now: Timestamp,
) -> Result<Option<RolloutId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"UPDATE rollouts SET estimated_at = $3 WHERE id = (
               SELECT r.id FROM rollouts r WHERE r.state IN ('planned', 'running') AND (r.estimated_at IS NULL OR r.estimated_at <= $2)
                      AND (SELECT count(*) FROM rollout_nodes n WHERE n.rollout_id = r.id) >= $1
               ORDER BY r.state = 'planned', r.estimated_at NULLS FIRST, r.id LIMIT 1 FOR UPDATE SKIP LOCKED)
           RETURNING id AS "id: RolloutId""#,
        nodes,
        before.to_sqlx() as _,
        now.to_sqlx() as _,
    )
    .fetch_optional(conn)
    .await?)
}

/// Stores an estimate taken at `taken`, unless forgotten or taken again since.
pub async fn keep_estimate(
    conn: &mut PgConnection,
    id: RolloutId,
    estimate: &RolloutEstimate,
    taken: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollouts SET estimate = $2 WHERE id = $1 AND estimated_at = $3",
        id as RolloutId,
        Json(estimate) as _,
        taken.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the stored estimate.
///
/// # Errors
/// When the stored estimate cannot be parsed.
pub async fn find_estimate(
    conn: &mut PgConnection,
    id: RolloutId,
) -> Result<Option<RolloutEstimate>, Error> {
    let stored = sqlx::query_scalar!(
        r#"SELECT estimate AS "estimate: Json<RolloutEstimate>" FROM rollouts WHERE id = $1"#,
        id as RolloutId
    );
    let stored = stored.fetch_optional(conn).await?.flatten();
    Ok(stored.map(|estimate| estimate.0))
}
