//! The next step of a node whose change has started. Such a node holds a slot and is planned before
//! all others. A halt or a closed window never keeps a changed node out of service.

use jiff::{SignedDuration, Timestamp};

use super::action::{Act, Because};
use super::condition::{find_obstacle, find_unreadable};
use super::fleet::{Change, Node, Service, Validation};
use super::policy::RolloutPolicy;
use super::rule::Rule;
use crate::effects::Effect;

/// Wrong attempts after which a node fails, also with different results.
const MOST_ATTEMPTS: u32 = 3;
/// Pause before a node is taken again after a failed drain.
const DRAIN_PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// The next step of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Act(Act, Because),
    /// A rule keeps the node where the node is.
    Hold(Rule),
    /// The act under way goes on.
    Run,
}

/// The view of a planning call on a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub policy: &'a RolloutPolicy,
    /// The rule that keeps the whole rollout from starting work.
    pub stop: Option<&'a Rule>,
    pub now: Timestamp,
}

impl<'a> View<'a> {
    /// Returns the rule that gives drained nodes back. A monitor without an answer and a node to be
    /// compared do not: the wait is short, and requeued jobs have ended already.
    pub(super) fn find_return(&self) -> Option<&'a Rule> {
        let is_short = |rule: &&Rule| {
            matches!(
                rule,
                Rule::MonitorSilent { .. }
                    | Rule::NotCompared {
                        is_pending: true,
                        ..
                    }
            )
        };
        self.stop.filter(|rule| !is_short(rule))
    }
}

/// Returns the next step of a changing node.
pub(super) fn follow_change(view: View<'_>, node: &Node, change: &Change) -> Next {
    if let Some(unreadable) = find_unreadable(node) {
        return Next::Hold(unreadable);
    }
    let is_serving = node.member.service == Service::Serving;
    match change {
        // The drain was lifted: a serving node is taken out by the ledger only.
        Change::Draining | Change::Drained | Change::Wrong { .. } if is_serving => {
            Next::Act(Act::Skip, Because::DrainCancelled)
        }
        Change::Draining => match find_reason_to_return(view, node) {
            Some(because) => give_back(view.now, because),
            None => Next::Run,
        },
        Change::Drained => match find_reason_to_return(view, node) {
            Some(because) => give_back(view.now, because),
            None => Next::Act(order_change(view, node), Because::Drained),
        },
        Change::DrainFailed { why } => match find_final(node, why) {
            Some(because) => Next::Act(Act::Fail { give_back: true }, because),
            None => give_back(
                view.now + DRAIN_PAUSE,
                Because::DrainFailed { why: why.clone() },
            ),
        },
        Change::DrainCancelled => Next::Act(Act::Skip, Because::DrainCancelled),
        Change::Working => Next::Run,
        Change::Arrived => Next::Act(Act::Validate, Because::Arrived),
        Change::Wrong { result } => follow_wrong(view, node, result),
    }
}

/// Returns the next step of a validating node.
pub(super) fn follow_validation(node: &Node, validation: &Validation) -> Next {
    if let Some(unreadable) = find_unreadable(node) {
        return Next::Hold(unreadable);
    }
    match validation {
        Validation::Gating => Next::Run,
        Validation::ResultMissing => Next::Hold(Rule::ResultMissing),
        Validation::GateFailed { finding } => Next::Act(
            Act::Fail { give_back: false },
            Because::GateFailed {
                finding: finding.clone(),
            },
        ),
        Validation::Passed => Next::Act(Act::Readmit, Because::GatesPassed),
        Validation::Readmitting if node.member.service == Service::Serving => {
            Next::Act(Act::Finish { changed: true }, Because::Serves)
        }
        Validation::Readmitting => Next::Run,
    }
}

/// Returns the reason to give an unchanged, drained node back: the change may not start now.
fn find_reason_to_return(view: View<'_>, node: &Node) -> Option<Because> {
    let rule = view.find_return().cloned();
    let rule = rule.or_else(|| find_obstacle(node, view.now));
    rule.map(Because::Rule)
        .or_else(|| find_refusal(view.policy, node))
}

/// Returns the reason against any change of the node: no change is needed, or the policy does not
/// allow the effect.
pub(super) fn find_refusal(policy: &RolloutPolicy, node: &Node) -> Option<Because> {
    match node.effect {
        Effect::None => Some(Because::NoChangeNeeded),
        effect if policy.allow.permits(effect) => None,
        effect => Some(Because::NotAllowed {
            effect,
            allow: policy.allow,
        }),
    }
}

/// Returns the next step after an attempt that ended wrong: validated, failed, held, or ordered again.
fn follow_wrong(view: View<'_>, node: &Node, result: &str) -> Next {
    // The observation decides, also after a report of a failure.
    if node.effect == Effect::None {
        return Next::Act(Act::Validate, Because::Arrived);
    }
    if let Some(because) = find_final(node, result) {
        return Next::Act(Act::Fail { give_back: false }, because);
    }
    match view.stop {
        // The next rollout takes a failed node, and leaves a skipped one.
        Some(Rule::Superseded) => {
            let result = result.to_owned();
            return Next::Act(
                Act::Fail { give_back: false },
                Because::WrongResult { result },
            );
        }
        Some(rule @ Rule::Halted(_)) => return Next::Hold(rule.clone()),
        Some(_) | None => {}
    }
    if let Some(obstacle) = find_obstacle(node, view.now) {
        return Next::Hold(obstacle);
    }
    match find_refusal(view.policy, node) {
        Some(because) => Next::Act(Act::Fail { give_back: false }, because),
        None => Next::Act(
            order_change(view, node),
            Because::WrongResult {
                result: result.to_owned(),
            },
        ),
    }
}

/// Returns the reason to end the attempts: the same result was seen before, or the attempts are
/// used up.
fn find_final(node: &Node, result: &str) -> Option<Because> {
    let attempts = u32::try_from(node.wrong.len()).unwrap_or(u32::MAX) + 1;
    let result = result.to_owned();
    if node.wrong.contains(&result) {
        return Some(Because::SameResultTwice { result });
    }
    (attempts >= MOST_ATTEMPTS).then_some(Because::TooManyAttempts { result, attempts })
}

fn order_change(view: View<'_>, node: &Node) -> Act {
    Act::Change {
        effect: node.effect,
        train: view.policy.train,
    }
}

fn give_back(not_before: Timestamp, because: Because) -> Next {
    Next::Act(Act::GiveBack { not_before }, because)
}
