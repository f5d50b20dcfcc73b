//! Claims: one node bound to one pool.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::claims::WaitFor;
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId};
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// A claim with the names beside it.
#[derive(Clone, Debug)]
pub struct ClaimRow {
    pub id: ClaimId,
    pub name: String,
    pub spec: Value,
    pub node: NodeId,
    pub node_name: String,
    pub node_state: String,
    pub node_protected: bool,
    pub operation: Option<OperationId>,
    pub pool: String,
    pub pool_id: ObjectId,
    pub pool_spec: Value,
    pub state: String,
    pub wait_for: String,
    /// Nothing that happens by itself changes what its node runs.
    pub hold: bool,
    /// The claim that it was made for.
    pub replaces: Option<String>,
    /// Its pool made it.
    pub replica: bool,
    pub epoch: i64,
    pub generation: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub released_at: Option<jiff_sqlx::Timestamp>,
    /// Until then its release can be undone.
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
    /// The claim whose node it takes the place of.
    pub replaces: Option<ClaimId>,
    /// Its pool makes it.
    pub replica: bool,
    pub node: NodeId,
    pub pool: ObjectId,
    pub epoch: i64,
    pub actor: String,
    pub now: Timestamp,
}

/// One claim: by id whatever its state, by name only while it holds a node.
pub async fn find(conn: &mut PgConnection, key: &str) -> Result<Option<ClaimRow>, Error> {
    Ok(sqlx::query_as!(
        ClaimRow,
        r#"SELECT c.id AS "id: ClaimId", c.name, c.spec, c.node_id AS "node: NodeId", n.name AS node_name, n.state AS node_state,
                  n.protected AS node_protected, n.operation_id AS "operation: OperationId", p.name AS pool, c.pool_id AS "pool_id: ObjectId",
                  p.spec AS pool_spec, c.state, c.wait_for, c.hold, r.name AS "replaces?", c.replica, c.epoch, c.generation, c.created_at, c.updated_at,
                  c.released_at, c.undo_until
           FROM claims c JOIN nodes n ON n.id = c.node_id JOIN objects p ON p.id = c.pool_id LEFT JOIN claims r ON r.id = c.replaces
           WHERE (c.name = $1 AND c.state <> 'released') OR c.id = $2"#,
        key,
        Uuid::parse_str(key).ok(),
    )
    .fetch_optional(conn)
    .await?)
}

/// The claim that holds a node and is not being given up.
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

/// Claims by id, by name; ids that are gone are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<ClaimRow>, Error> {
    Ok(sqlx::query_as!(
        ClaimRow,
        r#"SELECT c.id AS "id: ClaimId", c.name, c.spec, c.node_id AS "node: NodeId", n.name AS node_name, n.state AS node_state,
                  n.protected AS node_protected, n.operation_id AS "operation: OperationId", p.name AS pool, c.pool_id AS "pool_id: ObjectId",
                  p.spec AS pool_spec, c.state, c.wait_for, c.hold, r.name AS "replaces?", c.replica, c.epoch, c.generation, c.created_at, c.updated_at,
                  c.released_at, c.undo_until
           FROM claims c JOIN nodes n ON n.id = c.node_id JOIN objects p ON p.id = c.pool_id LEFT JOIN claims r ON r.id = c.replaces
           WHERE c.id = ANY($1) ORDER BY c.name"#,
        ids,
    )
    .fetch_all(conn)
    .await?)
}

/// Which nodes a claim can have.
#[derive(Clone, Copy, Debug)]
pub struct Fits<'claim> {
    /// All of these.
    pub labels: &'claim BTreeMap<String, String>,
    /// The hardware profile, where one is asked for.
    pub profile: Option<ObjectId>,
    /// The site, where one is asked for.
    pub site: Option<ObjectId>,
}

/// Names of the available nodes that nobody holds and that fit, in the order in which they are claimed.
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

/// Locks an available node that nobody holds and that fits; nodes that others are deciding on are passed over.
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

/// Binds. A second claim on a node is refused by the database.
///
/// # Errors
/// When the database fails or a constraint refuses.
pub async fn insert(conn: &mut PgConnection, claim: &NewClaim) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO claims (id, name, spec, node_id, pool_id, state, epoch, actor, created_at, updated_at, wait_for, hold, replaces, replica)
         VALUES ($1, $2, $3, $4, $5, 'bound', $6, $7, $8, $8, $9, $10, $11, $12)",
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

/// Changes a claim and raises the generation; the node is left alone. `false`: the claim is released.
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

/// Gives a bound claim up; the engine ends it once the node is clean. Its disks are kept until `undo_until` where they hold an installed
/// system that was in service. `false`: it was not bound any more.
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

/// Takes a claim back that was being given up, while its disks are kept. `false`: they are not, or the wipe has begun.
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

/// Keeps the disks no longer.
pub async fn end_undo(conn: &mut PgConnection, id: ClaimId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE claims SET undo_until = NULL WHERE id = $1 AND state = 'releasing'",
        id as ClaimId
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the claim that was being given up.
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
