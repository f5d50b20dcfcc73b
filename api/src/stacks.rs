//! Stacks: named, versioned sets of pins laid over an image; locked and bundled before a pool can use them.

use jiff::Timestamp;
use muster_core::stacks::StackSpec;
use muster_core::stacks::diff::Class;
use muster_core::stacks::rules::Finding;
use muster_core::values::Digest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;

/// What the server knows of a stack beside its pins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StackStatus {
    /// The version operators see; absent until the stack is locked.
    pub lock_digest: Option<Digest>,
    /// Whether the bundle has been uploaded.
    pub bundle_present: bool,
}

impl Kind for StackSpec {
    const KIND: &'static str = "stack";
    const COLLECTION: &'static str = "stacks";
    const SCHEMA: &'static str = "Stack";
    type Status = StackStatus;
}

/// A node held against its stack, as it was seen last: after its installation, or when somebody or the clock asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDrift {
    pub node: String,
    /// The stack of its pool; absent while it has none.
    pub stack: Option<String>,
    /// The lock it was held against.
    pub lock: Digest,
    /// Whether that is the lock its pool asks for now. If not, what differs from that one is not known.
    pub current: bool,
    #[schema(value_type = String, format = DateTime)]
    pub observed_at: Timestamp,
    /// How many items were looked at.
    pub checked: usize,
    /// Those that differ, the dearest first.
    pub items: Vec<DriftItem>,
    /// Items that hold only after a reboot.
    pub reboot_for: Vec<String>,
    /// What mending costs: the dearest of its items.
    pub class: Class,
    /// What the rules say of the stack on this node, by what is known of its hardware now.
    pub findings: Vec<Finding>,
}

/// One item that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriftItem {
    /// `package slurmd`, `file /etc/chrony/chrony.conf`, `sysctl vm.swappiness`. Secrets are told by a keyed hash.
    pub item: String,
    /// What is there; absent when nothing is.
    pub found: Option<String>,
    pub wanted: Option<String>,
    pub class: Class,
}
