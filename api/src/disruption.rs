//! The disruption budget of a pool: the nodes out of service, the nodes that may be out, and the
//! requests waiting for a slot.

use jiff::Timestamp;
use muster_core::rollout::{Amount, Service};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The budgets of a pool and of its failure domains, counted now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Disruption {
    pub pool: String,
    pub account: BudgetAccount,
    /// The failure domains with a node of the pool, ordered by site and id. A domain also counts
    /// nodes of other pools.
    pub domains: Vec<DomainAccount>,
    /// The pool's nodes out of service, ordered by name; the first 1,000.
    pub nodes_out: Vec<NodeOut>,
    /// Number of nodes out of service that are not in `nodes_out`: nodes beyond the first 1,000,
    /// and nodes that the reader may not see.
    pub unlisted: u32,
    /// The requests waiting for a slot, the longest wait first; the first 1,000.
    pub waiting: Vec<SlotWait>,
}

/// A budget with its numbers of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetAccount {
    /// The budget as declared.
    pub max_unavailable: Amount,
    /// The budget in nodes.
    pub max: u32,
    /// Nodes out of service now, for any reason. Nodes written off do not count.
    pub out: u32,
    /// Nodes that count: once in service, and not written off.
    pub counted: u32,
}

/// The budget of a failure domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainAccount {
    pub site: String,
    /// The axis and the value: `rack:r1`.
    pub id: String,
    pub account: BudgetAccount,
}

/// A node out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeOut {
    pub node: String,
    pub claim: String,
    pub service: Service,
    /// Lifecycle state of the node.
    pub state: String,
    /// Time of the last change of the state.
    pub since: Timestamp,
    /// The reason, in one sentence: of the state, or of the scheduler.
    #[serde(default)]
    pub reason: Option<String>,
    /// The node is written off and does not count.
    #[serde(default)]
    pub written_off: Option<WrittenOff>,
}

/// A claim whose node is written off: out of service without counting against a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WrittenOff {
    /// The node counts again from this time on.
    pub until: Timestamp,
    pub reason: String,
    /// Name of the person or program.
    pub by: String,
}

/// A request waiting for a slot. The node still serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlotWait {
    pub node: String,
    /// The requested action. Absent for an act of Muster, such as the recovery of a failing node.
    #[serde(default)]
    pub action: Option<String>,
    #[serde(default)]
    pub operation: Option<Uuid>,
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// The exhausted budget, in one sentence.
    pub detail: String,
}

/// The body of `actions/write-off` of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteOff {
    /// The end of the write-off, at most 365 days from now. `null` ends the write-off now.
    pub until: Option<Timestamp>,
    /// Reason, for the history: the RMA number, or the delivery date of a part.
    pub reason: String,
}
