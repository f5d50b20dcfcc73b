//! Claims: one node bound to one pool. Deleting a claim releases the node.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::claims::{ClaimState, WaitFor};
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
    /// What whoever waits for the claim waits for: `in_service`, its node serves; `bound`, its node is chosen. `in_service` when absent. `status.ready`
    /// says whether it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub wait_for: Option<WaitFor>,
    /// `true`: nothing that Muster does by itself changes what the node runs: no rollout takes it along, and no recovery installs anything on it. A person
    /// who asks for exactly this node still changes it. `false` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<bool>,
}

impl ClaimSpec {
    /// A claim of this pool, of the node that is named or of any that has the labels.
    pub fn new(
        pool: impl Into<String>,
        node: Option<String>,
        selector: Option<BTreeMap<String, String>>,
    ) -> Self {
        Self {
            pool: pool.into(),
            node,
            selector,
            wait_for: None,
            hold: None,
        }
    }
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

/// The body of `PATCH /v1/claims/{claim}`, a JSON merge patch (RFC 7396): `null` takes a member away. Nothing else of a claim changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchClaim {
    pub spec: PatchClaimSpec,
}

/// What of a claim can be changed. The node goes on as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchClaimSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub wait_for: Option<WaitFor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<bool>,
}

/// The body of `actions/replace`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceClaim {
    /// The node that comes; absent: any available one that fits the claim.
    #[serde(default)]
    pub node: Option<String>,
    /// Why, for the history.
    #[serde(default)]
    pub reason: Option<String>,
}

/// A node that comes or goes while a claim gets another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimChange {
    pub node: String,
    pub node_state: String,
    /// The claim that holds it meanwhile.
    pub claim: String,
    /// The operation the node is busy with.
    pub operation: Option<Uuid>,
    /// Of a node that goes: its disks are kept until then, and `undo` of that claim takes it back.
    pub undo_until: Option<Timestamp>,
}

/// How far a claim is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimStatus {
    pub state: ClaimState,
    /// Whether what `spec.wait_for` says is so now.
    #[serde(default)]
    pub ready: bool,
    /// It is not ready, and will not be by itself: a person must act. `why` of its node says what about.
    #[serde(default)]
    pub stuck: bool,
    /// The node that is bound: the one that was named or, where the server picks or the node was replaced, the one it has now.
    pub node: String,
    pub node_state: String,
    /// The assignment epoch this claim gave the node.
    pub epoch: i64,
    pub released_at: Option<Timestamp>,
    /// While it is being released: its disks are kept until then, and `undo` takes the node back.
    pub undo_until: Option<Timestamp>,
    /// The operation the node is busy with.
    pub operation: Option<Uuid>,
    /// The node that is to take the place of `node`, while it is on its way.
    #[serde(default)]
    pub replacement: Option<ClaimChange>,
    /// Nodes that are given up for this claim and not clean yet: those that were replaced, and those that were to come and are not wanted any more.
    #[serde(default)]
    pub leaving: Vec<ClaimChange>,
    /// The claim that this one was made for: its node is to be that one's, or is given up for it.
    #[serde(default)]
    pub replaces: Option<String>,
    /// Its pool made it, to have as many claims as `spec.replicas` of the pool asks for.
    #[serde(default)]
    pub replica: bool,
    /// What `spec.wait_for` is where the client does not say.
    #[serde(default)]
    pub effective_wait_for: String,
    /// What `spec.hold` is where the client does not say.
    #[serde(default)]
    pub effective_hold: bool,
    /// What the pool asks for now. A node that was installed earlier may still run what the pool asked for then: its `drift` says so.
    #[serde(default)]
    pub effective_image: String,
    #[serde(default)]
    pub effective_stack: String,
    #[serde(default)]
    pub effective_suite: String,
    #[serde(default)]
    pub effective_cluster: String,
}

impl Default for ClaimStatus {
    fn default() -> Self {
        Self {
            state: ClaimState::Bound,
            ready: false,
            stuck: false,
            node: String::new(),
            node_state: String::new(),
            epoch: 0,
            released_at: None,
            undo_until: None,
            operation: None,
            replacement: None,
            leaving: Vec::new(),
            replaces: None,
            replica: false,
            effective_wait_for: WaitFor::default().as_str().to_owned(),
            effective_hold: false,
            effective_image: String::new(),
            effective_stack: String::new(),
            effective_suite: String::new(),
            effective_cluster: String::new(),
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
