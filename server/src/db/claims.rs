//! Claims: one node bound to one pool.

use muster_core::claims::{ClaimState, WaitFor};
use muster_core::lifecycle::state::State;
use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId, RevisionId};
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// A claim with the names of its node and pool.
#[derive(Clone, Debug)]
pub struct ClaimRow {
    pub id: ClaimId,
    pub name: String,
    pub spec: Value,
    pub node: NodeId,
    pub node_name: String,
    pub node_state: State,
    pub node_protected: bool,
    pub operation: Option<OperationId>,
    pub pool: String,
    pub pool_id: ObjectId,
    pub pool_spec: Value,
    /// The number of the assigned revision. Absent for a claim that ended before revisions.
    pub revision: Option<i32>,
    pub image: Option<String>,
    pub stack: Option<String>,
    /// The number of the revision that the node was observed to run.
    pub running: Option<i32>,
    pub state: ClaimState,
    pub wait_for: WaitFor,
    /// The claim is on hold: automation must not change the node's software.
    pub hold: bool,
    /// The end, the reason and the author of a write-off.
    pub written_off_until: Option<jiff_sqlx::Timestamp>,
    pub written_off_reason: Option<String>,
    pub written_off_by: Option<String>,
    /// The name of the claim receiving this claim's node, during a replacement.
    pub replaces: Option<String>,
    /// The claim was made by its pool, not by a person.
    pub replica: bool,
    pub epoch: i64,
    pub generation: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub released_at: Option<jiff_sqlx::Timestamp>,
    /// The release can be undone until this time.
    pub undo_until: Option<jiff_sqlx::Timestamp>,
}

/// A claim to write.
#[derive(Clone, Debug)]
pub struct NewClaim {
    pub id: ClaimId,
    pub name: String,
    pub spec: Value,
    pub wait_for: WaitFor,
    pub hold: bool,
    /// The claim receiving this claim's node, for a replacement.
    pub replaces: Option<ClaimId>,
    /// The claim is made by its pool.
    pub replica: bool,
    pub node: NodeId,
    pub pool: ObjectId,
    pub epoch: i64,
    pub actor: String,
    pub now: Timestamp,
}

/// Returns one claim. An id finds the claim in any state, a name only while the claim holds a node.
pub async fn find(conn: &mut PgConnection, key: &str) -> Result<Option<ClaimRow>, Error> {
    Ok(sqlx::query_as!(ClaimRow, r#"SELECT c.id AS "id: ClaimId", c.name, c.spec, c.node_id AS "node: NodeId", n.name AS node_name, n.state AS node_state,
                  n.protected AS node_protected, n.operation_id AS "operation: OperationId", p.name AS pool, c.pool_id AS "pool_id: ObjectId",
                  p.spec AS pool_spec, revision.number AS "revision?", revision.image_name AS "image?", revision.stack_name AS "stack?",
                  running.number AS "running?", c.state, c.wait_for, c.hold,
                  c.written_off_until, c.written_off_reason, c.written_off_by, r.name AS "replaces?", c.replica, c.epoch, c.generation, c.created_at, c.updated_at,
                  c.released_at, c.undo_until
           FROM claims c JOIN nodes n ON n.id = c.node_id JOIN objects p ON p.id = c.pool_id LEFT JOIN claims r ON r.id = c.replaces
                LEFT JOIN present_revisions present ON present.pool_id = c.pool_id AND c.state <> 'released'
                LEFT JOIN pool_revisions revision ON revision.id = COALESCE(c.assigned_id, present.revision_id)
                LEFT JOIN pool_revisions running ON running.id = c.running_id
           WHERE (c.name = $1 AND c.state <> 'released') OR c.id = $2"#,
        key,
        Uuid::parse_str(key).ok(),
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the bound claim of a node. A claim under release is not returned.
pub async fn find_bound(conn: &mut PgConnection, node: NodeId) -> Result<Option<ClaimRow>, Error> {
    let id = sqlx::query_scalar!(
        "SELECT id FROM claims WHERE node_id = $1 AND state = 'bound'",
        node as NodeId
    );
    match id.fetch_optional(&mut *conn).await? {
        Some(id) => Ok(list_by_id(conn, &[id]).await?.pop()),
        None => Ok(None),
    }
}

/// Lists claims by id, ordered by name. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<ClaimRow>, Error> {
    Ok(sqlx::query_as!(ClaimRow, r#"SELECT c.id AS "id: ClaimId", c.name, c.spec, c.node_id AS "node: NodeId", n.name AS node_name, n.state AS node_state,
                  n.protected AS node_protected, n.operation_id AS "operation: OperationId", p.name AS pool, c.pool_id AS "pool_id: ObjectId",
                  p.spec AS pool_spec, revision.number AS "revision?", revision.image_name AS "image?", revision.stack_name AS "stack?",
                  running.number AS "running?", c.state, c.wait_for, c.hold,
                  c.written_off_until, c.written_off_reason, c.written_off_by, r.name AS "replaces?", c.replica, c.epoch, c.generation, c.created_at, c.updated_at,
                  c.released_at, c.undo_until
           FROM claims c JOIN nodes n ON n.id = c.node_id JOIN objects p ON p.id = c.pool_id LEFT JOIN claims r ON r.id = c.replaces
                LEFT JOIN present_revisions present ON present.pool_id = c.pool_id AND c.state <> 'released'
                LEFT JOIN pool_revisions revision ON revision.id = COALESCE(c.assigned_id, present.revision_id)
                LEFT JOIN pool_revisions running ON running.id = c.running_id
           WHERE c.id = ANY($1) ORDER BY c.name"#, ids,)
        .fetch_all(conn)
        .await?)
}

/// The conditions of a claim on its node.
#[derive(Clone, Copy, Debug)]
pub struct Fits<'claim> {
    /// Labels required on the node, all of them.
    pub labels: &'claim BTreeMap<String, String>,
    /// The required hardware profile, if any.
    pub profile: Option<ObjectId>,
    /// The required site, if any.
    pub site: Option<ObjectId>,
}

/// Lists the names of available, unclaimed nodes matching the conditions, in the order of claiming
/// (by name).
pub async fn list_available(
    conn: &mut PgConnection,
    fits: &Fits<'_>,
    limit: i64,
) -> Result<Vec<String>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT name FROM nodes n
         WHERE state = 'available' AND wish IS NULL AND NOT protected AND NOT unsanitised AND profile_id IS NOT NULL AND labels @> $1
           AND ($2::uuid IS NULL OR profile_id = $2) AND ($3::uuid IS NULL OR site_id = $3)
           AND NOT EXISTS (SELECT FROM claims c WHERE c.node_id = n.id AND c.state <> 'released')
         ORDER BY name LIMIT $4",
        Json(fits.labels) as _,
        fits.profile as Option<ObjectId>,
        fits.site as Option<ObjectId>,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Locks and returns the first available, unclaimed node matching the conditions. Nodes locked by
/// other transactions are skipped.
pub async fn find_available(
    conn: &mut PgConnection,
    fits: &Fits<'_>,
) -> Result<Option<NodeId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: NodeId" FROM nodes n
           WHERE state = 'available' AND wish IS NULL AND NOT protected AND NOT unsanitised AND profile_id IS NOT NULL AND labels @> $1
             AND ($2::uuid IS NULL OR profile_id = $2) AND ($3::uuid IS NULL OR site_id = $3)
             AND NOT EXISTS (SELECT FROM claims c WHERE c.node_id = n.id AND c.state <> 'released')
           ORDER BY name LIMIT 1 FOR UPDATE SKIP LOCKED"#,
        Json(fits.labels) as _,
        fits.profile as Option<ObjectId>,
        fits.site as Option<ObjectId>,
    )
    .fetch_optional(conn)
    .await?)
}

/// Inserts a bound claim, assigned the pool's present revision. The database rejects a second open claim on a node.
///
/// # Errors
/// When a constraint is violated: the name is taken, or the node is claimed.
pub async fn insert(conn: &mut PgConnection, claim: &NewClaim) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO claims (id, name, spec, node_id, pool_id, state, epoch, actor, created_at, updated_at, wait_for, hold, replaces, replica, assigned_id)
         VALUES ($1, $2, $3, $4, $5, 'bound', $6, $7, $8, $8, $9, $10, $11, $12, (SELECT revision_id FROM present_revisions WHERE pool_id = $5))",
        claim.id as ClaimId,
        claim.name,
        claim.spec,
        claim.node as NodeId,
        claim.pool as ObjectId,
        claim.epoch,
        claim.actor,
        claim.now.to_sqlx() as _,
        claim.wait_for.as_str(),
        claim.hold,
        claim.replaces as Option<ClaimId>,
        claim.replica,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The members of a claim open to change by clients.
#[derive(Clone, Copy, Debug)]
pub struct Changeable<'spec> {
    pub spec: &'spec Value,
    pub wait_for: WaitFor,
    pub hold: bool,
}

/// Changes a claim and raises the generation. The node is not changed. `false`: the claim is
/// released.
pub async fn set_spec(
    conn: &mut PgConnection,
    id: ClaimId,
    to: Changeable<'_>,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE claims SET spec = $2, wait_for = $3, hold = $4, generation = generation + 1, updated_at = $5
         WHERE id = $1 AND state <> 'released'",
        id as ClaimId,
        to.spec,
        to.wait_for.as_str(),
        to.hold,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Starts the release of a bound claim. The engine ends the claim once the node is clean. Disks are
/// kept until `undo_until` if they hold an installed system that was in service. `false`: the claim
/// was no longer bound.
pub async fn set_releasing(
    conn: &mut PgConnection,
    id: ClaimId,
    epoch: i64,
    undo_until: Option<Timestamp>,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE claims c SET state = 'releasing', epoch = $2, updated_at = $3,
                undo_until = CASE WHEN n.os_host_key IS NOT NULL
                                   AND n.state IN ('in_service', 'draining', 'maintenance', 'quarantined', 'failed') THEN $4::timestamptz END
         FROM nodes n WHERE c.id = $1 AND c.state = 'bound' AND n.id = c.node_id",
        id as ClaimId,
        epoch,
        now.to_sqlx() as _,
        undo_until.map(|at| at.to_sqlx()) as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Undoes the release of a claim while the disks are kept. `false`: the disks are not kept, or the
/// wipe has begun.
pub async fn set_bound_again(
    conn: &mut PgConnection,
    id: ClaimId,
    epoch: i64,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE claims c SET state = 'bound', epoch = $2, updated_at = $3, undo_until = NULL, replaces = NULL
         FROM nodes n WHERE c.id = $1 AND c.state = 'releasing' AND c.undo_until IS NOT NULL AND n.id = c.node_id
           AND CASE n.state
                   WHEN 'in_service' THEN true
                   WHEN 'draining' THEN true
                   WHEN 'wiping' THEN NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id AND j.visit = n.visit)
                   ELSE n.state IN ('failed', 'quarantined', 'maintenance')
                        AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id AND j.epoch = c.epoch AND j.kind = 'wipe')
               END",
        id as ClaimId,
        epoch,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends the undo period of a release, so that the wipe can begin.
pub async fn end_undo(conn: &mut PgConnection, id: ClaimId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE claims SET undo_until = NULL WHERE id = $1 AND state = 'releasing'",
        id as ClaimId
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends a claim under release.
pub async fn end(conn: &mut PgConnection, claim: ClaimId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE claims SET state = 'released', released_at = $2, updated_at = $2 WHERE id = $1 AND state = 'releasing'",
        claim as ClaimId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Assigns a revision to a claim. The node is not changed. `false`: the claim is no longer bound.
pub async fn set_assigned(
    conn: &mut PgConnection,
    id: ClaimId,
    revision: RevisionId,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE claims SET assigned_id = $2, updated_at = $3 WHERE id = $1 AND state = 'bound'",
        id as ClaimId,
        revision as RevisionId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Records the written image: the image of the assigned revision. The running revision is unknown
/// until the next comparison.
pub async fn record_imaged(conn: &mut PgConnection, node: NodeId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE claims c SET running_id = NULL,
                imaged_id = COALESCE(c.assigned_id, (SELECT revision_id FROM present_revisions WHERE pool_id = c.pool_id))
         WHERE c.node_id = $1 AND c.state <> 'released'",
        node as NodeId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a comparison without a difference from the assigned revision. A node with another image
/// or network on disk does not run the revision.
pub async fn record_running(conn: &mut PgConnection, node: NodeId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE claims c SET running_id = assigned.id
         FROM pool_revisions assigned, nodes n
         WHERE c.node_id = $1 AND c.state <> 'released' AND n.id = c.node_id
           AND assigned.id = COALESCE(c.assigned_id, (SELECT revision_id FROM present_revisions WHERE pool_id = c.pool_id))
           AND (n.root_disk_serial IS NULL OR NOT EXISTS (
               SELECT FROM pool_revisions imaged WHERE imaged.id = COALESCE(c.imaged_id, c.running_id)
                 AND (imaged.image ->> 'raw_digest', imaged.network_profile)
                     IS DISTINCT FROM (assigned.image ->> 'raw_digest', assigned.network_profile)))",
        node as NodeId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a comparison with a difference: the node does not run the assigned revision. Another
/// running revision is kept.
pub async fn record_differing(conn: &mut PgConnection, node: NodeId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE claims c SET running_id = NULL
         WHERE c.node_id = $1 AND c.state <> 'released'
           AND c.running_id = COALESCE(c.assigned_id, (SELECT revision_id FROM present_revisions WHERE pool_id = c.pool_id))",
        node as NodeId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Forgets the running revision before a node is changed to another one. With `disk` the root disk
/// is overwritten, and the written image is forgotten too.
pub async fn forget_running(
    conn: &mut PgConnection,
    node: NodeId,
    disk: bool,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE claims c SET running_id = NULL, imaged_id = CASE WHEN $2 THEN NULL ELSE COALESCE(c.imaged_id, c.running_id) END
         WHERE c.node_id = $1 AND c.state <> 'released'
           AND ($2 OR c.running_id IS DISTINCT FROM COALESCE(c.assigned_id, (SELECT revision_id FROM present_revisions WHERE pool_id = c.pool_id)))",
        node as NodeId,
        disk,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Assigns the present revision of a pool to its claims written by the version before, which have
/// none. A later present revision does not apply to existing claims.
pub async fn pin_assigned(conn: &mut PgConnection, pool: ObjectId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE claims c SET assigned_id = present.revision_id FROM present_revisions present
         WHERE present.pool_id = $1 AND c.pool_id = $1 AND c.assigned_id IS NULL AND c.state <> 'released'",
        pool as ObjectId,
    )
    .execute(conn)
    .await?;
    Ok(())
}
