//! Sites without networks of BMCs or consoles, and nodes with an address outside. Such addresses
//! were stored by the version before, and keep working.

use std::net::IpAddr;

use muster_api::credentials::{CredentialPurpose, CredentialSpec};
use muster_api::nodes::{Node, NodeConsole, NodeSpec};
use muster_api::object::{NoStatus, Object};
use muster_api::sites::SiteSpec;
use muster_core::out_of_band::{is_inside, list_networks, may_connect};

use super::{Found, Host};

/// Largest number of nodes named for a site.
const NAMED: usize = 10;

/// Finds the address of a node's BMC or console.
type Find = fn(&NodeSpec) -> Option<IpAddr>;

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let unavailable = |what: &str| {
        vec![Found::unknown(
            format!("the server's list of {what} is unavailable"),
            "see the checks `server` and `token`",
        )]
    };
    let Ok(sites) = host.client.list_all::<SiteSpec>(None).await else {
        return unavailable("sites");
    };
    let Ok(nodes) = host.client.list_all::<NodeSpec>(None).await else {
        return unavailable("nodes");
    };
    let Ok(credentials) = host.client.list_all::<CredentialSpec>(None).await else {
        return unavailable("credentials");
    };
    let mut found: Vec<Found> = sites.iter().flat_map(|site| judge(site, &nodes)).collect();
    if found.is_empty() {
        let text = "every BMC and console is inside of the networks of its site";
        found.push(Found::ok(text));
    }
    let is_wide = |spec: &CredentialSpec| match spec.purpose {
        CredentialPurpose::Bmc => spec.networks.is_empty(),
        CredentialPurpose::Stack | CredentialPurpose::Adopt => false,
    };
    let wide = credentials.iter().filter(|one| is_wide(&one.spec)).count();
    if wide > 0 {
        found.push(Found::ok(format!(
            "{wide} credentials of BMCs name no networks: each is for all BMCs inside of the sites' networks"
        )));
    }
    found
}

fn find_bmc(spec: &NodeSpec) -> Option<IpAddr> {
    spec.power.find_bmc().map(|bmc| bmc.address)
}

fn find_console(spec: &NodeSpec) -> Option<IpAddr> {
    let NodeConsole::Tcp { address, .. } = spec.console?;
    Some(address)
}

fn judge(site: &Object<SiteSpec, NoStatus>, nodes: &[Node]) -> Vec<Found> {
    let (bmc, console) = (&site.spec.bmc_networks, &site.spec.console_networks);
    let mut found = Vec::new();
    let is_here = |node: &&Node| node.spec.site == site.name.as_str();
    let at_site: Vec<&Node> = nodes.iter().filter(is_here).collect();
    let ways: [(_, _, Find); 2] = [
        ("bmc_networks", bmc, find_bmc),
        ("console_networks", console, find_console),
    ];
    for (member, networks, find) in ways {
        let special = list_nodes(&at_site, find, |address| !may_connect(&[], address));
        if !special.is_empty() {
            found.push(Found::warn(
                format!(
                    "the agent of the site {} does not connect to loopback, link-local and other special addresses: {}",
                    site.name,
                    name_nodes(&special)
                ),
                format!("give these nodes addresses inside of `spec.{member}` of the site"),
            ));
        }
        let is_outside = |address| may_connect(&[], address) && !is_inside(networks, address);
        let outside = list_nodes(&at_site, find, is_outside);
        if outside.is_empty() {
            continue;
        }
        let named = name_nodes(&outside);
        found.push(match networks.is_empty() {
            true => Found::warn(
                format!(
                    "the site {} declares no {member}; stored addresses keep working, and no new address is taken: {named}",
                    site.name
                ),
                format!("an administrator adds the networks to `spec.{member}` of the site"),
            ),
            false => Found::warn(
                format!(
                    "nodes are outside of the {member} of the site {} ({}), and the agent does not connect: {named}",
                    site.name,
                    list_networks(networks)
                ),
                "correct the addresses of the nodes, or add the networks to the site",
            ),
        });
    }
    found
}

fn list_nodes(nodes: &[&Node], find: Find, is_listed: impl Fn(IpAddr) -> bool) -> Vec<String> {
    let listed = nodes
        .iter()
        .filter(|node| find(&node.spec).is_some_and(&is_listed));
    listed.map(|node| node.name.to_string()).collect()
}

fn name_nodes(nodes: &[String]) -> String {
    let named = nodes[..nodes.len().min(NAMED)].join(", ");
    match nodes.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
