//! The types of a network profile. Links have names within the profile; only bonds and VLANs have
//! the same names on the node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

/// Bonds, VLANs, MTU, rails and addresses of an installed node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkProfile {
    /// Name of the link carrying the node's own address. Default: the interface with `boot: true`,
    /// or the bond of that interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management: Option<String>,
    /// Interfaces of the machine, by names used only within the profile: 1 to 15 letters, digits
    /// and . _ -.
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
    /// MTU in bytes, 576 to 9216. Absent: the driver's default, 1500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// The rule for finding an interface on a machine: exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Match {
    /// `true`: the interface with the MAC used for provisioning the node.
    Boot(bool),
    /// A rail by number, from 0. Rails are the interfaces with the highest link speed, sorted by
    /// PCI address.
    Rail(u8),
    /// PCI address: `0000:1a:00.0`.
    Pci(String),
    /// Name of the interface in the node's facts.
    Interface(String),
}

/// A bond of interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Bond {
    /// 1 to 8 interfaces, by profile name.
    pub members: Vec<String>,
    pub mode: BondMode,
    /// Headers used for distributing packets over the members. Only for `802.3ad` and
    /// `balance-xor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_policy: Option<HashPolicy>,
    /// Rate of LACP packets requested from the switch. Only for `802.3ad`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacp_rate: Option<LacpRate>,
    /// The member preferred while its link is up. Only for `active-backup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// Milliseconds between two checks of the members' links; 10 to 10,000.
    #[serde(default = "default_mii_interval_ms")]
    pub mii_interval_ms: u32,
    /// MTU in bytes, at most the MTU of each member. Absent: the smallest MTU of the members.
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

/// Use of the members by a bond, in the terms of Linux (Documentation/networking/bonding.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BondMode {
    /// One active member at a time. Needs no configuration of the switch.
    ActiveBackup,
    /// All members, as negotiated with the switch by LACP.
    #[serde(rename = "802.3ad")]
    Lacp,
    /// All members. Needs a static link group on the switch.
    BalanceXor,
}

/// Packet headers deciding the member for a packet.
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

/// Requested rate of LACP packets.
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
    /// VLAN id, 1 to 4094.
    pub id: u16,
    /// The interface or bond under the VLAN, by profile name.
    pub over: String,
    /// MTU in bytes, at most the MTU of the link under the VLAN. Absent: the same MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// The source of an additional address on a link. With `beside`, nodes of one subnet get different
/// addresses, because their own addresses differ. A second subnet with the same `network`, in this
/// or another profile, produces the same addresses again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Address {
    /// Name of a label of the node. The label contains the address with prefix length:
    /// `10.20.0.11/24`.
    Label(String),
    /// The address in `network` with the same host number as the node's own address. Example:
    /// 10.77.0.11 in 10.77.0.0/24 gives 10.20.0.11 in 10.20.0.0/24.
    Beside {
        /// Name of the declared subnet with the node's own address. Nodes in another subnet are
        /// rejected.
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

/// The common fields of a link of any kind.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    /// The field of the profile containing the link.
    pub of: &'static str,
    pub name: &'a str,
    pub mtu: Option<u32>,
    pub addresses: &'a [Address],
    pub routes: &'a [Route],
}

/// MTU of a link without a configured MTU on the link or below.
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
    /// Returns all links: interfaces, then bonds, then VLANs.
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

    /// Returns the bond containing an interface.
    pub(super) fn bond_of(&self, interface: &str) -> Option<&str> {
        let holds = |bond: &Bond| bond.members.iter().any(|member| member == interface);
        let found = self
            .bonds
            .iter()
            .find(|(_, bond)| holds(bond))
            .map(|(name, _)| name.as_str());
        found.filter(|_| self.interfaces.contains_key(interface))
    }

    /// Returns the name of the link with the node's own address. Returns `None` for a profile
    /// without a management link.
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

    /// Returns the effective MTU of a link.
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
            // The link under a VLAN is an interface or a bond, never a VLAN.
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

    /// Returns the names of the labels used for addresses.
    pub fn labels(&self) -> Vec<&str> {
        let addresses = self.links().flat_map(|link| link.addresses);
        addresses.filter_map(Address::label).collect()
    }

    /// Returns the subnets used by `beside` addresses, each with the place in the spec:
    /// `vlans/storage/addresses/0/beside/subnet`.
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

/// Joins words to a place, with the escapes of JSON pointers (RFC 6901), because names may contain
/// `/` and `~`.
pub(super) fn place(words: &[&str]) -> String {
    let escaped: Vec<String> = words
        .iter()
        .map(|word| word.replace('~', "~0").replace('/', "~1"))
        .collect();
    escaped.join("/")
}
