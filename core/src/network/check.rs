//! Errors in a profile itself, without a node. Each fault has the place in the spec and a
//! correction.

use std::collections::{BTreeMap, BTreeSet};

use super::language::{Address, Bond, BondMode, Link, Match, NetworkProfile, Vlan, place};

/// RFC 791: every host must accept datagrams of this size.
const LEAST_MTU: u32 = 576;
/// Maximum MTU supported by common switches.
const LARGEST_MTU: u32 = 9216;
/// Maximum number of links, addresses per link, routes per link, and members per bond.
const MOST_LINKS: usize = 64;
const MOST_ADDRESSES: usize = 8;
const MOST_ROUTES: usize = 32;
const MOST_MEMBERS: usize = 8;
/// The last VLAN id. The ids 0 and 4095 are reserved (IEEE 802.1Q).
const LAST_VLAN: u16 = 4094;

/// The place in the spec, with slashes, and a sentence.
pub(super) type Fault = (String, String);

impl NetworkProfile {
    /// Returns every error in the profile. Empty for a valid profile.
    pub fn faults(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let links: Vec<_> = self.links().collect();
        if links.len() > MOST_LINKS {
            return vec![(
                String::new(),
                format!("At most {MOST_LINKS} interfaces, bonds and VLANs."),
            )];
        }
        self.check_names(&links, &mut faults);
        for link in &links {
            check_link(link, &mut faults);
        }
        self.check_interfaces(&mut faults);
        self.check_bonds(&mut faults);
        self.check_vlans(&mut faults);
        self.check_management(&mut faults);
        faults
    }

    fn check_names(&self, links: &[Link<'_>], faults: &mut Vec<Fault>) {
        let mut seen = BTreeMap::new();
        for Link { of, name, .. } in links {
            let at = place(&[of, name]);
            if !is_link_name(name) {
                let words = "1 to 15 letters, digits and . _ -, beginning with a letter, and none of lo, all, default";
                faults.push((
                    at,
                    format!("{name:?} is no name of a link: it has {words}."),
                ));
            } else if let Some(other) = seen.insert(*name, *of) {
                faults.push((
                    at,
                    format!("{name} is in {other} already: give one of them another name."),
                ));
            }
        }
    }

    fn check_interfaces(&self, faults: &mut Vec<Fault>) {
        let mut seen: BTreeMap<&Match, &str> = BTreeMap::new();
        for (name, interface) in &self.interfaces {
            let at = |rest: &[&str]| place(&[&["interfaces", name, "is"], rest].concat());
            match &interface.is {
                Match::Boot(false) => {
                    faults.push((at(&["boot"]), "Say `boot: true`, or match by rail, pci or interface.".into()));
                }
                Match::Pci(address) if !is_pci(address) => faults.push((
                    at(&["pci"]),
                    format!("{address:?} is no PCI address: write it as the node's facts do, 0000:1a:00.0."),
                )),
                Match::Interface(known) if !is_kernel_name(known) => faults.push((
                    at(&["interface"]),
                    format!(
                        "{known:?} is no name of an interface: 1 to 15 letters, digits and . _ -, as in the facts."
                    ),
                )),
                _ => {}
            }
            if let Some(other) = seen.insert(&interface.is, name) {
                faults.push((
                    at(&[]),
                    format!("{other} is the same interface: remove one of the two."),
                ));
            }
            let busy = !interface.addresses.is_empty() || !interface.routes.is_empty();
            if let (Some(bond), true) = (self.bond_of(name), busy) {
                let what = if interface.addresses.is_empty() {
                    "routes"
                } else {
                    "addresses"
                };
                faults.push((
                    place(&["interfaces", name, what]),
                    format!("{name} is a member of {bond}: give these to {bond} instead."),
                ));
            }
        }
    }

    fn check_bonds(&self, faults: &mut Vec<Fault>) {
        let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, bond) in &self.bonds {
            let at = |rest: &[&str]| place(&[&["bonds", name], rest].concat());
            if bond.members.is_empty() || bond.members.len() > MOST_MEMBERS {
                faults.push((
                    at(&["members"]),
                    format!("A bond has 1 to {MOST_MEMBERS} members."),
                ));
            }
            for (index, member) in bond.members.iter().enumerate() {
                let at = at(&["members", &index.to_string()]);
                if !self.interfaces.contains_key(member) {
                    let why = "members of a bond are interfaces of the profile, not bonds or VLANs";
                    faults.push((at, format!("{member:?} is none of the interfaces: {why}.")));
                } else if let Some(other) = taken.insert(member, name) {
                    faults.push((
                        at,
                        format!(
                            "{member} is in {other} already: an interface is in one bond, once."
                        ),
                    ));
                } else if bond.mtu.is_some_and(|mtu| mtu > self.mtu(member)) {
                    let own = self.mtu(member);
                    faults.push((
                        place(&["bonds", name, "mtu"]),
                        format!("It is more than the {own} of the member {member}: raise that one's mtu too."),
                    ));
                }
            }
            check_mode(name, bond, faults);
        }
    }

    fn check_vlans(&self, faults: &mut Vec<Fault>) {
        let mut seen: BTreeMap<(&str, u16), &str> = BTreeMap::new();
        for (name, Vlan { id, over, mtu, .. }) in &self.vlans {
            let at = |member: &str| place(&["vlans", name, member]);
            if !(1..=LAST_VLAN).contains(id) {
                faults.push((at("id"), format!("A VLAN's id is 1 to {LAST_VLAN}.")));
            }
            if let Some(bond) = self.bond_of(over) {
                faults.push((
                    at("over"),
                    format!("{over} is a member of {bond}: put the VLAN over {bond}."),
                ));
            } else if !self.interfaces.contains_key(over) && !self.bonds.contains_key(over) {
                let why =
                    "a VLAN lies over an interface or a bond of the profile, and over no VLAN";
                faults.push((at("over"), format!("{over:?} is neither: {why}.")));
            } else if mtu.is_some_and(|mtu| mtu > self.mtu(over)) {
                let under = self.mtu(over);
                faults.push((
                    at("mtu"),
                    format!("It is more than the {under} of {over} under it: raise that one too."),
                ));
            }
            if let Some(other) = seen.insert((over, *id), name) {
                faults.push((
                    at("id"),
                    format!("{other} is VLAN {id} over {over} already: remove one of the two."),
                ));
            }
        }
    }

    fn check_management(&self, faults: &mut Vec<Fault>) {
        let at = || "management".to_owned();
        match self.management() {
            None => faults.push((
                "interfaces".into(),
                "Nothing says where the node's own address goes: match one interface by `boot: true`, or name a link in `management`.".into(),
            )),
            Some(link) if !self.links().any(|known| known.name == link) => {
                faults.push((at(), format!("{link:?} is no interface, bond or VLAN of the profile.")));
            }
            Some(link) => {
                if let Some(bond) = self.bond_of(link) {
                    faults.push((at(), format!("{link} is a member of {bond}: name {bond}.")));
                }
            }
        }
    }
}

fn check_mode(name: &str, bond: &Bond, faults: &mut Vec<Fault>) {
    let at = |member: &str| place(&["bonds", name, member]);
    if !(10..=10_000).contains(&bond.mii_interval_ms) {
        faults.push((at("mii_interval_ms"), "10 to 10,000 milliseconds.".into()));
    }
    if bond.hash_policy.is_some() && bond.mode == BondMode::ActiveBackup {
        faults.push((
            at("hash_policy"),
            "Only 802.3ad and balance-xor spread packets: leave it out.".into(),
        ));
    }
    if bond.lacp_rate.is_some() && bond.mode != BondMode::Lacp {
        faults.push((
            at("lacp_rate"),
            "Only 802.3ad speaks LACP: leave it out.".into(),
        ));
    }
    match &bond.primary {
        Some(_) if bond.mode != BondMode::ActiveBackup => {
            faults.push((
                at("primary"),
                "Only active-backup prefers a member: leave it out.".into(),
            ));
        }
        Some(primary) if !bond.members.contains(primary) => {
            faults.push((
                at("primary"),
                format!("{primary:?} is none of the bond's members."),
            ));
        }
        _ => {}
    }
}

/// Checks the fields common to all kinds of links.
fn check_link(link: &Link<'_>, faults: &mut Vec<Fault>) {
    let at = |member: &str| place(&[link.of, link.name, member]);
    if link
        .mtu
        .is_some_and(|mtu| !(LEAST_MTU..=LARGEST_MTU).contains(&mtu))
    {
        let bounds = format!("An MTU is {LEAST_MTU} to {LARGEST_MTU} bytes.");
        faults.push((at("mtu"), bounds));
    }
    if link.addresses.len() > MOST_ADDRESSES {
        let most = format!("At most {MOST_ADDRESSES} addresses.");
        faults.push((at("addresses"), most));
    }
    if link.routes.len() > MOST_ROUTES {
        faults.push((at("routes"), format!("At most {MOST_ROUTES} routes.")));
    }
    check_addresses(link, faults);
    check_routes(link, faults);
}

fn check_addresses(link: &Link<'_>, faults: &mut Vec<Fault>) {
    for (index, address) in link.addresses.iter().enumerate() {
        let index = index.to_string();
        let at =
            |rest: &[&str]| place(&[&[link.of, link.name, "addresses", &index], rest].concat());
        match address {
            Address::Label(label) if label.is_empty() || label.len() > 63 => {
                faults.push((
                    at(&["label"]),
                    "The name of a label has 1 to 63 bytes.".into(),
                ));
            }
            Address::Beside { network, .. }
                if *network != network.trunc() || network.prefix_len() > 30 =>
            {
                let detail = format!(
                    "{network} is no network with room for hosts: write it as 10.20.0.0/24."
                );
                faults.push((at(&["beside", "network"]), detail));
            }
            _ => {}
        }
    }
}

fn check_routes(link: &Link<'_>, faults: &mut Vec<Fault>) {
    let mut seen = BTreeSet::new();
    for (index, route) in link.routes.iter().enumerate() {
        let index = index.to_string();
        let at = |member: &str| place(&[link.of, link.name, "routes", &index, member]);
        if route.to != route.to.trunc() {
            faults.push((
                at("to"),
                format!(
                    "{} has bits behind its prefix: write {}.",
                    route.to,
                    route.to.trunc()
                ),
            ));
        }
        if route.via.is_ipv4() != route.to.addr().is_ipv4() {
            faults.push((
                at("via"),
                format!(
                    "{} is of the other IP version than {}.",
                    route.via, route.to
                ),
            ));
        }
        if !seen.insert(route.to) {
            faults.push((
                at("to"),
                format!("{} is routed already: remove one of the two.", route.to),
            ));
        }
    }
}

/// Returns whether a bond or VLAN may have this name. The kernel must accept the name
/// (`dev_valid_name`), and systemd reserves numbers and some words.
pub(super) fn is_link_name(name: &str) -> bool {
    is_kernel_name(name)
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && !["lo", "all", "default"].contains(&name)
}

fn is_kernel_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=15).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}

/// Returns whether the address is in the kernel's form: domain, bus, device and function in
/// lower-case hex digits. A domain may have more than four digits, as with VMD.
fn is_pci(address: &str) -> bool {
    let hex = |part: &str, digits: std::ops::RangeInclusive<usize>| {
        digits.contains(&part.len()) && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let parts: Vec<&str> = address.split([':', '.']).collect();
    let [domain, bus, device, function] = parts.as_slice() else {
        return false;
    };
    let all = hex(domain, 4..=8) && hex(bus, 2..=2) && hex(device, 2..=2) && hex(function, 1..=1);
    all && *address == format!("{domain}:{bus}:{device}.{function}")
}
