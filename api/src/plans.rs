//! Plans: the effect of writing a set of objects, computed before the write.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use muster_core::stacks::rules::Finding;

use crate::problem::Fault;

/// The body of `POST /v1/plan`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakePlan {
    /// At most 1000 objects, in any order. Each object is planned after the kinds of objects it may
    /// refer to.
    pub objects: Vec<Desired>,
}

/// The desired state of an object. As in `PUT`, omitted fields become empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Desired {
    /// Kind of the object: `site`, `rack`, `pool`, `node`, `claim`…
    pub kind: String,
    pub name: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Required unless `absent` is set.
    #[serde(default)]
    pub spec: Value,
    /// `true` if the object should not exist: a claim to release, by name or id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// With `absent`: erase the disks without an undo window.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erase_now: bool,
}

/// The combined effect of all objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// The most disruptive effect of any object.
    pub effect: String,
    /// The objects, in the order for writing.
    pub objects: Vec<PlannedObject>,
}

/// The effect of writing one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedObject {
    pub kind: String,
    pub name: String,
    /// `create`, `change`, `delete` or `none`.
    pub change: String,
    pub diff: Vec<Difference>,
    /// Effect on the affected nodes: `none`, `in_place`, `reboot`, `reinstall` or `wipe`.
    pub effect: String,
    /// Whether the write starts this effect. If `false`, nodes keep their present state: for an
    /// image, stack, network profile or pool until the proposed revision is assigned and installed,
    /// else until their next installation. True for a pool whose rollout starts by itself.
    pub begins: bool,
    /// Names of the affected nodes, at most 10,000.
    pub nodes: Vec<String>,
    /// Number of all affected nodes, also beyond 10,000.
    pub node_count: i64,
    /// Gates run on these nodes afterwards.
    pub gates: Vec<String>,
    /// Reasons blocking the write. Empty if the write is possible.
    pub blockers: Vec<Fault>,
    /// For a release: the remaining releases within the hour before a second person must approve.
    /// Empty without a limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<ReleaseLimit>,
    /// Findings of the compatibility rules for the stack on the affected nodes, worst first. A
    /// stack rejected by the rules is not installed on those nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<NodesFinding>,
    /// For a pool: number of claims that the pool would create automatically. The nodes for the
    /// new claims are included in `nodes` and `node_count`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub claims: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A finding of a rule for a stack on some nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodesFinding {
    pub finding: Finding,
    /// Names of the nodes with this finding.
    pub nodes: Vec<String>,
}

/// The limit of releases per hour, before the planned release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseLimit {
    /// Owner of the limit: `token:ci`, or `pool gpu`.
    pub of: String,
    /// The pool, where the limit is a pool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub per_hour: u32,
    pub left: u32,
}

/// One changed value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// JSON Pointer (RFC 6901) from the object's root. For a secret, only the pointer is shown,
    /// without the values.
    pub pointer: String,
    /// Present value. Absent if the field is absent now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Planned value. Absent if the field will be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}
