//! Networks of BMCs and consoles beside the objects around them: the provisioning subnets of the
//! site, and the nodes with addresses. Both sides are checked.

use std::collections::BTreeMap;

use ipnet::{IpNet, Ipv4Net};
use muster_core::out_of_band::{check_networks, overlap};
use serde_json::Value;
use sqlx::PgConnection;

use super::dependents::refusal;
use crate::auth::Actor;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::db::outside::Limits;
use crate::document::{fault, networks_of, stored_networks};
use crate::error::{Error, Fault};

/// The members of a site's spec with networks.
pub(super) const MEMBERS: [&str; 2] = ["bmc_networks", "console_networks"];

/// The faults of a list of networks at a pointer.
pub(super) fn list_faults(pointer: &str, networks: &[IpNet]) -> Vec<Fault> {
    let found = check_networks(networks).into_iter();
    let faults = found.map(|found| {
        let at = found.place.map(|place| format!("{pointer}/{place}"));
        fault(
            at.unwrap_or_else(|| pointer.to_owned()),
            found.code,
            found.why,
        )
    });
    faults.collect()
}

/// Rejects a newly written site with networks that overlap the subnets, or leave out nodes. The
/// write holds the lock of the site, so no node and no subnet is written meanwhile.
///
/// # Errors
/// 422 naming the subnet, 409 naming the nodes; when the database fails.
pub(super) async fn check_site(
    conn: &mut PgConnection,
    actor: &Actor,
    before: Option<&ObjectRow>,
    site: &ObjectRow,
) -> Result<(), Error> {
    let bmc = list_changed(before, site, "bmc_networks")?;
    let console = list_changed(before, site, "console_networks")?;
    let mut faults = Vec::new();
    for (_, name, spec) in db::agents::list_subnets(conn, site.id).await? {
        let Some(subnet) = read_network(&spec) else {
            continue;
        };
        for (member, networks) in MEMBERS.into_iter().zip([&bmc, &console]) {
            faults.extend(find_overlap(networks, subnet).map(|(place, network)| {
                let detail = format!(
                    "{network} overlaps the provisioning subnet {name} ({subnet}): machines there take any address."
                );
                fault(format!("/spec/{member}/{place}"), "provisioning_network", detail)
            }));
        }
    }
    if !faults.is_empty() {
        return Err(Error::Unprocessable(faults));
    }
    let outside = Limits {
        bmc: &bmc,
        console: &console,
    };
    refuse_outside(conn, actor, site, &outside).await
}

/// Rejects a newly written credential whose networks leave out a node with the credential.
///
/// # Errors
/// 409 naming the nodes; when the database fails.
pub(super) async fn check_credential(
    conn: &mut PgConnection,
    actor: &Actor,
    before: Option<&ObjectRow>,
    credential: &ObjectRow,
) -> Result<(), Error> {
    let bmc = list_changed(before, credential, "networks")?;
    let outside = Limits {
        bmc: &bmc,
        console: &[],
    };
    refuse_outside(conn, actor, credential, &outside).await
}

async fn refuse_outside(
    conn: &mut PgConnection,
    actor: &Actor,
    row: &ObjectRow,
    limits: &Limits<'_>,
) -> Result<(), Error> {
    let mut broken = BTreeMap::new();
    for node in db::outside::list_nodes(conn, row.id, limits).await? {
        let bmc = node.bmc.map(|address| format!("BMC {address}"));
        let console = node.console.map(|address| format!("console {address}"));
        let addresses: Vec<String> = bmc.into_iter().chain(console).collect();
        broken.insert(node.name, addresses.join(", "));
    }
    let rule = format!(
        "The new networks of the {} {} leave out",
        row.kind, row.name
    );
    let advice = "Add the networks of these addresses, or correct the nodes first.";
    refusal::refuse(conn, actor, &broken, &rule, advice).await
}

/// Rejects a newly written subnet that overlaps the networks of BMCs or consoles of its site.
///
/// # Errors
/// 422 naming the network; when the database fails.
pub(super) async fn check_subnet(
    conn: &mut PgConnection,
    before: Option<&ObjectRow>,
    subnet: &ObjectRow,
) -> Result<(), Error> {
    let place = |row: &ObjectRow| (row.spec["site"].clone(), row.spec["network"].clone());
    if before.map(place) == Some(place(subnet)) {
        return Ok(());
    }
    let Some((site, network)) = subnet.spec["site"].as_str().zip(read_network(&subnet.spec)) else {
        return Ok(());
    };
    let Some(site) = db::objects::find(conn, "site", site).await? else {
        return Ok(());
    };
    for member in MEMBERS {
        let networks = networks_of(&site, member)?;
        if let Some((_, taken)) = find_overlap(&networks, network) {
            let detail = format!(
                "{network} overlaps {taken} of the {member} of the site {}: a provisioning subnet has no BMC and no console.",
                site.name
            );
            let wrong = fault("/spec/network", "out_of_band_network", detail);
            return Err(Error::Unprocessable(vec![wrong]));
        }
    }
    Ok(())
}

/// The networks of a member where the write changes the member, and none otherwise: networks that
/// are stored already block no other change.
fn list_changed(
    before: Option<&ObjectRow>,
    row: &ObjectRow,
    member: &str,
) -> Result<Vec<IpNet>, Error> {
    let new = networks_of(row, member)?;
    let former = before.map(|before| stored_networks(&before.spec, member));
    Ok(match former {
        Some(Ok(former)) if former == new => Vec::new(),
        Some(Ok(_) | Err(_)) | None => new,
    })
}

fn read_network(subnet: &Value) -> Option<Ipv4Net> {
    subnet["network"].as_str()?.parse().ok()
}

fn find_overlap(networks: &[IpNet], subnet: Ipv4Net) -> Option<(usize, IpNet)> {
    let mut listed = networks.iter().copied().enumerate();
    listed.find(|(_, network)| overlap(*network, IpNet::V4(subnet)))
}
