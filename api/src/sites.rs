//! Sites: places with their own provisioning network, served by one or more agents.

use ipnet::{IpNet, Ipv4Net};
use muster_core::gates::xid::XidOverrides;
use muster_core::rollout::DomainAxis;
use muster_core::values::Digest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;
use crate::object::NoStatus;

/// A site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteSpec {
    /// The live image booted on nodes for inspection, imaging and wiping. Nodes wait until a live
    /// image is declared.
    #[serde(default)]
    pub live: Option<LiveImage>,
    /// The site's own rows in the tables of Xids and SXids. Each row replaces Muster's row and
    /// names the response to an error of a GPU or a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<XidOverrides>,
    /// Axes of failure domains, at most 8: racks, leaf switches, NVLink domains, power feeds. Each
    /// domain limits the nodes that Muster takes out of service at a time, over all pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<DomainAxis>,
    /// Name of a maintenance window for the rollouts at the site. Absent: rollouts may take nodes at
    /// any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_window: Option<String>,
    /// Throughput of the agent's network link to the nodes in Mbit/s, from 1 to 1,000,000. Rollouts
    /// change only as many nodes at a time as the link supplies with packages and images in 10
    /// minutes. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_mbps: Option<u32>,
    /// Name of the switch that connects the racks' leaf switches: 1 to 64 letters, digits, `-`,
    /// `_` and `.`. Slurm gets a topology only with this name, because leaf switches without a
    /// connection keep each job within one rack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spine_switch: Option<String>,
    /// IPv4 networks from which the site's agents log in to nodes by SSH, at most 16. Nodes refuse
    /// the agents' certificates from other addresses. Name the addresses that the nodes see: those
    /// of a NAT, and of each agent. Empty: certificates hold from every address.
    #[schema(value_type = Vec<String>, max_items = 16)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_sources: Vec<Ipv4Net>,
    /// Networks of the BMCs, at most 64, in CIDR notation: `10.78.0.0/24`, `fd00:78::/64`. A new BMC
    /// address of a node must be inside one of these networks. Loopback, link-local, multicast and
    /// provisioning networks are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub bmc_networks: Vec<IpNet>,
    /// Networks of the serial consoles, with the rules of `bmc_networks`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub console_networks: Vec<IpNet>,
}

/// The live image, as two blobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LiveImage {
    pub kernel: Digest,
    pub initrd: Digest,
    /// Signature of a release owner: the line printed by `muster image sign-live`. Agents with
    /// `--live-key` boot no other live image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub signature: Option<String>,
}

impl Kind for SiteSpec {
    const KIND: &'static str = "site";
    const COLLECTION: &'static str = "sites";
    const SCHEMA: &'static str = "Site";
    type Status = NoStatus;
}
