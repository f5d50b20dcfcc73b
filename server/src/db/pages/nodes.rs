//! The machine of one node, for the node's page, and lookup by label.

use crate::db::nodes::PowerKind;
use muster_core::claims::ClaimState;
use muster_core::facts::Firmware;
use muster_core::lifecycle::state::Action;
use muster_core::lifecycle::steps::Step;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use muster_core::ids::{ClaimId, NodeId};
use muster_core::values::Mac;
use sqlx::PgConnection;
use sqlx::types::mac_address::MacAddress;
use uuid::Uuid;

use crate::error::Error;

/// Data of the machine itself, with the claim and the pool's spec.
#[derive(Clone, Debug)]
pub struct MachineRow {
    pub version: i64,
    pub visit: i64,
    pub serial: Option<String>,
    pub smbios_uuid: Option<Uuid>,
    pub power: PowerKind,
    pub power_person: Option<String>,
    pub bmc_address: Option<IpNet>,
    pub bmc_port: i32,
    pub bmc_credential: Option<String>,
    pub bmc_certificate: Option<String>,
    pub bmc_system: Option<String>,
    pub bmc_firmware: Option<Firmware>,
    pub power_reserved_w: i32,
    pub action: Option<Action>,
    pub os_host_key: Option<String>,
    pub os_boot_id: Option<String>,
    pub root_disk_serial: Option<String>,
    pub claim_id: Option<ClaimId>,
    pub claim_generation: Option<i64>,
    pub claim_state: Option<ClaimState>,
    pub pool_spec: Option<serde_json::Value>,
    /// The revision assigned to the claim: number, and names of image and stack.
    pub revision: Option<i32>,
    pub image: Option<String>,
    pub stack: Option<String>,
    /// The number of the revision that the node was observed to run.
    pub running: Option<i32>,
}

/// Returns the machine of a node, with the spec of the claiming pool.
pub async fn find_machine(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<MachineRow>, Error> {
    Ok(sqlx::query_as!(
        MachineRow,
        r#"SELECT n.version, n.visit, n.serial, n.smbios_uuid, n.power, n.power_person, n.bmc_address, n.bmc_port,
                  credential.name AS "bmc_credential?", n.bmc_certificate, n.bmc_system, n.bmc_firmware, n.power_reserved_w, n.wish AS action, n.os_host_key, n.os_boot_id,
                  n.root_disk_serial, c.id AS "claim_id?: ClaimId", c.generation AS "claim_generation?", c.state AS "claim_state?", pool.spec AS "pool_spec?",
                  revision.number AS "revision?", revision.image_name AS "image?", revision.stack_name AS "stack?", running.number AS "running?"
           FROM nodes n
           LEFT JOIN objects credential ON credential.id = n.bmc_credential_id
           LEFT JOIN claims c ON c.node_id = n.id AND c.state <> 'released'
           LEFT JOIN objects pool ON pool.id = c.pool_id
           LEFT JOIN present_revisions present ON present.pool_id = c.pool_id
           LEFT JOIN pool_revisions revision ON revision.id = COALESCE(c.assigned_id, present.revision_id)
           LEFT JOIN pool_revisions running ON running.id = c.running_id
           WHERE n.id = $1"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the name of the node with exactly this serial, SMBIOS UUID, MAC or address. The text is
/// usually copied from a label or an alert.
pub async fn find_by_label(conn: &mut PgConnection, text: &str) -> Result<Option<String>, Error> {
    let mac = text.parse::<Mac>().ok().map(|mac| MacAddress::new(mac.0));
    let address = text.parse::<IpAddr>().ok().map(IpNet::from);
    Ok(sqlx::query_scalar!(
        r#"SELECT n.name FROM nodes n
           WHERE n.serial = $1 OR n.smbios_uuid = $2 OR n.bmc_address = $3
              OR n.id = (SELECT m.node_id FROM node_macs m WHERE m.mac = $4)
              OR n.id IN (SELECT m.node_id FROM node_macs m WHERE m.address = $3)
           ORDER BY n.name LIMIT 1"#,
        text,
        Uuid::parse_str(text).ok(),
        address,
        mac,
    )
    .fetch_optional(conn)
    .await?)
}

/// A line of a BMC's event log or sensors, collected by an agent.
#[derive(Clone, Debug)]
pub struct BmcLine {
    pub at: Timestamp,
    /// The step of the failed job.
    pub step: Step,
    pub text: String,
}

/// Lists the BMC lines collected by agents after failures of a node's newest 500 jobs, newest
/// first. The prefixes are written by `agent/src/work/evidence.rs`.
pub async fn list_bmc_lines(
    conn: &mut PgConnection,
    node: NodeId,
    limit: i64,
) -> Result<Vec<BmcLine>, Error> {
    let rows = sqlx::query!(
        r#"SELECT l.at, j.step, l.text FROM (SELECT id, step FROM jobs WHERE node_id = $1 ORDER BY id DESC LIMIT 500) j
           JOIN job_logs l ON l.job_id = j.id
           WHERE l.text LIKE 'BMC event log, %' OR l.text LIKE 'BMC sensor%' ORDER BY l.id DESC LIMIT $2"#,
        node as NodeId,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| BmcLine {
            at: row.at.to_jiff(),
            step: row.step,
            text: row.text,
        })
        .collect())
}
