//! The networks of BMCs and consoles, at the write of a node. A new address is inside of the
//! networks of the node's site, and of the networks of the credential. The same holds after a
//! change of address, port, credential or site. An address stored before its site declared networks
//! stays.

use std::net::IpAddr;

use ipnet::IpNet;
use muster_api::nodes::{BmcPlace, NodeConsole, NodePower, NodeSpec};
use muster_core::out_of_band::{find_special, is_inside, list_networks};
use serde_json::Value;
use sqlx::PgConnection;

use crate::db;
use crate::document::{self, fault};
use crate::error::{Error, Fault};

/// The way from the agent of a site to a BMC or a console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way<'spec> {
    site: &'spec str,
    /// The pointer of the BMC or console in the spec.
    pointer: &'static str,
    /// The member of the site's spec with the networks.
    member: &'static str,
    /// The device at the address, for messages.
    device: &'static str,
    address: IpAddr,
    port: u16,
    credential: Option<&'spec str>,
}

fn find_bmc(spec: &NodeSpec) -> Option<Way<'_>> {
    let BmcPlace {
        address,
        port,
        credential,
    } = spec.power.find_bmc()?;
    let pointer = match spec.power {
        NodePower::Redfish { .. } => "/spec/power/redfish/bmc",
        NodePower::Ipmi { .. } => "/spec/power/ipmi/bmc",
        NodePower::Manual { .. } => return None,
    };
    Some(Way {
        site: &spec.site,
        pointer,
        member: "bmc_networks",
        device: "BMC",
        address,
        port,
        credential: Some(credential),
    })
}

fn find_console(spec: &NodeSpec) -> Option<Way<'_>> {
    let NodeConsole::Tcp { address, port } = spec.console?;
    Some(Way {
        site: &spec.site,
        pointer: "/spec/console/tcp",
        member: "console_networks",
        device: "console",
        address,
        port,
        credential: None,
    })
}

fn list_ways(spec: &NodeSpec) -> Vec<Way<'_>> {
    let ways = [find_bmc(spec), find_console(spec)];
    ways.into_iter().flatten().collect()
}

/// Lists the faults of new and changed addresses. `former` is the stored spec, `None` for a new
/// node. An unreadable former spec has no address to keep. An unreadable new spec has no faults
/// here, and the caller refuses the document.
///
/// # Errors
/// When the database fails.
pub(crate) async fn list_faults(
    conn: &mut PgConnection,
    former: Option<&Value>,
    spec: &Value,
) -> Result<Vec<Fault>, Error> {
    let Ok(new) = document::stored_spec::<NodeSpec>(spec) else {
        return Ok(Vec::new());
    };
    let former: Option<NodeSpec> = former.and_then(|spec| document::stored_spec(spec).ok());
    let kept = former.as_ref().map(list_ways).unwrap_or_default();
    let mut faults = Vec::new();
    for way in list_ways(&new) {
        if !kept.contains(&way) {
            check_site(conn, &mut faults, way).await?;
            check_credential(conn, &mut faults, way).await?;
        }
    }
    Ok(faults)
}

/// Rejects a node with a new or changed address outside of the networks.
///
/// # Errors
/// 422 naming the networks; as [`list_faults`].
pub(crate) async fn allow_addresses(
    conn: &mut PgConnection,
    former: Option<&Value>,
    spec: &Value,
) -> Result<(), Error> {
    let faults = list_faults(conn, former, spec).await?;
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Error::Unprocessable(faults)),
    }
}

async fn check_site(
    conn: &mut PgConnection,
    faults: &mut Vec<Fault>,
    way: Way<'_>,
) -> Result<(), Error> {
    let Way {
        site,
        pointer,
        member,
        device,
        address,
        ..
    } = way;
    // A missing site is reported with the references.
    let Some(row) = db::objects::find(conn, "site", site).await? else {
        return Ok(());
    };
    let networks = document::networks_of(&row, member)?;
    if is_inside(&networks, address) {
        return Ok(());
    }
    let pointer = format!("{pointer}/address");
    if let Some(word) = find_special(IpNet::from(address)) {
        let detail = format!(
            "{address} is no address of a {device} ({word}): write the {device}'s own address."
        );
        faults.push(fault(pointer, "special_network", detail));
        return Ok(());
    }
    faults.push(match networks.is_empty() {
        true => fault(
            pointer,
            "no_networks",
            format!(
                "The site {site} declares no {member}, and a changed address, port, credential or site needs them. An administrator adds the network of {address} to `spec.{member}` of the site first, for example {}.",
                IpNet::from(address)
            ),
        ),
        false => fault(
            pointer,
            "outside_networks",
            format!(
                "{address} is outside of the {member} of the site {site}: {}.",
                list_networks(&networks)
            ),
        ),
    });
    Ok(())
}

async fn check_credential(
    conn: &mut PgConnection,
    faults: &mut Vec<Fault>,
    way: Way<'_>,
) -> Result<(), Error> {
    let Some(name) = way.credential else {
        return Ok(());
    };
    // A missing credential is reported with the references.
    let Some(row) = db::objects::find(conn, "credential", name).await? else {
        return Ok(());
    };
    let networks = document::networks_of(&row, "networks")?;
    if !networks.is_empty() && !is_inside(&networks, way.address) {
        faults.push(fault(
            format!("{}/credential", way.pointer),
            "outside_networks",
            format!(
                "The credential {name} is for BMCs in {}; {} is outside.",
                list_networks(&networks),
                way.address
            ),
        ));
    }
    Ok(())
}
