//! Racks and the nodes in them.

use muster_core::ids::ObjectId;
use muster_core::lifecycle::state::State;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A rack with the power reserved by its nodes, in watts.
#[derive(Clone, Debug)]
pub struct RackRow {
    pub id: ObjectId,
    pub name: String,
    pub spec: Value,
    pub committed_w: i64,
    pub nodes: i64,
}

/// Lists racks by id, ordered by name. `nodes` limits the count of nodes to the given nodes; the
/// reserved power includes all nodes.
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

/// A node with its position in a rack.
#[derive(Clone, Debug)]
pub struct PlacedRow {
    pub rack: Option<ObjectId>,
    pub unit: Option<i32>,
    pub name: String,
    pub state: State,
    pub waiting_for: Option<String>,
    pub reason: Option<String>,
}

/// Lists the nodes in the racks, from the top down. `nodes` limits the result to the given nodes.
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

/// Lists the nodes without a rack, ordered by name. `nodes` limits the result to the given nodes.
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

/// The number of a rack's nodes in one state.
#[derive(Clone, Debug)]
pub struct RackCount {
    pub rack: ObjectId,
    pub state: State,
    pub count: i64,
}

/// Counts the nodes of racks by state. `nodes` limits the count to the given nodes.
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
