//! Revisions of a pool: the documents that a node of the pool installs, as of one change.

use jiff::Timestamp;
use muster_core::images::ImageManifest;
use muster_core::network::NetworkProfile;
use muster_core::stacks::StackSpec;
use muster_core::stacks::diff::Class;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A revision of a pool. A revision never changes. A change of the pool's image, stack or network
/// profile, under the same name or another, adds a revision and changes no node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolRevision {
    /// 1 for the first revision of the pool.
    pub number: i32,
    /// Number of the revision before.
    #[serde(default)]
    pub parent: Option<i32>,
    /// New claims of the pool are assigned this revision.
    pub present: bool,
    /// Name of the image.
    pub image: String,
    /// Name of the stack.
    pub stack: String,
    pub stack_version: String,
    /// Name of the network profile.
    #[serde(default)]
    pub network_profile: Option<String>,
    /// Author of the change.
    pub actor: String,
    pub created_at: Timestamp,
    /// Number of claims assigned this revision.
    pub assigned: i64,
    /// Number of claims whose node was compared with this revision and did not differ.
    pub running: i64,
    /// Copies of the documents. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<RevisionDocuments>,
}

/// The documents of a revision, as of its creation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RevisionDocuments {
    pub image: ImageManifest,
    pub stack: StackSpec,
    #[serde(default)]
    pub network_profile: Option<NetworkProfile>,
}

/// The differences between two revisions of a pool, and the effect on each of its nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RevisionDiff {
    pub pool: String,
    /// Number of the revision compared with.
    pub from: i32,
    /// Number of the revision asked for.
    pub to: i32,
    /// Effect of moving a node between the two: `none`, `in_place`, `reboot` or `reinstall`.
    pub effect: String,
    /// The differing items, the most disruptive class first.
    pub items: Vec<RevisionItem>,
    /// The nodes of the pool, by name.
    pub nodes: Vec<RevisionNode>,
}

/// A differing item of two revisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevisionItem {
    /// As in a drift check: `package slurmd`, `kernel argument iommu=pt`; also `image` and `network
    /// profile`.
    pub item: String,
    #[serde(default)]
    pub from: Option<String>,
    #[serde(default)]
    pub to: Option<String>,
    pub class: Class,
}

/// A node of the pool, and the effect of moving the node to the revision asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevisionNode {
    pub node: String,
    pub claim: String,
    /// Number of the assigned revision.
    pub assigned: i32,
    /// Number of the revision that the node was observed to run. Absent while unknown.
    #[serde(default)]
    pub running: Option<i32>,
    /// Effect of moving from the running revision. Absent while unknown.
    #[serde(default)]
    pub effect: Option<String>,
}

/// The body of `actions/promote-revision` of a pool, and of `actions/assign-revision` of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChooseRevision {
    /// Number of the revision.
    pub revision: i32,
    /// Reason, for the history.
    #[serde(default)]
    pub reason: Option<String>,
}
