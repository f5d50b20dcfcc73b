//! Plans: what writing a set of objects would do, before it is done.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use muster_core::stacks::rules::Finding;

use crate::problem::Fault;

/// `POST /v1/plan`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakePlan {
    /// At most 1000, in any order: each is planned after the kinds it may refer to.
    pub objects: Vec<Desired>,
}

/// An object as it is to be; as `PUT`, what is absent becomes empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Desired {
    /// `site`, `rack`, `pool`, `node`, `claim`…
    pub kind: String,
    pub name: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Needed unless it is to be `absent`.
    #[serde(default)]
    pub spec: Value,
    /// It is to be gone: a claim that is released, by name or id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// With `absent`: without the time in which the release can be undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erase_now: bool,
}

/// What all of them together would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// The dearest effect of any object.
    pub effect: String,
    /// In the order in which they can be written.
    pub objects: Vec<PlannedObject>,
}

/// What writing one object would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedObject {
    pub kind: String,
    pub name: String,
    /// `create`, `change`, `delete` or `none`.
    pub change: String,
    pub diff: Vec<Difference>,
    /// What it costs the nodes it reaches: `none`, `in_place`, `reboot`, `reinstall` or `wipe`.
    pub effect: String,
    /// Whether writing it begins that. Otherwise nodes keep what they have until each is installed again.
    pub begins: bool,
    /// Names of the nodes it reaches, at most 10,000.
    pub nodes: Vec<String>,
    /// All of them.
    pub node_count: i64,
    /// The gates that these nodes then pass.
    pub gates: Vec<String>,
    /// Why it cannot be written; empty when it can.
    pub blockers: Vec<Fault>,
    /// Of a release: how many more there may be within the hour before a second person must agree. Empty where there is no limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<ReleaseLimit>,
    /// What the rules of compatibility say of the stack on the nodes it reaches, the worst first: what they refuse is not put on those nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<NodesFinding>,
    /// Of a pool: how many claims it would make by itself, now that `nodes` are available for them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub claims: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What a rule says of a stack on some nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodesFinding {
    pub finding: Finding,
    /// Their names.
    pub nodes: Vec<String>,
}

/// How many nodes may be released in an hour, before the release that is planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseLimit {
    /// Whose: `token:ci`, or `pool gpu`.
    pub of: String,
    /// The pool, where the limit is a pool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub per_hour: u32,
    pub left: u32,
}

/// One value that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// RFC 6901, from the object's root. A secret is named and not shown.
    pub pointer: String,
    /// Absent: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Absent: there will be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}
