//! Columns of a node, observed by jobs: power, and the running or installed system.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::NodeId;
use muster_core::words;
use sqlx::PgConnection;

use crate::error::Error;

/// Records an answer of the live image, and pins the host key for later logins.
pub async fn set_live(
    conn: &mut PgConnection,
    node: NodeId,
    host_key: &str,
    boot_id: &str,
    bmc_certificate: Option<&str>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET live_host_key = $2, live_boot_id = $3, bmc_certificate = COALESCE(bmc_certificate, $4) WHERE id = $1",
        node as NodeId,
        host_key,
        boot_id,
        bmc_certificate,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the host key of an adopted machine after the first login, with the epoch in the trusted
/// principal. The later inventory may raise the epoch of the node by remains.
pub async fn set_adopted(
    conn: &mut PgConnection,
    node: NodeId,
    host_key: &str,
    boot_id: &str,
    epoch: i64,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET os_host_key = $2, os_boot_id = $3, os_epoch = COALESCE(os_epoch, $4) WHERE id = $1",
        node as NodeId,
        host_key,
        boot_id,
        epoch,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the operating system on the node's disk, with the assignment epoch of the writing.
pub async fn set_installed(
    conn: &mut PgConnection,
    node: NodeId,
    host_key: &str,
    disk_serial: &str,
    epoch: i64,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET os_host_key = $2, root_disk_serial = $3, os_epoch = $4, os_boot_id = NULL WHERE id = $1",
        node as NodeId,
        host_key,
        disk_serial,
        epoch,
    )
    .execute(conn)
    .await?;
    Ok(())
}

words! {
    /// The observed power of a node.
    SeenPower, "power state" {
        On = "on",
        Off = "off",
    }
}

/// Records the power of a node.
pub async fn set_power(
    conn: &mut PgConnection,
    node: NodeId,
    seen: SeenPower,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET power_seen = $2, power_seen_at = $3 WHERE id = $1",
        node as NodeId,
        seen as SeenPower,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Clears the live image of a resting node after a switch of power. A node without power frees its
/// reserved share of the rack's power.
pub async fn forget_boot(conn: &mut PgConnection, node: NodeId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET live_host_key = NULL, live_boot_id = NULL,
                power_reserved_w = CASE WHEN power_seen = 'off' THEN 0 ELSE power_reserved_w END
         WHERE id = $1 AND state IN ('available', 'quarantined', 'maintenance')",
        node as NodeId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a boot of the installed system; the live image has ended.
pub async fn set_os_boot(
    conn: &mut PgConnection,
    node: NodeId,
    boot_id: &str,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET os_boot_id = $2, live_host_key = NULL, live_boot_id = NULL WHERE id = $1",
        node as NodeId,
        boot_id,
    )
    .execute(conn)
    .await?;
    Ok(())
}
