//! Firmware versions and BIOS settings reported by BMCs.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::firmware::BmcInventory;
use muster_core::ids::NodeId;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::error::Error;

/// The report of a BMC, with the times of the first and last identical report.
#[derive(Clone, Debug)]
pub struct SeenInventory {
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub inventory: BmcInventory,
}

/// Stores the report of a BMC. An unchanged report only updates the time of the last report.
pub async fn record_report(
    conn: &mut PgConnection,
    node: NodeId,
    inventory: &BmcInventory,
    now: Timestamp,
) -> Result<(), Error> {
    let same = sqlx::query!(
        "UPDATE bmc_inventories SET last_seen = GREATEST(last_seen, $2)
         WHERE id = (SELECT id FROM bmc_inventories WHERE node_id = $1 ORDER BY id DESC LIMIT 1) AND inventory = $3",
        node as NodeId,
        now.to_sqlx() as _,
        Json(inventory) as _,
    )
    .execute(&mut *conn)
    .await?;
    if same.rows_affected() == 0 {
        sqlx::query!(
            "INSERT INTO bmc_inventories (node_id, first_seen, last_seen, inventory) VALUES ($1, $2, $2, $3)",
            node as NodeId,
            now.to_sqlx() as _,
            Json(inventory) as _,
        )
        .execute(conn)
        .await?;
    }
    Ok(())
}

/// Returns the latest report of a node's BMC.
///
/// # Errors
/// When the stored report cannot be parsed.
pub async fn latest(conn: &mut PgConnection, node: NodeId) -> Result<Option<SeenInventory>, Error> {
    let row = sqlx::query!(
        r#"SELECT first_seen, last_seen, inventory AS "inventory: Json<BmcInventory>" FROM bmc_inventories
           WHERE node_id = $1 ORDER BY id DESC LIMIT 1"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| SeenInventory {
        first_seen: row.first_seen.to_jiff(),
        last_seen: row.last_seen.to_jiff(),
        inventory: row.inventory.0,
    }))
}

/// Returns whether the locked stack of a node's claim requires firmware or BIOS settings, and the
/// node's BMC can report them (Redfish only).
pub async fn is_wanted(conn: &mut PgConnection, node: NodeId) -> Result<bool, Error> {
    let wanted = sqlx::query_scalar!(
        r#"SELECT (COALESCE(jsonb_array_length(revision.stack #> '{lock,firmware}'), 0)
                   + COALESCE(jsonb_array_length(revision.stack #> '{lock,bios}'), 0)) > 0 AS "wanted!"
           FROM nodes n JOIN claims c ON c.node_id = n.id AND c.state <> 'released'
           LEFT JOIN present_revisions present ON present.pool_id = c.pool_id
           JOIN pool_revisions revision ON revision.id = COALESCE(c.assigned_id, present.revision_id)
           WHERE n.id = $1 AND n.power = 'redfish'"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(wanted.unwrap_or(false))
}
