//! The power of racks: the share of each node in the budget, and the nodes waiting for a share. All
//! values are watts.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{NodeId, ObjectId};
use muster_core::lifecycle::snapshot::PowerShare;
use sqlx::PgConnection;

use super::lifecycle::EngineNode;
use crate::error::Error;

/// Returns the rack's power as seen by this node. In a rack able to feed all its machines at once,
/// nodes do not wait for each other. In any other rack the lock prevents reservations by other
/// nodes until the transaction ends.
pub async fn find_share(conn: &mut PgConnection, node: &EngineNode) -> Result<PowerShare, Error> {
    let reserved = node.power_reserved_w > 0;
    let Some(rack) = node.rack else {
        return Ok(PowerShare {
            reserved,
            ..PowerShare::default()
        });
    };
    if find_ample(conn, rack, node.id).await?.is_some() {
        // Shared lock: passes in an ample rack run concurrently. A pass in a rack with too little
        // power takes the exclusive lock below. The query runs again, because the first result was
        // read without a lock.
        sqlx::query!(
            "SELECT id FROM objects WHERE id = $1 FOR SHARE",
            rack as ObjectId
        )
        .fetch_one(&mut *conn)
        .await?;
        if let Some(share) = find_ample(conn, rack, node.id).await? {
            return Ok(PowerShare { reserved, ..share });
        }
    }
    sqlx::query!(
        "SELECT id FROM objects WHERE id = $1 FOR NO KEY UPDATE",
        rack as ObjectId
    )
    .fetch_one(&mut *conn)
    .await?;
    let row = sqlx::query!(
        r#"SELECT o.name, (o.spec ->> 'power_budget_w')::integer AS budget_w,
                  (SELECT COALESCE(SUM(n.power_reserved_w), 0) FROM nodes n WHERE n.rack_id = o.id AND n.id <> $2) AS "committed_w!"
           FROM objects o WHERE o.id = $1"#,
        rack as ObjectId,
        node.id as NodeId,
    )
    .fetch_one(conn)
    .await?;
    Ok(PowerShare {
        rack: Some(row.name),
        budget_w: row.budget_w.and_then(|watts| u32::try_from(watts).ok()),
        committed_w: u32::try_from(row.committed_w).unwrap_or(u32::MAX),
        reserved,
    })
}

/// Returns a node's share in a rack able to feed all its machines at once, as if every other
/// machine drew its maximum. `None`: the rack cannot feed all its machines.
async fn find_ample(
    conn: &mut PgConnection,
    rack: ObjectId,
    node: NodeId,
) -> Result<Option<PowerShare>, Error> {
    let row = sqlx::query!(
        r#"SELECT o.name, (o.spec ->> 'power_budget_w')::integer AS budget_w, most.all_w AS "all_w!", most.others_w AS "others_w!"
           FROM objects o, LATERAL (
               SELECT COALESCE(SUM(w), 0) AS all_w, COALESCE(SUM(w) FILTER (WHERE id <> $2), 0) AS others_w
               FROM (SELECT n.id, GREATEST(n.power_reserved_w, COALESCE((profile.spec ->> 'power_max_w')::integer, 0)) AS w
                     FROM nodes n LEFT JOIN objects profile ON profile.id = n.profile_id WHERE n.rack_id = o.id) AS each) AS most
           WHERE o.id = $1"#,
        rack as ObjectId,
        node as NodeId,
    )
    .fetch_one(conn)
    .await?;
    let fits = row
        .budget_w
        .is_none_or(|budget| row.all_w <= i64::from(budget));
    Ok(fits.then(|| PowerShare {
        rack: Some(row.name),
        budget_w: row.budget_w.and_then(|watts| u32::try_from(watts).ok()),
        committed_w: u32::try_from(row.others_w).unwrap_or(u32::MAX),
        reserved: false,
    }))
}

/// Locks a rack until the transaction ends. Returns the budget and the sum reserved by the nodes,
/// in watts.
pub async fn hold_rack(
    conn: &mut PgConnection,
    rack: ObjectId,
) -> Result<(Option<i32>, i64), Error> {
    let budget = sqlx::query_scalar!(
        "SELECT (spec ->> 'power_budget_w')::integer FROM objects WHERE id = $1 FOR NO KEY UPDATE",
        rack as ObjectId,
    )
    .fetch_one(&mut *conn)
    .await?;
    let committed = sqlx::query_scalar!(
        r#"SELECT COALESCE(SUM(power_reserved_w), 0) AS "committed!" FROM nodes WHERE rack_id = $1"#,
        rack as ObjectId,
    )
    .fetch_one(conn)
    .await?;
    Ok((budget, committed))
}

/// Reserves the node's share of the rack's power.
pub async fn reserve(conn: &mut PgConnection, node: NodeId, watts: i32) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET power_reserved_w = $2 WHERE id = $1",
        node as NodeId,
        watts
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Makes the nodes of a rack without reserved power due, because they may be waiting for the power
/// just freed. Locks the rack first. A pass that already decided to wait has committed and is woken
/// here. A pass still on the way to the budget holds its node's lock and will see the freed watts.
pub async fn wake_rack(
    conn: &mut PgConnection,
    rack: ObjectId,
    freed: NodeId,
    now: Timestamp,
) -> Result<(), Error> {
    if find_ample(conn, rack, freed).await?.is_some() {
        return Ok(());
    }
    sqlx::query!(
        "SELECT id FROM objects WHERE id = $1 FOR NO KEY UPDATE",
        rack as ObjectId
    )
    .fetch_one(&mut *conn)
    .await?;
    sqlx::query!(
        "UPDATE nodes SET due_at = $2
         WHERE id IN (SELECT id FROM nodes WHERE rack_id = $1 AND power_reserved_w = 0 AND due_at > $2 FOR NO KEY UPDATE SKIP LOCKED)",
        rack as ObjectId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}
