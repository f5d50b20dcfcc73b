//! The network of an installed node: an address, or the files of the pool's network profile.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow, bail};
use muster_core::facts::Facts;
use muster_core::network::{self, NetworkFile, Own, Subject};
use muster_core::wire::node::StaticNetwork;
use sqlx::PgConnection;

use super::sources::{Sources, SubnetDocument};
use crate::db;

/// Fails before any write when the profile does not fit the node.
pub(super) async fn build(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    subnet: &SubnetDocument,
    facts: &Facts,
) -> anyhow::Result<StaticNetwork> {
    Ok(StaticNetwork {
        mac: s.wiring.boot_mac,
        address: format!("{}/{}", s.wiring.address, subnet.network.prefix_len()),
        gateway: subnet.gateway.map(|gateway| gateway.to_string()),
        dns: subnet.dns.iter().map(ToString::to_string).collect(),
        hosts: vec![(s.wiring.address.to_string(), s.node.name.clone())],
        files: render_files(conn, s, subnet, facts).await?,
    })
}

async fn render_files(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    subnet: &SubnetDocument,
    facts: &Facts,
) -> anyhow::Result<Vec<NetworkFile>> {
    let Some((name, profile)) = db::networks::find_profile(conn, s.node.id).await? else {
        return Ok(Vec::new());
    };
    let labels: BTreeMap<String, String> =
        serde_json::from_value(s.node.labels.clone()).context("the node's labels")?;
    let own = Own {
        mac: s.wiring.boot_mac,
        address: s.wiring.address,
        subnet: s.wiring.subnet_name.clone(),
        network: subnet.network,
        gateway: subnet.gateway,
        dns: subnet.dns.clone(),
    };
    let subject = Subject {
        profile: &name,
        node: &s.node.name,
        facts,
        labels: &labels,
        own: &own,
    };
    let files = network::render(&profile, subject).map_err(|why| anyhow!(why))?;
    let named: Vec<String> = profile.labels().into_iter().map(str::to_owned).collect();
    if !named.is_empty() {
        let others = db::networks::list_labelled(conn, s.node.id, &named).await?;
        if let Some(why) = network::shared(&profile, subject, &others) {
            bail!(why);
        }
    }
    Ok(files)
}
