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

/// Racks by id, by name, each with how many of these nodes, or of all, it has.
pub async fn list(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    racks: &[Uuid],
) -> Result<Vec<RackRow>, Error> {
    Ok(sqlx::query_as!(
        RackRow,
        r#"SELECT o.id AS "id: ObjectId", o.name, o.spec,
                  (SELECT COALESCE(SUM(n.power_reserved_w), 0) FROM nodes n WHERE n.rack_id = o.id) AS "committed_w!",
                  (SELECT count(*) FROM nodes n WHERE n.rack_id = o.id AND ($2::uuid[] IS NULL OR n.id = ANY ($2))) AS "nodes!"
           FROM objects o WHERE o.kind = 'rack' AND o.id = ANY ($1) ORDER BY o.name"#,
        racks,
        nodes,
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

/// Those of these nodes, or of all, that stand in racks, from the top down.
pub async fn list_placed(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    racks: &[ObjectId],
    limit: i64,
) -> Result<Vec<PlacedRow>, Error> {
    let ids: Vec<Uuid> = racks.iter().map(|id| id.0).collect();
    Ok(sqlx::query_as!(
        PlacedRow,
        r#"SELECT rack_id AS "rack: ObjectId", rack_unit AS unit, name, state, waiting_for, reason FROM nodes
           WHERE rack_id = ANY($1) AND ($3::uuid[] IS NULL OR id = ANY ($3))
           ORDER BY rack_id, rack_unit DESC NULLS LAST, name LIMIT $2"#,
        &ids,
        limit,
        nodes,
    )
    .fetch_all(conn)
    .await?)
}

/// Those of these nodes, or of all, that stand in no rack, by name.
pub async fn list_unplaced(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    limit: i64,
) -> Result<Vec<PlacedRow>, Error> {
    Ok(sqlx::query_as!(
        PlacedRow,
        r#"SELECT rack_id AS "rack: ObjectId", rack_unit AS unit, name, state, waiting_for, reason FROM nodes
           WHERE rack_id IS NULL AND ($2::uuid[] IS NULL OR id = ANY ($2)) ORDER BY name LIMIT $1"#,
        limit,
        nodes,
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

/// The states of racks' nodes, counted: of these nodes, or of all.
pub async fn count_states(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    racks: &[ObjectId],
) -> Result<Vec<RackCount>, Error> {
    let ids: Vec<Uuid> = racks.iter().map(|id| id.0).collect();
    Ok(sqlx::query_as!(
        RackCount,
        r#"SELECT rack_id AS "rack!: ObjectId", state, count(*) AS "count!" FROM nodes
           WHERE rack_id = ANY($1) AND ($2::uuid[] IS NULL OR id = ANY ($2)) GROUP BY rack_id, state"#,
        &ids,
        nodes,
    )
    .fetch_all(conn)
    .await?)
}
