//! Declared cables, and the switch ports observed by the nodes of a rack.

use jiff::Timestamp;
use muster_core::cabling::Cable;
use muster_core::facts::Neighbour;
use muster_core::ids::{NodeId, ObjectId};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// Switch neighbours of a node, observed by the live image at its latest inspection. An installed
/// system does not listen to switches.
#[derive(Clone, Debug)]
pub struct HeardRow {
    pub rack: ObjectId,
    pub node: String,
    pub observed_at: Timestamp,
    pub neighbours: Vec<Neighbour>,
}

/// Lists the neighbours observed by nodes of the racks, ordered by node name. `nodes` limits the
/// list to these nodes. Nodes without an inspection by the live image are left out.
///
/// # Errors
/// When stored facts cannot be parsed.
pub async fn list_heard(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    racks: &[ObjectId],
) -> Result<Vec<HeardRow>, Error> {
    let racks: Vec<Uuid> = racks.iter().map(|rack| rack.0).collect();
    let rows = sqlx::query!(
        r#"SELECT n.rack_id AS "rack!: ObjectId", n.name, seen.observed_at, seen.facts -> 'neighbours' AS "neighbours!: Json<Vec<Neighbour>>"
           FROM nodes n CROSS JOIN LATERAL (
               SELECT f.observed_at, f.facts FROM facts f WHERE f.node_id = n.id AND f.source = 'live'
               ORDER BY f.observed_at DESC, f.id DESC LIMIT 1) seen
           WHERE n.rack_id = ANY($1) AND ($2::uuid[] IS NULL OR n.id = ANY ($2)) ORDER BY n.name"#,
        &racks,
        nodes,
    )
    .fetch_all(conn)
    .await?;
    let heard = rows.into_iter().map(|row| HeardRow {
        rack: row.rack,
        node: row.name,
        observed_at: row.observed_at.to_jiff(),
        neighbours: row.neighbours.0,
    });
    Ok(heard.collect())
}

/// The cable plan of a rack.
#[derive(Clone, Debug)]
pub struct PlanRow {
    pub rack: ObjectId,
    pub name: String,
    pub cables: Vec<Cable>,
}

/// Returns a node's name and the cable plan of its rack. `None`: the node has no rack.
///
/// # Errors
/// When the stored plan cannot be parsed.
pub async fn find_plan_of(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<(String, PlanRow)>, Error> {
    let row = sqlx::query!(
        r#"SELECT n.name AS node, o.id AS "id: ObjectId", o.name, COALESCE(o.spec -> 'cables', '[]') AS "cables!: Json<Vec<Cable>>"
           FROM nodes n JOIN objects o ON o.id = n.rack_id WHERE n.id = $1"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| {
        (
            row.node,
            PlanRow {
                rack: row.id,
                name: row.name,
                cables: row.cables.0,
            },
        )
    }))
}
