//! Declared objects: the client-owned documents of every kind that the engine only reads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::ObjectId;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::filter;
use crate::access::Sight;
use crate::error::Error;

/// Labels and annotations as stored.
pub type Labels = Json<BTreeMap<String, String>>;

/// An object as stored.
#[derive(Clone, Debug)]
pub struct ObjectRow {
    pub id: ObjectId,
    pub kind: String,
    pub name: String,
    pub labels: Labels,
    pub annotations: Labels,
    /// The spec as written by the client, without secrets.
    pub spec: Value,
    pub generation: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The client-owned part of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub spec: Value,
}

/// A reference in a spec: the JSON pointer of its position, and the referenced object.
#[derive(Clone, Debug)]
pub struct RefRow {
    pub pointer: String,
    pub to: ObjectId,
}

/// Returns one object by name or id.
pub async fn find(
    conn: &mut PgConnection,
    kind: &str,
    key: &str,
) -> Result<Option<ObjectRow>, Error> {
    Ok(sqlx::query_as!(ObjectRow, r#"SELECT id AS "id: ObjectId", kind, name, labels AS "labels: Labels", annotations AS "annotations: Labels", spec,
                  generation, created_at, updated_at
           FROM objects WHERE kind = $1 AND (name = $2 OR id = $3)"#,
        kind,
        key,
        Uuid::parse_str(key).ok(),
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns one object by name or id, locked until the transaction ends.
pub async fn find_for_update(
    conn: &mut PgConnection,
    kind: &str,
    key: &str,
) -> Result<Option<ObjectRow>, Error> {
    Ok(sqlx::query_as!(ObjectRow, r#"SELECT id AS "id: ObjectId", kind, name, labels AS "labels: Labels", annotations AS "annotations: Labels", spec,
                  generation, created_at, updated_at
           FROM objects WHERE kind = $1 AND (name = $2 OR id = $3) FOR NO KEY UPDATE"#,
        kind,
        key,
        Uuid::parse_str(key).ok(),
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns one object by id, of any kind.
pub async fn find_by_id(conn: &mut PgConnection, id: ObjectId) -> Result<Option<ObjectRow>, Error> {
    Ok(sqlx::query_as!(ObjectRow, r#"SELECT id AS "id: ObjectId", kind, name, labels AS "labels: Labels", annotations AS "annotations: Labels", spec,
                  generation, created_at, updated_at
           FROM objects WHERE id = $1"#, id as ObjectId,)
        .fetch_optional(conn)
        .await?)
}

/// Returns one object by name as the target of a reference. A shared lock prevents deletion and
/// changes until the transaction ends.
pub async fn find_for_reference(
    conn: &mut PgConnection,
    kind: &str,
    name: &str,
) -> Result<Option<ObjectRow>, Error> {
    Ok(
        sqlx::query_as!(ObjectRow, r#"SELECT id AS "id: ObjectId", kind, name, labels AS "labels: Labels", annotations AS "annotations: Labels", spec,
                  generation, created_at, updated_at
           FROM objects WHERE kind = $1 AND name = $2 FOR SHARE"#, kind, name,)
            .fetch_optional(conn)
            .await?,
    )
}

/// Lists objects by id, ordered by name. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<ObjectRow>, Error> {
    Ok(sqlx::query_as!(ObjectRow, r#"SELECT id AS "id: ObjectId", kind, name, labels AS "labels: Labels", annotations AS "annotations: Labels", spec,
                  generation, created_at, updated_at
           FROM objects WHERE id = ANY ($1) ORDER BY name"#, ids,)
        .fetch_all(conn)
        .await?)
}

/// Lists the first objects of a kind, ordered by name, within a reader's read scope.
pub async fn list(
    conn: &mut PgConnection,
    kind: &'static str,
    sight: &Sight,
    limit: i64,
) -> Result<Vec<ObjectRow>, Error> {
    let ids = filter::list_ids(
        conn,
        &filter::objects_of(kind),
        &[],
        sight,
        filter::Page {
            sort: filter::BY_NAME[0],
            after: None,
            limit,
        },
    )
    .await?;
    list_by_id(conn, &ids).await
}

/// Counts the objects of a kind.
pub async fn count(conn: &mut PgConnection, kind: &str) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM objects WHERE kind = $1"#,
        kind
    )
    .fetch_one(conn)
    .await?)
}

/// Inserts a new object. A taken name is a conflict.
///
/// # Errors
/// When a constraint is violated.
pub async fn insert(
    conn: &mut PgConnection,
    kind: &str,
    name: &str,
    content: &Content,
    now: Timestamp,
) -> Result<ObjectRow, Error> {
    Ok(sqlx::query_as!(
        ObjectRow,
        r#"INSERT INTO objects (id, kind, name, labels, annotations, spec, created_at, updated_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
           RETURNING id AS "id: ObjectId", kind, name, labels AS "labels: Labels", annotations AS "annotations: Labels", spec,
                     generation, created_at, updated_at"#,
        ObjectId::new() as ObjectId,
        kind,
        name,
        Json(&content.labels) as _,
        Json(&content.annotations) as _,
        content.spec,
        now.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}

/// Replaces the client-owned part and raises the generation. The caller holds the row's lock.
///
/// # Errors
/// When a constraint is violated.
pub async fn set_content(
    conn: &mut PgConnection,
    id: ObjectId,
    content: &Content,
    now: Timestamp,
) -> Result<ObjectRow, Error> {
    Ok(sqlx::query_as!(
        ObjectRow,
        r#"UPDATE objects SET labels = $2, annotations = $3, spec = $4, generation = generation + 1, updated_at = $5,
                  keeps_release_verbs = keeps_release_verbs AND spec = $4
           WHERE id = $1
           RETURNING id AS "id: ObjectId", kind, name, labels AS "labels: Labels", annotations AS "annotations: Labels", spec,
                     generation, created_at, updated_at"#,
        id as ObjectId,
        Json(&content.labels) as _,
        Json(&content.annotations) as _,
        content.spec,
        now.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}

/// Lists at most `limit` objects referring to an object, as `node n1`. A few are enough to explain
/// a refused deletion.
pub async fn list_referrers(
    conn: &mut PgConnection,
    id: ObjectId,
    limit: i64,
) -> Result<Vec<String>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT kind || ' ' || name AS "referrer!" FROM (
               SELECT o.kind, o.name FROM object_refs r JOIN objects o ON o.id = r.from_id WHERE r.to_id = $1
               UNION SELECT 'node', name FROM nodes WHERE $1 IN (site_id, rack_id, profile_id, bmc_credential_id)
               UNION SELECT 'node', n.name FROM node_macs m JOIN nodes n ON n.id = m.node_id WHERE m.subnet_id = $1
               UNION SELECT 'claim', name FROM claims WHERE pool_id = $1 AND state <> 'released'
               UNION SELECT 'agent', name FROM agents WHERE site_id = $1
               UNION SELECT 'rollout', o.name FROM objects own JOIN rollouts o ON o.policy ->> 'maintenance_window' = own.name
                     WHERE own.id = $1 AND own.kind = 'maintenance_window' AND o.state IN ('planned', 'running', 'halted')
               UNION SELECT 'rollout', o.name FROM objects own JOIN rollouts o ON o.policy -> 'halt_when' @> jsonb_build_array(jsonb_build_object('monitor', own.name))
                     WHERE own.id = $1 AND own.kind = 'monitor' AND o.state IN ('planned', 'running', 'halted')
               UNION SELECT 'revision ' || r.number || ' of pool', pool.name
                     FROM objects own, pool_revisions r JOIN objects pool ON pool.id = r.pool_id
                     WHERE own.id = $1 AND own.kind IN ('credential', 'subnet')
                       AND (r.id IN (SELECT revision_id FROM present_revisions) OR r.id IN (SELECT assigned_id FROM claims WHERE state <> 'released'))
                       AND CASE own.kind
                               WHEN 'credential' THEN jsonb_path_exists(r.stack, '$.files[*].content[*].secret ? (@ == $name)', jsonb_build_object('name', own.name))
                               ELSE jsonb_path_exists(r.network_profile, '$.**.subnet ? (@ == $name)', jsonb_build_object('name', own.name))
                           END
           ) AS referrers ORDER BY 1 LIMIT $2"#,
        id as ObjectId,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the pools referring to an object, ordered by name.
pub async fn list_referring_pools(
    conn: &mut PgConnection,
    id: ObjectId,
) -> Result<Vec<ObjectRow>, Error> {
    Ok(sqlx::query_as!(ObjectRow, r#"SELECT id AS "id: ObjectId", kind, name, labels AS "labels: Labels", annotations AS "annotations: Labels", spec,
                  generation, created_at, updated_at
           FROM objects WHERE kind = 'pool' AND id IN (SELECT from_id FROM object_refs WHERE to_id = $1) ORDER BY name"#,
        id as ObjectId,
    )
    .fetch_all(conn)
    .await?)
}

/// The nodes and the open claims inside an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residents {
    pub nodes: i64,
    pub claims: i64,
}

/// Counts the nodes in a rack or with an address of a subnet, and the open claims of a pool or of
/// the pools of a cluster. A node in the present site of the rack or subnet does not count.
pub async fn count_residents(conn: &mut PgConnection, id: ObjectId) -> Result<Residents, Error> {
    Ok(sqlx::query_as!(
        Residents,
        r#"SELECT (SELECT count(*) FROM nodes WHERE (rack_id = $1 OR id IN (SELECT node_id FROM node_macs WHERE subnet_id = $1))
                      AND site_id NOT IN (SELECT to_id FROM object_refs WHERE from_id = $1 AND pointer = '/spec/site')) AS "nodes!",
                  (SELECT count(*) FROM claims WHERE state <> 'released' AND (pool_id = $1 OR pool_id IN (
                      SELECT from_id FROM object_refs WHERE to_id = $1 AND pointer = '/spec/cluster'))) AS "claims!""#,
        id as ObjectId,
    )
    .fetch_one(conn)
    .await?)
}

/// Deletes an object. For a pool, ended claims are deleted too; their history remains in the
/// events. The deletion is refused while references to the object exist.
///
/// # Errors
/// When the object is in use.
pub async fn delete(conn: &mut PgConnection, id: ObjectId) -> Result<(), Error> {
    sqlx::query!(
        "DELETE FROM claims WHERE pool_id = $1 AND state = 'released'",
        id as ObjectId
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!("DELETE FROM objects WHERE id = $1", id as ObjectId)
        .execute(conn)
        .await?;
    Ok(())
}

/// Replaces the references of an object.
pub async fn set_refs(
    conn: &mut PgConnection,
    from: ObjectId,
    refs: &[RefRow],
) -> Result<(), Error> {
    sqlx::query!(
        "DELETE FROM object_refs WHERE from_id = $1",
        from as ObjectId
    )
    .execute(&mut *conn)
    .await?;
    let pointers: Vec<String> = refs.iter().map(|one| one.pointer.clone()).collect();
    let targets: Vec<Uuid> = refs.iter().map(|one| one.to.0).collect();
    sqlx::query!(
        "INSERT INTO object_refs (from_id, pointer, to_id) SELECT $1, * FROM unnest($2::text[], $3::uuid[])",
        from as ObjectId,
        &pointers,
        &targets,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the target of an object's reference, for example `/spec/image` of a pool.
pub async fn find_target(
    conn: &mut PgConnection,
    from: ObjectId,
    pointer: &str,
) -> Result<Option<ObjectRow>, Error> {
    Ok(sqlx::query_as!(
        ObjectRow,
        r#"SELECT o.id AS "id: ObjectId", o.kind, o.name, o.labels AS "labels: Labels", o.annotations AS "annotations: Labels",
                  o.spec, o.generation, o.created_at, o.updated_at
           FROM object_refs r JOIN objects o ON o.id = r.to_id WHERE r.from_id = $1 AND r.pointer = $2"#,
        from as ObjectId,
        pointer,
    )
    .fetch_optional(conn)
    .await?)
}
