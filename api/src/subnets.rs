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
    /// In CIDR notation, with the network's own address: `10.77.0.0/24`.
    #[schema(value_type = String, example = "10.77.0.0/24")]
    pub network: Ipv4Net,
    /// The agent's own address on it: DHCP server id, TFTP and HTTP boot.
    #[schema(value_type = String, format = Ipv4)]
    pub agent_address: Ipv4Addr,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = Ipv4)]
    pub gateway: Option<Ipv4Addr>,
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub dns: Vec<Ipv4Addr>,
    pub mode: DhcpMode,
    /// Addresses lent to machines nobody declared.
    #[serde(default)]
    pub dynamic_range: Option<AddressRange>,
    /// Relays (giaddr, RFC 2131) whose packets are honoured.
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
