//! Stacks: named, versioned sets of pins laid over an image. A stack must be locked and bundled
//! before a pool can use the stack.

use jiff::Timestamp;
use muster_core::stacks::StackSpec;
use muster_core::stacks::diff::Class;
use muster_core::stacks::rules::Finding;
use muster_core::stacks::summary::StackSummary;
use muster_core::values::Digest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;

/// The server's facts about a stack, besides the pins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StackStatus {
    /// Digest of the lock: the version shown to operators. Absent until the stack is locked.
    pub lock_digest: Option<Digest>,
    /// Whether the bundle has been uploaded.
    pub bundle_present: bool,
    /// The facts of `muster stack show`: size of the packages, effect of a change, driver with the
    /// known facts of its branch. Absent for an unreadable stack.
    pub summary: Option<StackSummary>,
}

impl Kind for StackSpec {
    const KIND: &'static str = "stack";
    const COLLECTION: &'static str = "stacks";
    const SCHEMA: &'static str = "Stack";
    type Status = StackStatus;
}

/// The latest comparison of a node with a stack. Comparisons run after an installation, on request,
/// and on a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDrift {
    pub node: String,
    /// The stack of the revision assigned to the node's claim. Absent for a node without a claim.
    pub stack: Option<String>,
    /// The lock used for the comparison.
    pub lock: Digest,
    /// Whether the pool still uses the same lock. If `false`, the differences from the new lock are
    /// unknown.
    pub current: bool,
    #[schema(value_type = String, format = DateTime)]
    pub observed_at: Timestamp,
    /// Number of compared items.
    pub checked: usize,
    /// The differing items, most disruptive repair first.
    pub items: Vec<DriftItem>,
    /// Items that take effect only after a reboot.
    pub reboot_for: Vec<String>,
    /// Effect of repairing all items: the most disruptive of their classes.
    pub class: Class,
    /// Findings of the compatibility rules for the stack on this node, using the current facts
    /// about the hardware.
    pub findings: Vec<Finding>,
}

/// One differing item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriftItem {
    /// The item: `package slurmd`, `file /etc/chrony/chrony.conf`, `sysctl vm.swappiness`. For a
    /// secret, values are shown as a keyed hash.
    pub item: String,
    /// The observed value. Absent if the item is missing on the node.
    pub found: Option<String>,
    /// The value required by the stack. Absent if the item must be missing.
    pub wanted: Option<String>,
    /// Effect on the node of repairing this item.
    pub class: Class,
}
