//! Subnets: the provisioning networks of a site.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use muster_core::wire::calls::DhcpMode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;
use crate::object::NoStatus;

/// One provisioning subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubnetSpec {
    pub site: String,
    /// CIDR notation with the network address: `10.77.0.0/24`.
    #[schema(value_type = String, example = "10.77.0.0/24")]
    pub network: Ipv4Net,
    /// The agent's address in the subnet, used as DHCP server id, TFTP server and HTTP boot server.
    #[schema(value_type = String, format = Ipv4)]
    pub agent_address: Ipv4Addr,
    /// Default gateway given to nodes by DHCP.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = Ipv4)]
    pub gateway: Option<Ipv4Addr>,
    /// DNS servers given to nodes.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub dns: Vec<Ipv4Addr>,
    pub mode: DhcpMode,
    /// Address range for undeclared machines.
    #[serde(default)]
    pub dynamic_range: Option<AddressRange>,
    /// Accepted DHCP relays (giaddr, RFC 2131). Packets from other relays are ignored. The agent still
    /// needs an address in the subnet: a subnet behind a router is refused.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub relays: Vec<Ipv4Addr>,
}

/// An address that the agent never answers, or that no machine can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// JSON pointer (RFC 6901), from the root of the document.
    pub pointer: String,
    pub detail: String,
}

/// Networks without machines: "this network", loopback, groups and reserved addresses (RFC 6890).
const WITHOUT_MACHINES: [Ipv4Net; 4] = [
    Ipv4Net::new_assert(Ipv4Addr::new(0, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4),
    Ipv4Net::new_assert(Ipv4Addr::new(240, 0, 0, 0), 4),
];

impl SubnetSpec {
    /// Lists the addresses without a machine: in the network, the relays and the DNS servers. The
    /// agent answers no packet for these.
    pub fn list_unanswered(&self) -> Vec<Unanswered> {
        let mut found = Vec::new();
        let mut add = |pointer: String, detail: String| found.push(Unanswered { pointer, detail });
        let network = self.network;
        let overlaps = |other: &Ipv4Net| other.contains(&network) || network.contains(other);
        if let Some(without) = WITHOUT_MACHINES.iter().find(|other| overlaps(other)) {
            let detail = format!(
                "{network} overlaps {without}, where no machine can be: write the site's provisioning network."
            );
            add("/spec/network".to_owned(), detail);
        }
        let is_machine = |address: Ipv4Addr| {
            let of_no_machine = |other: &Ipv4Net| other.contains(&address);
            !WITHOUT_MACHINES.iter().any(of_no_machine)
        };
        for (at, relay) in self.relays.iter().enumerate() {
            let is_edge = *relay == network.network() || *relay == network.broadcast();
            if !is_machine(*relay) || is_edge || *relay == self.agent_address {
                let detail = format!(
                    "{relay} is no relay: write the address that the relay puts into `giaddr`."
                );
                add(format!("/spec/relays/{at}"), detail);
            }
        }
        for (at, server) in self.dns.iter().enumerate() {
            if !is_machine(*server) {
                let detail = format!("{server} is no DNS server that a node can reach.");
                add(format!("/spec/dns/{at}"), detail);
            }
        }
        found
    }
}

/// First and last address, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddressRange {
    #[schema(value_type = String, format = Ipv4)]
    pub first: Ipv4Addr,
    #[schema(value_type = String, format = Ipv4)]
    pub last: Ipv4Addr,
}

impl Kind for SubnetSpec {
    const KIND: &'static str = "subnet";
    const COLLECTION: &'static str = "subnets";
    const SCHEMA: &'static str = "Subnet";
    type Status = NoStatus;
}
