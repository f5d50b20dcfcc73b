//! What was observed of a machine goes over to the node that it turned out to be.

use muster_core::ids::NodeId;
use muster_core::values::Mac;
use sqlx::PgConnection;

use crate::error::Error;

/// The MACs of a node, in the order of their numbers.
pub async fn list_macs(conn: &mut PgConnection, node: NodeId) -> Result<Vec<Mac>, Error> {
    let rows = sqlx::query_scalar!(
        "SELECT mac FROM node_macs WHERE node_id = $1 ORDER BY mac",
        node as NodeId
    );
    Ok(rows
        .fetch_all(conn)
        .await?
        .into_iter()
        .map(|mac| Mac(mac.bytes()))
        .collect())
}

/// Gives facts and components of one node to another. Its disks hold what the machine's hold, and its epoch is no lower than what they were written under.
pub async fn give_observations(
    conn: &mut PgConnection,
    from: NodeId,
    to: NodeId,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE facts SET node_id = $2 WHERE node_id = $1",
        from as NodeId,
        to as NodeId
    )
    .execute(&mut *conn)
    .await?;
    // A part that both have seen is known there; inspection tells whether it still is.
    sqlx::query!(
        "UPDATE components moved SET node_id = $2
         WHERE moved.node_id = $1 AND NOT EXISTS (
             SELECT FROM components known WHERE known.node_id = $2 AND known.kind = moved.kind AND known.serial = moved.serial)",
        from as NodeId,
        to as NodeId,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "UPDATE nodes n SET unsanitised = n.unsanitised OR m.unsanitised, epoch = greatest(n.epoch, m.epoch)
         FROM nodes m WHERE n.id = $2 AND m.id = $1",
        from as NodeId,
        to as NodeId,
    )
    .execute(conn)
    .await?;
    Ok(())
}
