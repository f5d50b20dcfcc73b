//! The networks of BMCs and consoles, at the write of a node. A new or changed address is inside of
//! the networks of the node's site, and of the networks of the credential. An address stored before
//! its site declared networks stays.

use std::net::IpAddr;

use ipnet::IpNet;
use muster_api::nodes::{NodeConsole, NodePower, NodeSpec};
use muster_core::out_of_band::{is_inside, list_networks};
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
    address: IpAddr,
    port: u16,
    credential: Option<&'spec str>,
}

fn find_bmc(spec: &NodeSpec) -> Option<Way<'_>> {
    let (pointer, address, port, credential) = match &spec.power {
        NodePower::Redfish { bmc } => (
            "/spec/power/redfish/bmc",
            bmc.address,
            bmc.port,
            &bmc.credential,
        ),
        NodePower::Ipmi { bmc } => (
            "/spec/power/ipmi/bmc",
            bmc.address,
            bmc.port,
            &bmc.credential,
        ),
        NodePower::Manual { .. } => return None,
    };
    Some(Way {
        site: &spec.site,
        pointer,
        member: "bmc_networks",
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
        address,
        ..
    } = way;
    // A missing site is reported with the references.
    let Some(row) = db::objects::find(conn, "site", site).await? else {
        return Ok(());
    };
    let networks = read_networks(&row.spec, member);
    if is_inside(&networks, address) {
        return Ok(());
    }
    let pointer = format!("{pointer}/address");
    faults.push(match networks.is_empty() {
        true => fault(
            pointer,
            "no_networks",
            format!(
                "The site {site} declares no {member}. An administrator adds the network of {address} to `spec.{member}` of the site first, for example {}.",
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
    let networks = read_networks(&row.spec, "networks");
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

/// Reads a list of networks from a stored spec. An absent or unreadable list has no network, so
/// that an unreadable list allows no new address.
pub(crate) fn read_networks(spec: &Value, member: &str) -> Vec<IpNet> {
    let list = spec.get(member).cloned().unwrap_or_default();
    serde_json::from_value(list).unwrap_or_default()
}
