//! Sites: places with a provisioning network of their own, served by one or more agents.

use muster_core::gates::xid::XidOverrides;
use muster_core::values::Digest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;
use crate::object::NoStatus;

/// A site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteSpec {
    /// What its nodes boot to be inspected, imaged and wiped; nodes wait until it is declared.
    #[serde(default)]
    pub live: Option<LiveImage>,
    /// The site's own rows of the tables of Xids and SXids, in place of those that come with Muster: what an error of a GPU or a switch asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<XidOverrides>,
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
