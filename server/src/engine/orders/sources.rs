//! The data behind an order: the leased row, the node with related declarations, the wiring, and
//! the server's keys.

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use muster_core::facts::Facts;
use muster_core::gates::xid::XidOverrides;
use muster_core::ids::{OperationId, PermitId};
use muster_core::values::Digest;
use serde::Deserialize;
use sqlx::PgConnection;

use crate::db;
use crate::db::jobs::LeasedRow;
use crate::db::specs::{Basis, OrderNode, Wiring};
use crate::keys::Keys;

/// Port of the agent's boot listener.
const BOOT_PORT: u16 = 8090;

/// The data behind an order.
pub(super) struct Sources<'a> {
    pub keys: &'a Keys,
    pub row: &'a LeasedRow,
    pub node: OrderNode,
    pub wiring: Wiring,
    pub agent_address: std::net::Ipv4Addr,
    pub now: Timestamp,
}

/// The members of a subnet's spec for orders.
#[derive(Deserialize)]
pub(super) struct SubnetDocument {
    pub network: ipnet::Ipv4Net,
    pub agent_address: std::net::Ipv4Addr,
    #[serde(default)]
    pub gateway: Option<std::net::Ipv4Addr>,
    #[serde(default)]
    pub dns: Vec<std::net::Ipv4Addr>,
}

/// The members of a site's spec for orders.
#[derive(Deserialize)]
pub(super) struct SiteDocument {
    #[serde(default)]
    pub live: Option<LiveDocument>,
    #[serde(default)]
    pub xid: Option<XidOverrides>,
    #[serde(default)]
    pub ssh_sources: Vec<ipnet::Ipv4Net>,
}

#[derive(Deserialize)]
pub(super) struct LiveDocument {
    pub kernel: Digest,
    pub initrd: Digest,
    #[serde(default)]
    pub signature: Option<String>,
}

pub(super) async fn load<'a>(
    keys: &'a Keys,
    conn: &mut PgConnection,
    row: &'a LeasedRow,
    now: Timestamp,
) -> anyhow::Result<(Sources<'a>, SubnetDocument)> {
    let basis = match row.step.measures() {
        true => Basis::Running,
        false => Basis::Assigned,
    };
    let node = db::specs::find_node_by(conn, row.node, basis).await?;
    let wiring = db::specs::find_wiring(conn, row.node)
        .await?
        .ok_or_else(|| anyhow!("{} has no MAC with an address on a subnet", node.name))?;
    let subnet: SubnetDocument =
        serde_json::from_value(wiring.subnet.clone()).context("the subnet's spec")?;
    Ok((
        Sources {
            keys,
            row,
            node,
            wiring,
            agent_address: subnet.agent_address,
            now,
        },
        subnet,
    ))
}

pub(super) fn read_site(s: &Sources<'_>) -> anyhow::Result<SiteDocument> {
    serde_json::from_value(s.node.site_spec.clone()).context("the site's spec")
}

/// The longest time of the step, in seconds.
pub(super) fn lasts_s(s: &Sources<'_>) -> u64 {
    u64::try_from(s.row.timeout_s).unwrap_or(0)
}

pub(super) fn permit(s: &Sources<'_>) -> anyhow::Result<PermitId> {
    s.row.permit.context("the job has no permit")
}

pub(super) fn operation(s: &Sources<'_>) -> anyhow::Result<OperationId> {
    s.row.operation.context("the job has no operation")
}

/// The facts of the newest inspection in the live image.
pub(super) async fn find_facts(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<Facts> {
    db::facts::latest_live(conn, s.row.node)
        .await?
        .context("the node was never inspected")
}

/// A file of the agent's boot listener.
pub(super) fn boot_url(s: &Sources<'_>, path: &str) -> String {
    format!("http://{}:{BOOT_PORT}/boot/v1/{path}", s.agent_address)
}
