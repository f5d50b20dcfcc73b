//! Claims: one node bound to one pool. Deleting a claim releases the node.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::claims::ClaimState;
use muster_core::values::Name;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::kind::Kind;
use crate::object::{Object, Page};

/// What is claimed: a node by name, or any available node that fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimSpec {
    pub pool: String,
    /// The node. Exactly one of `node` and `selector`.
    #[serde(default)]
    pub node: Option<String>,
    /// Labels the node must have; the server picks. `{}` is any node.
    #[serde(default)]
    pub selector: Option<BTreeMap<String, String>>,
}

/// `POST /v1/claims`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateClaim {
    /// Absent: the server makes one.
    #[serde(default)]
    pub name: Option<Name>,
    pub spec: ClaimSpec,
}

/// How far a claim is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimStatus {
    pub state: ClaimState,
    /// The node that was bound.
    pub node: String,
    pub node_state: String,
    /// The assignment epoch this claim gave the node.
    pub epoch: i64,
    pub released_at: Option<Timestamp>,
    /// While it is being released: its disks are kept until then, and `undo` takes the node back.
    pub undo_until: Option<Timestamp>,
    /// The operation the node is busy with.
    pub operation: Option<Uuid>,
}

impl Default for ClaimStatus {
    fn default() -> Self {
        Self {
            state: ClaimState::Bound,
            node: String::new(),
            node_state: String::new(),
            epoch: 0,
            released_at: None,
            undo_until: None,
            operation: None,
        }
    }
}

impl Kind for ClaimSpec {
    const KIND: &'static str = "claim";
    const COLLECTION: &'static str = "claims";
    const SCHEMA: &'static str = "Claim";
    type Status = ClaimStatus;
}

/// A claim as it is answered.
pub type Claim = Object<ClaimSpec, ClaimStatus>;
/// A page of claims.
pub type ClaimPage = Page<Claim>;
