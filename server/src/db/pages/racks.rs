//! Racks and what stands in them.

use muster_core::ids::ObjectId;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A rack with what its nodes hold of its power.
#[derive(Clone, Debug)]
pub struct RackRow {
    pub id: ObjectId,
    pub name: String,
    pub spec: Value,
    pub committed_w: i64,
    pub nodes: i64,
}

/// Racks by name after `after`; with `only`, that one.
///
/// # Errors
/// When the database fails.
pub async fn list(conn: &mut PgConnection, only: Option<&str>, after: &str, limit: i64) -> Result<Vec<RackRow>, Error> {
    Ok(sqlx::query_as!(
        RackRow,
        r#"SELECT o.id AS "id: ObjectId", o.name, o.spec,
                  (SELECT COALESCE(SUM(n.power_reserved_w), 0) FROM nodes n WHERE n.rack_id = o.id) AS "committed_w!",
                  (SELECT count(*) FROM nodes n WHERE n.rack_id = o.id) AS "nodes!"
           FROM objects o WHERE o.kind = 'rack' AND o.name > $2 AND ($1::text IS NULL OR o.name = $1)
           ORDER BY o.name LIMIT $3"#,
        only,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// A node in its place.
#[derive(Clone, Debug)]
pub struct PlacedRow {
    pub rack: Option<ObjectId>,
    pub unit: Option<i32>,
    pub name: String,
    pub state: String,
    pub waiting_for: Option<String>,
    pub reason: Option<String>,
}

/// The nodes of racks, from the top down.
///
/// # Errors
/// When the database fails.
pub async fn list_placed(conn: &mut PgConnection, racks: &[ObjectId], limit: i64) -> Result<Vec<PlacedRow>, Error> {
    let ids: Vec<Uuid> = racks.iter().map(|id| id.0).collect();
    Ok(sqlx::query_as!(
        PlacedRow,
        r#"SELECT rack_id AS "rack: ObjectId", rack_unit AS unit, name, state, waiting_for, reason FROM nodes
           WHERE rack_id = ANY($1) ORDER BY rack_id, rack_unit DESC NULLS LAST, name LIMIT $2"#,
        &ids,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Nodes that stand in no rack, by name.
///
/// # Errors
/// When the database fails.
pub async fn list_unplaced(conn: &mut PgConnection, limit: i64) -> Result<Vec<PlacedRow>, Error> {
    Ok(sqlx::query_as!(
        PlacedRow,
        r#"SELECT rack_id AS "rack: ObjectId", rack_unit AS unit, name, state, waiting_for, reason FROM nodes
           WHERE rack_id IS NULL ORDER BY name LIMIT $1"#,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// How many nodes of a rack are in a state.
#[derive(Clone, Debug)]
pub struct RackCount {
    pub rack: ObjectId,
    pub state: String,
    pub count: i64,
}

/// The states of racks' nodes, counted.
///
/// # Errors
/// When the database fails.
pub async fn count_states(conn: &mut PgConnection, racks: &[ObjectId]) -> Result<Vec<RackCount>, Error> {
    let ids: Vec<Uuid> = racks.iter().map(|id| id.0).collect();
    Ok(sqlx::query_as!(
        RackCount,
        r#"SELECT rack_id AS "rack!: ObjectId", state, count(*) AS "count!" FROM nodes
           WHERE rack_id = ANY($1) GROUP BY rack_id, state"#,
        &ids,
    )
    .fetch_all(conn)
    .await?)
}
