//! A node's interfaces and addresses for a profile. All errors depending on the node are found
//! here, before any change on the node.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use super::language::{Address, Interface, Link, Match, NetworkProfile};
use crate::facts::{Facts, Nic};
use crate::stacks::language::{self, called};
use crate::values::Mac;

/// RFC 8200: the minimum MTU of an IPv6 link.
const LEAST_IPV6_MTU: u32 = 1280;
/// Most network cards named in a message.
const NAMED: usize = 16;

/// The target node of a rendering.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Name of the profile, for error messages.
    pub profile: &'a str,
    pub node: &'a str,
    pub facts: &'a Facts,
    /// Text labels of the node.
    pub labels: &'a BTreeMap<String, String>,
    pub own: &'a Own,
}

/// The provisioning interface and address of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    pub mac: Mac,
    pub address: Ipv4Addr,
    /// Name of the declared subnet, and its network.
    pub subnet: String,
    pub network: Ipv4Net,
    pub gateway: Option<Ipv4Addr>,
    pub dns: Vec<Ipv4Addr>,
}

/// Interfaces and addresses by link name.
pub(super) struct Resolved<'a> {
    pub macs: BTreeMap<&'a str, Mac>,
    pub addresses: BTreeMap<&'a str, Vec<IpNet>>,
}

pub(super) fn resolve<'a>(
    profile: &'a NetworkProfile,
    subject: Subject<'_>,
) -> Result<Resolved<'a>, String> {
    let mut macs: BTreeMap<&str, Mac> = BTreeMap::new();
    for (name, interface) in &profile.interfaces {
        let nic = find(&interface.is, subject)?
            .ok_or_else(|| describe_missing(name, interface, subject))?;
        if let Some((other, _)) = macs.iter().find(|(_, mac)| **mac == nic.mac) {
            let Subject { profile, node, .. } = subject;
            return Err(format!(
                "The network profile {profile} means the interface {} of {node} by {other} and by {name}: match one of them otherwise.",
                nic.name
            ));
        }
        macs.insert(name, nic.mac);
    }
    for made in profile.bonds.keys().chain(profile.vlans.keys()) {
        if subject.facts.nics.iter().any(|nic| nic.name == *made) {
            let Subject { profile, node, .. } = subject;
            return Err(format!(
                "The network profile {profile} makes {made}, and {node} has an interface of that name."
            ));
        }
    }
    let mut addresses = BTreeMap::new();
    for link in profile.links() {
        let own = (profile.management() == Some(link.name)).then(|| {
            IpNet::new(
                IpAddr::V4(subject.own.address),
                subject.own.network.prefix_len(),
            )
            .expect("a network's prefix length fits its addresses")
        });
        let mut all: Vec<IpNet> = own.into_iter().collect();
        for address in link.addresses {
            all.push(resolve_address(link, address, subject)?);
        }
        let narrow = profile.mtu(link.name) < LEAST_IPV6_MTU;
        if let (true, Some(address)) = (narrow, all.iter().find(|address| address.addr().is_ipv6()))
        {
            let at = &link.name;
            return Err(describe_misfit(
                subject,
                &format!("{address} on {at} needs an MTU of at least {LEAST_IPV6_MTU}"),
            ));
        }
        check_routes(&link, &all, subject)?;
        addresses.insert(link.name, all);
    }
    Ok(Resolved { macs, addresses })
}

fn find<'a>(is: &Match, subject: Subject<'a>) -> Result<Option<&'a Nic>, String> {
    let mut nics = subject.facts.nics.iter();
    Ok(match is {
        Match::Boot(_) => nics.find(|nic| nic.mac == subject.own.mac),
        Match::Rail(number) => return rail(*number, subject),
        Match::Pci(address) => nics.find(|nic| nic.pci_address.as_ref() == Some(address)),
        Match::Interface(name) => nics.find(|nic| nic.name == *name),
    })
}

/// Returns a rail as in stacks, with advice for profiles in the error.
fn rail<'a>(number: u8, subject: Subject<'a>) -> Result<Option<&'a Nic>, String> {
    language::rail(subject.facts, number).map_err(|why| {
        describe_misfit(
            subject,
            &format!("{why}, or match the card by `pci` instead of `rail`"),
        )
    })
}

/// Returns the error message for a missing interface.
fn describe_missing(name: &str, interface: &Interface, subject: Subject<'_>) -> String {
    let what = match &interface.is {
        Match::Boot(_) => format!("with the MAC {} that it is provisioned by", subject.own.mac),
        Match::Rail(number) => format!("that is rail {number}"),
        Match::Pci(address) => format!("at the PCI address {address}"),
        Match::Interface(known) => format!("called {known}"),
    };
    let nics = &subject.facts.nics;
    let mut has: Vec<String> = nics.iter().take(NAMED).map(called).collect();
    let more = nics.len().saturating_sub(NAMED);
    if more > 0 {
        has.push(format!("and {more} more"));
    }
    let Subject { profile, node, .. } = subject;
    format!(
        "The network profile {profile} wants an interface {what} ({name}), which {node} does not have; it has {}. Inspect the node again, or change \
         the profile.",
        if has.is_empty() {
            "none".to_owned()
        } else {
            has.join(", ")
        }
    )
}

fn resolve_address(
    link: Link<'_>,
    address: &Address,
    subject: Subject<'_>,
) -> Result<IpNet, String> {
    let at = link.name;
    match address {
        Address::Label(label) => {
            let text = subject.labels.get(label);
            let text = text.ok_or_else(|| {
                describe_misfit(
                    subject,
                    &format!("the address of {at} is in its label {label}, which it does not have"),
                )
            })?;
            let told = |what: &str| {
                describe_misfit(
                    subject,
                    &format!("its label {label} is {text:?}, which is {what}"),
                )
            };
            let address = text
                .parse()
                .map_err(|_| told("no address with a prefix length, such as 10.20.0.11/24"))?;
            match find_address_fault(&address) {
                None => Ok(address),
                Some(what) => Err(told(what)),
            }
        }
        Address::Beside { subnet, network } => {
            let own = subject.own;
            if own.subnet != *subnet {
                let have = &own.subnet;
                let why = format!(
                    "its own address is in the subnet {have}, and that of {at} is taken beside {subnet}"
                );
                return Err(describe_misfit(subject, &why));
            }
            let number = u32::from(own.address) - u32::from(own.network.network());
            let most = u32::from(network.broadcast()) - u32::from(network.network());
            if number == 0 || number >= most {
                let why = format!(
                    "{network} has no host number {number}, which its own address has in {}",
                    own.network
                );
                return Err(describe_misfit(subject, &why));
            }
            let address = Ipv4Addr::from(u32::from(network.network()) + number);
            Ok(IpNet::new(IpAddr::V4(address), network.prefix_len())
                .expect("a network's prefix length fits"))
        }
    }
}

/// Returns the reason if an address with prefix length is unusable for a node. IPv6 has no
/// broadcast addresses.
fn find_address_fault(net: &IpNet) -> Option<&'static str> {
    let address = net.addr();
    // Networks with one or two addresses have no reserved addresses: RFC 3021 and RFC 6164.
    let whole = net.prefix_len() + 1 < net.max_prefix_len();
    if address.is_unspecified() {
        Some("no address of a node")
    } else if address.is_loopback() {
        Some("a loopback address, which no other node can reach")
    } else if address.is_multicast() {
        Some("a multicast address, which no node has for itself")
    } else if net.prefix_len() < if address.is_ipv4() { 8 } else { 16 } {
        Some(
            "in a network that is too large to be meant: give the prefix length of its link, at least 8 for IPv4 and 16 for IPv6",
        )
    } else if whole && address == net.network() {
        Some("the address of its network itself: give the node one within its network")
    } else if matches!(net, IpNet::V4(net) if net.addr().is_broadcast() || whole && net.addr() == net.broadcast())
    {
        Some("a broadcast address: give the node one within its network")
    } else {
        None
    }
}

/// Returns an error message if another node has the same address under the same label, even with
/// another prefix length. `others` contains names of nodes with their labels.
pub fn shared(
    profile: &NetworkProfile,
    subject: Subject<'_>,
    others: &[(String, BTreeMap<String, String>)],
) -> Option<String> {
    let address = |labels: &BTreeMap<String, String>, label: &str| {
        labels
            .get(label)
            .and_then(|text| text.parse::<IpNet>().ok())
            .map(|net| net.addr())
    };
    profile.labels().into_iter().find_map(|label| {
        let own = address(subject.labels, label)?;
        let (other, _) = others
            .iter()
            .find(|(_, labels)| address(labels, label) == Some(own))?;
        let why = format!(
            "{other} of its pool has {own} in the label {label} too; give each node its own"
        );
        Some(describe_misfit(subject, &why))
    })
}

fn check_routes(link: &Link<'_>, addresses: &[IpNet], subject: Subject<'_>) -> Result<(), String> {
    let reached = |via: &IpAddr| addresses.iter().any(|address| address.contains(via));
    match link.routes.iter().find(|route| !reached(&route.via)) {
        None => Ok(()),
        Some(route) => {
            let why = format!(
                "{} is in none of the networks of {}, so {} cannot go over it",
                route.via, link.name, route.to
            );
            Err(describe_misfit(subject, &why))
        }
    }
}

fn describe_misfit(Subject { profile, node, .. }: Subject<'_>, why: &str) -> String {
    format!("The network profile {profile} does not fit {node}: {why}.")
}
