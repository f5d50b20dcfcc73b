//! What a network profile says. Links are named by the profile; only bonds and VLANs are called so on the node as well.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

/// Bonds, VLANs, MTU, rails and addresses of an installed node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkProfile {
    /// The link with the node's own address, by its name here. Absent: the interface with `boot: true`, or the bond that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management: Option<String>,
    /// Interfaces of the machine, by names of 1 to 15 letters, digits and . _ - that only the profile uses.
    pub interfaces: BTreeMap<String, Interface>,
    /// Bonds, by the names they have on the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bonds: BTreeMap<String, Bond>,
    /// VLANs, by the names they have on the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vlans: BTreeMap<String, Vlan>,
}

/// One interface of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Interface {
    pub is: Match,
    /// In bytes, 576 to 9216; absent: as its driver has it, 1500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// How a machine knows the interface that is meant: exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Match {
    /// `true`: the one with the MAC that the node is provisioned by.
    Boot(bool),
    /// A rail, from 0: of the interfaces with a link, those that are as fast as the fastest, by PCI address.
    Rail(u8),
    /// Its PCI address: `0000:1a:00.0`.
    Pci(String),
    /// Its name in the node's facts.
    Interface(String),
}

/// A bond of interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Bond {
    /// 1 to 8 interfaces, by their names here.
    pub members: Vec<String>,
    pub mode: BondMode,
    /// By what packets are spread over the members: for `802.3ad` and `balance-xor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_policy: Option<HashPolicy>,
    /// How often the switch is asked to say that it is there: for `802.3ad`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacp_rate: Option<LacpRate>,
    /// The member that is used while it has a link: for `active-backup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// Milliseconds from one look at the members' links to the next; 10 to 10,000.
    #[serde(default = "default_mii_interval_ms")]
    pub mii_interval_ms: u32,
    /// In bytes, no larger than that of any member; absent: the smallest of theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

fn default_mii_interval_ms() -> u32 {
    100
}

/// How a bond uses its members, in the words of Linux (Documentation/networking/bonding.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BondMode {
    /// One at a time; the switch need not know.
    ActiveBackup,
    /// All of them, as agreed with the switch by LACP.
    #[serde(rename = "802.3ad")]
    Lacp,
    /// All of them, with a switch that was told to treat its ports as one.
    BalanceXor,
}

/// What decides which member a packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum HashPolicy {
    #[serde(rename = "layer2")]
    Layer2,
    #[serde(rename = "layer2+3")]
    Layer23,
    #[serde(rename = "layer3+4")]
    Layer34,
}

/// How often LACP's packets are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LacpRate {
    /// Every 30 seconds.
    Slow,
    /// Every second.
    Fast,
}

/// A VLAN (IEEE 802.1Q).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// 1 to 4094.
    pub id: u16,
    /// The interface or bond that carries it, by its name here.
    pub over: String,
    /// In bytes, no larger than that of what carries it; absent: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// Where a node's further address on a link comes from. By `beside`, no two nodes of a subnet get the same one, because no two have the same one there;
/// another subnet beside the same network, in this profile or another, gives its nodes the same ones again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Address {
    /// The node's label of this name holds it, with its prefix length: `10.20.0.11/24`.
    Label(String),
    /// The address in `network` with the number that the node's own address has in the subnet: 10.77.0.11 in 10.77.0.0/24 is 10.20.0.11 in 10.20.0.0/24.
    Beside {
        /// The declared subnet that the node's own address is in. A node of another one is refused.
        subnet: String,
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        network: Ipv4Net,
    },
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Route {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub to: IpNet,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub via: IpAddr,
}

/// A link of any kind, as far as they are alike.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    /// The member of the profile it stands in.
    pub of: &'static str,
    pub name: &'a str,
    pub mtu: Option<u32>,
    pub addresses: &'a [Address],
    pub routes: &'a [Route],
}

/// What a link has that says no MTU, and has nothing under it that does.
pub(super) const DEFAULT_MTU: u32 = 1500;

impl Address {
    fn label(&self) -> Option<&str> {
        match self {
            Self::Label(label) => Some(label),
            Self::Beside { .. } => None,
        }
    }
}

impl NetworkProfile {
    /// Interfaces, then bonds, then VLANs.
    pub(super) fn links(&self) -> impl Iterator<Item = Link<'_>> {
        let interfaces = self.interfaces.iter().map(
            |(
                name,
                Interface {
                    mtu,
                    addresses,
                    routes,
                    ..
                },
            )| Link {
                of: "interfaces",
                name,
                mtu: *mtu,
                addresses,
                routes,
            },
        );
        let bonds = self.bonds.iter().map(
            |(
                name,
                Bond {
                    mtu,
                    addresses,
                    routes,
                    ..
                },
            )| Link {
                of: "bonds",
                name,
                mtu: *mtu,
                addresses,
                routes,
            },
        );
        let vlans = self.vlans.iter().map(
            |(
                name,
                Vlan {
                    mtu,
                    addresses,
                    routes,
                    ..
                },
            )| Link {
                of: "vlans",
                name,
                mtu: *mtu,
                addresses,
                routes,
            },
        );
        interfaces.chain(bonds).chain(vlans)
    }

    /// The bond that an interface is in.
    pub(super) fn bond_of(&self, interface: &str) -> Option<&str> {
        let holds = |bond: &Bond| bond.members.iter().any(|member| member == interface);
        let found = self
            .bonds
            .iter()
            .find(|(_, bond)| holds(bond))
            .map(|(name, _)| name.as_str());
        found.filter(|_| self.interfaces.contains_key(interface))
    }

    /// The name of the link with the node's own address; `None` where the profile does not say which it is.
    pub(super) fn management(&self) -> Option<&str> {
        let boot = || {
            self.interfaces
                .iter()
                .find(|(_, one)| one.is == Match::Boot(true))
                .map(|(name, _)| name.as_str())
        };
        self.management
            .as_deref()
            .or_else(|| boot().map(|boot| self.bond_of(boot).unwrap_or(boot)))
    }

    /// The MTU that a link ends up with.
    pub(super) fn mtu(&self, link: &str) -> u32 {
        if let Some(bond) = self.bonds.get(link) {
            let members = bond
                .members
                .iter()
                .map(|member| self.interface_mtu(member))
                .min();
            return bond.mtu.or(members).unwrap_or(DEFAULT_MTU);
        }
        match self.vlans.get(link) {
            // What carries a VLAN is no VLAN.
            Some(vlan) => vlan
                .mtu
                .unwrap_or_else(|| match self.vlans.contains_key(&vlan.over) {
                    true => DEFAULT_MTU,
                    false => self.mtu(&vlan.over),
                }),
            None => self.interface_mtu(link),
        }
    }

    fn interface_mtu(&self, name: &str) -> u32 {
        self.interfaces
            .get(name)
            .and_then(|interface| interface.mtu)
            .unwrap_or(DEFAULT_MTU)
    }

    /// The labels that addresses are taken from.
    pub fn labels(&self) -> Vec<&str> {
        let addresses = self.links().flat_map(|link| link.addresses);
        addresses.filter_map(Address::label).collect()
    }

    /// The subnets that addresses are taken beside, each with where it stands in the spec: `vlans/storage/addresses/0/beside/subnet`.
    pub fn subnets(&self) -> Vec<(String, &str)> {
        let mut subnets = Vec::new();
        for Link {
            of,
            name,
            addresses,
            ..
        } in self.links()
        {
            for (index, address) in addresses.iter().enumerate() {
                if let Address::Beside { subnet, .. } = address {
                    let at = [
                        of,
                        name,
                        "addresses",
                        &index.to_string(),
                        "beside",
                        "subnet",
                    ];
                    subnets.push((place(&at), subnet.as_str()));
                }
            }
        }
        subnets
    }
}

/// Names may hold what a pointer must escape (RFC 6901).
pub(super) fn place(words: &[&str]) -> String {
    let escaped: Vec<String> = words
        .iter()
        .map(|word| word.replace('~', "~0").replace('/', "~1"))
        .collect();
    escaped.join("/")
}
