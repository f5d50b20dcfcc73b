//! Revisions of pools. A revision is written once; a trigger refuses every change.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::pools::OnChange;
use muster_core::ids::{NodeId, ObjectId, RevisionId};
use muster_core::stacks::StackSpec;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::HashMap;
use uuid::Uuid;

use crate::error::Error;

/// A revision, without its documents.
#[derive(Clone, Debug)]
pub struct RevisionRow {
    pub id: RevisionId,
    pub number: i32,
    /// The number of the revision before.
    pub parent: Option<i32>,
    pub image: String,
    pub stack: String,
    pub stack_version: String,
    pub network_profile: Option<String>,
    pub actor: String,
    pub created_at: Timestamp,
    /// New claims of the pool get this revision.
    pub present: bool,
    /// Number of open claims assigned this revision.
    pub assigned: i64,
    /// Number of open claims with a node observed to run this revision.
    pub running: i64,
}

/// A revision with its documents, as stored.
#[derive(Clone, Debug)]
pub struct StoredRevision {
    pub id: RevisionId,
    pub number: i32,
    pub image: Value,
    pub stack: Value,
    pub network_profile: Option<Value>,
}

/// A revision added by a change.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    pub id: RevisionId,
    pub number: i32,
    /// The stack is locked against the image.
    pub is_whole: bool,
}

/// An open claim of a pool: the node, and the numbers of its revisions.
#[derive(Clone, Debug)]
pub struct ClaimRevisions {
    pub node: String,
    pub claim: String,
    pub assigned: i32,
    /// Absent while unknown.
    pub running: Option<i32>,
}

/// Locks the revisions of a pool until the transaction ends. Numbers therefore have no gaps. The
/// lock is taken after all locks on objects.
pub async fn lock(conn: &mut PgConnection, pool: ObjectId) -> Result<(), Error> {
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtextextended('revisions of ' || $1, 0))",
        pool.to_string()
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Adds a revision with the present documents of a pool's references, if they differ from the
/// newest revision. A pool on hold gets its first revision only. The caller holds [`lock`].
pub async fn add_if_changed(
    conn: &mut PgConnection,
    pool: ObjectId,
    actor: &str,
    now: Timestamp,
) -> Result<Option<Added>, Error> {
    Ok(sqlx::query_as!(
        Added,
        r#"INSERT INTO pool_revisions (id, pool_id, number, parent, image_name, image, stack_name, stack, network_profile_name, network_profile, actor, created_at)
           SELECT $2, pool.id, COALESCE(newest.number, 0) + 1, newest.number, image.name, image.spec, stack.name, stack.spec, network.name, network.spec, $3, $4
           FROM objects pool
           JOIN objects image ON image.kind = 'image' AND image.name = pool.spec ->> 'image'
           JOIN objects stack ON stack.kind = 'stack' AND stack.name = pool.spec ->> 'stack'
           LEFT JOIN objects network ON network.kind = 'network_profile' AND network.name = pool.spec ->> 'network_profile'
           LEFT JOIN LATERAL (SELECT r.* FROM pool_revisions r WHERE r.pool_id = pool.id ORDER BY r.number DESC LIMIT 1) newest ON true
           WHERE pool.id = $1 AND (newest.number IS NULL OR pool.spec ->> 'on_change' IS DISTINCT FROM 'hold')
             AND (newest.image, newest.stack, newest.network_profile, newest.image_name, newest.stack_name, newest.network_profile_name)
                 IS DISTINCT FROM (image.spec, stack.spec, network.spec, image.name, stack.name, network.name)
           RETURNING id AS "id: RevisionId", number, COALESCE(stack #>> '{lock,image_digest}' = image ->> 'digest', false) AS "is_whole!""#,
        pool as ObjectId,
        RevisionId::new() as RevisionId,
        actor,
        now.to_sqlx() as _,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns what a change does to a pool.
pub async fn find_on_change(conn: &mut PgConnection, pool: ObjectId) -> Result<OnChange, Error> {
    let found = sqlx::query_scalar!(
        r#"SELECT spec ->> 'on_change' AS "on_change: OnChange" FROM objects WHERE id = $1"#,
        pool as ObjectId,
    );
    let found = found.fetch_optional(conn).await?;
    Ok(found.flatten().unwrap_or_default())
}

/// Returns whether the documents of a pool's references differ from the newest revision.
pub async fn has_change(conn: &mut PgConnection, pool: ObjectId) -> Result<bool, Error> {
    let found = sqlx::query_scalar!(
        r#"SELECT (newest.image, newest.stack, newest.network_profile, newest.image_name, newest.stack_name, newest.network_profile_name)
                  IS DISTINCT FROM (image.spec, stack.spec, network.spec, image.name, stack.name, network.name) AS "changed!"
           FROM objects pool
           JOIN objects image ON image.kind = 'image' AND image.name = pool.spec ->> 'image'
           JOIN objects stack ON stack.kind = 'stack' AND stack.name = pool.spec ->> 'stack'
           LEFT JOIN objects network ON network.kind = 'network_profile' AND network.name = pool.spec ->> 'network_profile'
           JOIN LATERAL (SELECT r.* FROM pool_revisions r WHERE r.pool_id = pool.id ORDER BY r.number DESC LIMIT 1) newest ON true
           WHERE pool.id = $1"#,
        pool as ObjectId,
    );
    Ok(found.fetch_optional(conn).await?.unwrap_or_default())
}

/// Returns whether a pool has an open claim, or a machine under adoption.
pub async fn has_claims(conn: &mut PgConnection, pool: ObjectId) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM claims WHERE pool_id = $1 AND state <> 'released')
               OR EXISTS (SELECT FROM adoptions WHERE pool_id = $1) AS "claimed!""#,
        pool as ObjectId,
    )
    .fetch_one(conn)
    .await?)
}

/// Assigns a revision to all claims made from now on. Existing claims keep their revision.
pub async fn set_present(
    conn: &mut PgConnection,
    pool: ObjectId,
    revision: RevisionId,
) -> Result<(), Error> {
    super::claims::pin_assigned(conn, pool).await?;
    sqlx::query!(
        "INSERT INTO present_revisions (pool_id, revision_id) VALUES ($1, $2) ON CONFLICT (pool_id) DO UPDATE SET revision_id = $2",
        pool as ObjectId,
        revision as RevisionId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the numbers of a pool's present and newest revision.
pub async fn find_numbers(
    conn: &mut PgConnection,
    pool: ObjectId,
) -> Result<(Option<i32>, Option<i32>), Error> {
    let row = sqlx::query!(
        "SELECT (SELECT r.number FROM present_revisions p JOIN pool_revisions r ON r.id = p.revision_id WHERE p.pool_id = $1) AS present,
                (SELECT max(number) FROM pool_revisions WHERE pool_id = $1) AS newest",
        pool as ObjectId,
    )
    .fetch_one(conn)
    .await?;
    Ok((row.present, row.newest))
}

/// Lists revisions of a pool, newest first: all of them, or the one with the given number.
pub async fn list(
    conn: &mut PgConnection,
    pool: ObjectId,
    number: Option<i32>,
    limit: i64,
) -> Result<Vec<RevisionRow>, Error> {
    Ok(sqlx::query_as!(
        RevisionRow,
        r#"SELECT r.id AS "id: RevisionId", r.number, r.parent, r.image_name AS image, r.stack_name AS stack,
                  COALESCE(r.stack ->> 'version', '') AS "stack_version!", r.network_profile_name AS network_profile, r.actor, r.created_at,
                  EXISTS (SELECT FROM present_revisions p WHERE p.revision_id = r.id) AS "present!",
                  (SELECT count(*) FROM claims c WHERE c.pool_id = $1 AND c.assigned_id = r.id AND c.state <> 'released') AS "assigned!",
                  (SELECT count(*) FROM claims c WHERE c.pool_id = $1 AND c.running_id = r.id AND c.state <> 'released') AS "running!"
           FROM pool_revisions r WHERE r.pool_id = $1 AND ($2::int IS NULL OR r.number = $2) ORDER BY r.number DESC LIMIT $3"#,
        pool as ObjectId,
        number,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns a revision of a pool by number.
pub async fn find(
    conn: &mut PgConnection,
    pool: ObjectId,
    number: i32,
) -> Result<Option<StoredRevision>, Error> {
    Ok(sqlx::query_as!(
        StoredRevision,
        r#"SELECT id AS "id: RevisionId", number, image, stack, network_profile FROM pool_revisions WHERE pool_id = $1 AND number = $2"#,
        pool as ObjectId,
        number,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the present revision of a pool.
pub async fn find_present(
    conn: &mut PgConnection,
    pool: ObjectId,
) -> Result<Option<StoredRevision>, Error> {
    Ok(sqlx::query_as!(
        StoredRevision,
        r#"SELECT r.id AS "id: RevisionId", r.number, r.image, r.stack, r.network_profile
           FROM present_revisions p JOIN pool_revisions r ON r.id = p.revision_id WHERE p.pool_id = $1"#,
        pool as ObjectId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the newest revision of the pool that holds a node.
pub async fn find_newest_of_node(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<StoredRevision>, Error> {
    Ok(sqlx::query_as!(
        StoredRevision,
        r#"SELECT r.id AS "id: RevisionId", r.number, r.image, r.stack, r.network_profile
           FROM claims c JOIN pool_revisions r ON r.pool_id = c.pool_id
           WHERE c.node_id = $1 AND c.state <> 'released' ORDER BY r.number DESC LIMIT 1"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the stacks of revisions, by id.
///
/// # Errors
/// When a stored stack cannot be parsed.
pub async fn list_stacks(
    conn: &mut PgConnection,
    ids: impl IntoIterator<Item = RevisionId>,
) -> Result<HashMap<RevisionId, StackSpec>, Error> {
    let ids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"SELECT id AS "id: RevisionId", stack AS "stack: Json<StackSpec>" FROM pool_revisions WHERE id = ANY($1)"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.stack.0)).collect())
}

/// Lists the open claims of a pool with their revisions, by node name.
pub async fn list_claims(
    conn: &mut PgConnection,
    pool: ObjectId,
    limit: i64,
) -> Result<Vec<ClaimRevisions>, Error> {
    Ok(sqlx::query_as!(
        ClaimRevisions,
        r#"SELECT n.name AS node, c.name AS claim, assigned.number AS "assigned!", running.number AS "running?"
           FROM claims c JOIN nodes n ON n.id = c.node_id
           LEFT JOIN present_revisions present ON present.pool_id = c.pool_id
           JOIN pool_revisions assigned ON assigned.id = COALESCE(c.assigned_id, present.revision_id)
           LEFT JOIN pool_revisions running ON running.id = c.running_id
           WHERE c.pool_id = $1 AND c.state <> 'released' ORDER BY n.name LIMIT $2"#,
        pool as ObjectId,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the pools in the order in which [`lock`] is taken.
pub async fn list_pools(conn: &mut PgConnection) -> Result<Vec<ObjectId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: ObjectId" FROM objects WHERE kind = 'pool' ORDER BY id"#
    )
    .fetch_all(conn)
    .await?)
}
