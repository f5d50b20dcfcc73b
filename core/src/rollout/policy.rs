//! The policy of a rollout, as written by a person. Every member has a default, and the defaults are
//! careful: a canary, growing waves, reboots but no reinstalls.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::regression::Regression;
use crate::effects::Effect;
use crate::words;

/// The rules of a rollout. Budgets, deadlines, signals and the maintenance window may change while the
/// rollout runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RolloutPolicy {
    /// The first nodes, which must pass before all others. `null` for a rollout without a canary.
    pub canary: Option<Canary>,
    /// The waves after the canary.
    pub waves: Waves,
    /// Sort keys, the first key first. Nodes with the same last job follow the first of them.
    pub order: Vec<OrderKey>,
    /// The way to handle jobs on a node that waits.
    pub drain: DrainPolicy,
    /// Seconds before the end of the last job at which a node may be closed; 0 to 86400.
    pub drain_lead_s: u32,
    pub budgets: Budgets,
    pub failure_budget: FailureBudget,
    /// Seconds without progress until the rollout is reported as stalled; 600 to 30 days.
    pub stall_after_s: u32,
    /// The most expensive effect that the rollout may cause. A node that needs more is skipped.
    pub allow: Allow,
    /// All pending changes of a node are made in the same visit.
    pub train: bool,
    /// The date by which every node is to be visited. Later nodes are listed with their reason.
    pub visit_by: Option<Timestamp>,
    /// Name of a maintenance window for this rollout, beside the windows of site and pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_window: Option<String>,
    /// Name of a rollout of another pool with the same image and stack, such as that of a test pool. The
    /// start is refused until that rollout is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Signs of trouble that halt the rollout; at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub halt_when: Vec<HaltWhen>,
    /// Seconds before the change of a node at which the users of its jobs get a notice; at most 8
    /// values, each 300 to 14 days. Empty for no notices.
    pub notice_before_s: Vec<u32>,
    /// Seconds by which users may defer the announced change of a node; 0 to 30 days. 0 for no
    /// deferral.
    pub max_deferral_s: u32,
}

/// A sign of trouble outside of the rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HaltWhen {
    /// Name of an alert (`alertname`; 1 to 200 characters). The alert fires on a node that the rollout
    /// has taken, and began after the node was taken.
    Alert(String),
    /// Name of a monitor. The monitor fires, or has given no answer three times in a row. No node is
    /// taken before the monitor's first answer, and after a missing answer.
    Monitor(String),
    /// A value of a gate is worse on changed nodes than before their change. No further node is taken
    /// while nodes have changed, and none of them can be compared.
    Regression(Regression),
}

/// The canary: either a count or names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// The number of nodes, taken in the order of the policy. A unit is taken whole: a count smaller
    /// than the unit at hand takes the unit rather than no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The names of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Seconds between the last canary node's end and the first wave; at most 14 days.
    #[serde(default = "half_an_hour")]
    pub soak_s: u32,
}

/// The sizes of the waves. Nodes beyond the last listed wave form a wave of their own. A wave smaller
/// than the largest unit of the rollout is raised to the size of the unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Waves {
    Sizes(Vec<Amount>),
    /// Each wave is `factor` times as large as the wave before.
    Exponential {
        initial: Amount,
        /// 2 to 10.
        factor: u32,
    },
}

/// A sort key of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OrderKey {
    /// Nodes without jobs first.
    IdleFirst,
    /// By the end of the node's last job. Jobs without an end come last.
    JobEnd,
    /// Rack by rack, by name.
    Rack,
    /// By the value of a label. Nodes without the label come last.
    Label(String),
}

/// The way to handle jobs on a node that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DrainPolicy {
    /// The node waits for the end of its jobs.
    Wait,
    Deadline {
        /// Seconds of waiting until `then` applies; 60 to 30 days.
        after_s: u32,
        then: AfterDeadline,
    },
}

words! {
    /// The act after the deadline of a drain policy.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    AfterDeadline, "act after a drain deadline" {
        /// The node is closed, and the scheduler requeues the node's jobs.
        Requeue = "requeue",
        /// The rollout leaves the node out.
        Skip = "skip",
        /// A person decides.
        Ask = "ask",
    }
}

/// Nodes of the rollout in a phase at the same time. A percentage refers to the planned nodes. A unit
/// waits and is closed whole, so `max_waiting` and `max_changing` are at least the size of the largest
/// unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Budgets {
    pub max_waiting: Amount,
    pub max_changing: Amount,
    pub max_validating: Amount,
}

/// Failed nodes tolerated over the whole run. The smaller number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FailureBudget {
    /// A number of nodes; 0 stops at the first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// A percentage of the planned nodes, 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
}

words! {
    /// The most expensive effect that a rollout may cause.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    Allow, "allowed effect" {
        InPlace = "in_place",
        Reboot = "reboot",
        Reinstall = "reinstall",
    }
}

impl Allow {
    /// Returns whether an effect is allowed. A wipe never is.
    pub fn permits(self, effect: Effect) -> bool {
        let most = match self {
            Self::InPlace => Effect::InPlace,
            Self::Reboot => Effect::Reboot,
            Self::Reinstall => Effect::Reinstall,
        };
        effect <= most
    }
}

fn half_an_hour() -> u32 {
    1800
}

impl Default for RolloutPolicy {
    fn default() -> Self {
        Self {
            canary: Some(Canary {
                count: Some(1),
                nodes: Vec::new(),
                soak_s: half_an_hour(),
            }),
            waves: Waves::Exponential {
                initial: Amount::Percent(10),
                factor: 2,
            },
            order: vec![OrderKey::IdleFirst, OrderKey::JobEnd],
            drain: DrainPolicy::Wait,
            drain_lead_s: 900,
            budgets: Budgets::default(),
            failure_budget: FailureBudget {
                count: Some(3),
                percent: Some(5),
            },
            stall_after_s: 4 * 3600,
            allow: Allow::Reboot,
            train: false,
            visit_by: None,
            maintenance_window: None,
            after: None,
            halt_when: Vec::new(),
            notice_before_s: Vec::new(),
            max_deferral_s: 0,
        }
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            max_waiting: Amount::Percent(10),
            max_changing: Amount::Percent(5),
            max_validating: Amount::Percent(10),
        }
    }
}
