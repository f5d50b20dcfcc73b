//! Rollouts: a planner of rolling upgrades over a ledger of disruption. Pure functions without I/O:
//! facts and the time go in, actions with reasons come out.
//!
//! The planner keeps no state between calls. Marks of nodes are facts, recorded by the executor in
//! the transaction of each action. A halt wins over every intent.

mod action; // Actions of a plan, with reasons
mod amount; // Counts and percentages of nodes
mod calendar; // The maintenance windows of a rollout, together
mod condition; // Facts that keep the rollout from starting on a node
mod desk; // Slots, ledger, waves and units of a planning call
mod domains; // Failure domains of a site
mod eta; // The estimated end of a rollout
mod failures; // Halts and the failure budget
mod faults; // Errors in a policy
mod fleet; // Facts of a rollout
mod jobs; // Jobs on a node, and the drain policy
mod ledger; // Nodes allowed out of service at a time
mod links; // Network links of sites
mod losses; // GPU-hours lost by waiting
mod monitors; // States of monitors
mod notices; // Notices to users of nodes, and their deferrals
mod order; // Order of the nodes
mod plan; // The plan of a tick
mod policy; // Policy of a rollout
mod regression; // Values of gates before and after a change
mod rehearsal; // A run of the planner against a model of the fleet
mod rule; // Rules in force, with codes and sentences
mod started; // Next step of a node whose change has started
#[cfg(test)]
mod tests; // Traps, generated fleets, and every state of small worlds
mod unit_faults; // Units that no budget can admit
mod units; // Nodes changed together
mod waves; // Canary, soak and waves
mod windows; // Maintenance windows and freeze dates

pub use action::{Act, Action, Because};
pub use amount::Amount;
pub use calendar::Calendar;
pub use domains::{
    DomainAxis, DomainSource, MOST_AXES, NodePlace, build_budget, check_axes, list_domains,
};
pub use eta::{Estimate, Eta, estimate, estimate_within};
pub use failures::{count_failed, count_tolerated, describe as describe_failures};
pub use faults::Fault;
pub use fleet::{
    Budget, Change, Condition, Control, Domain, Fleet, HaltReason, Job, Jobs, Link, Mark, Member,
    Node, RevisionNumber, Service, Silent, Stage, Validation,
};
pub use ledger::{Account, Exhausted, Ledger, Refusal, Slot};
pub use links::FullLink;
pub use losses::{Loss, Losses, count_losses};
pub use monitors::{Answers, MonitorState};
pub use notices::{DeferralRefused, Notice, find_due_notices, limit_deferral};
pub use plan::{Concurrency, Placement, Plan, Verdict, plan};
pub use policy::{
    AfterDeadline, Allow, Budgets, Canary, DrainPolicy, FailureBudget, HaltWhen, OrderKey,
    RolloutPolicy, Waves,
};
pub use regression::{
    Comparisons, Loss as GateLoss, NotCompared, Regression, compare, is_comparable,
};
pub use rule::{Hindrance, Phase, Rule, WaitsFor};
pub use unit_faults::find_unit_faults;
pub use waves::{has_canary_passed, number_waves};
pub use windows::{Day, Freeze, MaintenanceWindow, Opening, Period, Weekly};
