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
