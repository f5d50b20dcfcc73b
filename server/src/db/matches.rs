//! Transfer of observations from a discovered machine to the declared node it was matched with.

use muster_core::ids::NodeId;
use muster_core::values::Mac;
use sqlx::PgConnection;

use crate::error::Error;

/// Lists the MACs of a node in numeric order.
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

/// Moves facts and components from one node to another. The target also gets the mark of unwiped
/// data and at least the epoch of the source, because the disks were written under that epoch.
/// Remains of deleted nodes follow to the target.
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
    // A part known to both nodes stays with the source node. The next inspection shows whether the
    // part is still installed.
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
        "UPDATE nodes n SET unsanitised = n.unsanitised OR m.unsanitised, epoch = greatest(n.epoch, m.epoch), adopted = n.adopted OR m.adopted
         FROM nodes m WHERE n.id = $2 AND m.id = $1",
        from as NodeId,
        to as NodeId,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "INSERT INTO remains_heirs (remains_id, node_id, merged_at)
         SELECT remains_id, $2, merged_at FROM remains_heirs WHERE node_id = $1 ON CONFLICT DO NOTHING",
        from as NodeId,
        to as NodeId,
    )
    .execute(conn)
    .await?;
    Ok(())
}
