//! Clocks of installed systems, as reported by muster-node.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::NodeId;
use sqlx::PgConnection;

use crate::error::Error;

/// The clock of an installed system in its latest report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenClock {
    /// Positive: ahead of the server's clock.
    pub offset_ms: i64,
    /// The machine was powered or rebooted by a job since the report.
    pub booted_since: bool,
}

/// Returns the clock of the installed system. `None`: the system has not reported.
pub async fn find(conn: &mut PgConnection, node: NodeId) -> Result<Option<SeenClock>, Error> {
    Ok(sqlx::query_as!(
        SeenClock,
        r#"SELECT c.offset_ms, EXISTS (SELECT FROM jobs j WHERE j.node_id = c.node_id AND j.finished_at > c.seen_at
                  AND j.step IN ('power_on', 'power_cycle', 'boot_live', 'boot_disk', 'reboot', 'reboot_test', 'firmware')) AS "booted_since!"
           FROM node_clocks c JOIN nodes n ON n.id = c.node_id AND n.os_host_key = c.host_key WHERE c.node_id = $1"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Stores a report. `false`: the report is of a live image, which has the agent's clock.
pub async fn record(
    conn: &mut PgConnection,
    node: NodeId,
    offset_ms: i64,
    now: Timestamp,
) -> Result<bool, Error> {
    let stored = sqlx::query!(
        "INSERT INTO node_clocks (node_id, host_key, offset_ms, seen_at)
         SELECT id, os_host_key, $2::bigint, $3::timestamptz FROM nodes WHERE id = $1 AND os_host_key IS NOT NULL AND live_host_key IS NULL
         ON CONFLICT (node_id) DO UPDATE SET host_key = EXCLUDED.host_key, offset_ms = EXCLUDED.offset_ms, seen_at = EXCLUDED.seen_at",
        node as NodeId,
        offset_ms,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(stored.rows_affected() > 0)
}

/// Forgets the report of a node.
pub async fn forget(conn: &mut PgConnection, node: NodeId) -> Result<(), Error> {
    sqlx::query!("DELETE FROM node_clocks WHERE node_id = $1", node as NodeId)
        .execute(conn)
        .await?;
    Ok(())
}
