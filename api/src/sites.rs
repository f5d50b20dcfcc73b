//! Sites: places with their own provisioning network, served by one or more agents.

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
}

/// The live image, as two blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LiveImage {
    pub kernel: Digest,
    pub initrd: Digest,
}

impl Kind for SiteSpec {
    const KIND: &'static str = "site";
    const COLLECTION: &'static str = "sites";
    const SCHEMA: &'static str = "Site";
    type Status = NoStatus;
}
