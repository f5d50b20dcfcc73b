//! Canary, soak and waves: which nodes may begin now. The position follows from the marks alone. A
//! node that leaves the rollout moves the position back, never forward: a wave ends before the next.
//!
//! A unit begins whole. A canary smaller than a unit admits the whole unit. For the waves, each size
//! and the size of the canary count as at least the largest unit of the rollout. A unit larger than the
//! rest of a wave begins with the next wave, once every node begun before has ended. A unit admitted in
//! part, as after a crash, counts whole.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::fleet::{Fleet, Node, Stage};
use super::ledger::Ledger;
use super::order::sort_candidates;
use super::policy::{Canary, RolloutPolicy, Waves};
use super::rule::Rule;
use super::units::{Unit, Units};
use crate::effects::Effect;
use crate::ids::NodeId;

/// The nodes that may begin now, with the rule for all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// A number of nodes, in the order of the policy.
    Count {
        left: u32,
        /// Nodes added for a unit larger than `left`. `None` while a node begun before is open.
        next: Option<u32>,
        others: Rule,
    },
    /// The named nodes of the canary, with the other nodes of their units.
    Named {
        names: Vec<String>,
        others: Rule,
    },
    Closed(Rule),
}

impl Admission {
    /// Returns the nodes that may begin at `now`.
    pub(super) fn find(
        policy: &RolloutPolicy,
        fleet: &Fleet,
        units: &Units<'_>,
        now: Timestamp,
    ) -> Self {
        match held_by_canary(policy, fleet, units, now) {
            Some(held) => held,
            None => admit_wave(policy, fleet, units),
        }
    }

    /// Checks whether nodes may begin together.
    pub(super) fn check(&self, nodes: &[&Node]) -> Result<(), Rule> {
        let is_named = |names: &[String]| nodes.iter().any(|node| names.contains(&node.name));
        match self {
            Self::Count {
                left: left @ 1..,
                next,
                ..
            } if next.is_some() || nodes.len() <= *left as usize => Ok(()),
            Self::Named { names, .. } if is_named(names) => Ok(()),
            Self::Count { others, .. } | Self::Named { others, .. } => Err(others.clone()),
            Self::Closed(rule) => Err(rule.clone()),
        }
    }

    /// Counts nodes that begin.
    pub(super) fn take(&mut self, nodes: u32) {
        match self {
            Self::Count { left, next, .. } => {
                if nodes > *left {
                    *left = left.saturating_add(next.unwrap_or_default());
                }
                *left = left.saturating_sub(nodes);
                *next = None;
            }
            Self::Named { .. } | Self::Closed(_) => {}
        }
    }
}

/// Returns whether the canary and its soak have passed. Joiners take the target from then on, and
/// the revision before until then.
pub fn has_canary_passed(policy: &RolloutPolicy, fleet: &Fleet, now: Timestamp) -> bool {
    held_by_canary(policy, fleet, &Units::find(fleet), now).is_none()
}

/// Returns a failed node of the canary, until nodes beyond the canary have begun.
pub(super) fn find_failed_canary<'a>(policy: &RolloutPolicy, fleet: &'a Fleet) -> Option<&'a Node> {
    let units = Units::find(fleet);
    let canary = find_canary(policy, fleet, &units)?;
    let failed = |node: &&Node| node.stage == Stage::Failed && is_canary(canary, &units, node);
    fleet.nodes.iter().find(failed)
}

/// Returns whether the rollout has begun with the node, or has admitted the node with its unit.
fn has_begun(units: &Units<'_>, node: &Node) -> bool {
    let is_next = node.stage == Stage::NotBegun && node.effect != Effect::None;
    node.stage.has_begun() || (is_next && units.of(node).is_some_and(Unit::is_admitted))
}

/// Returns the canary of the policy, unless a person has promoted the rollout or nodes beyond the
/// canary have begun.
fn find_canary<'a>(
    policy: &'a RolloutPolicy,
    fleet: &Fleet,
    units: &Units<'_>,
) -> Option<&'a Canary> {
    let canary = policy.canary.as_ref().filter(|_| !fleet.promoted)?;
    let has_begun = |node: &Node| has_begun(units, node);
    let is_beyond = match canary.count {
        Some(count) => {
            let begun = fleet.count(has_begun);
            // The last unit of a canary may exceed the count.
            let mut before = units.iter().map(|unit| begun - unit.count(has_begun));
            begun > count && !before.any(|before| before < count)
        }
        None => fleet.count(|node| has_begun(node) && !is_canary(canary, units, node)) > 0,
    };
    (!is_beyond).then_some(canary)
}

/// Returns whether a node is in the canary: a node begun before the first wave, or, by names, a named
/// node or a node in the unit of a named node.
fn is_canary(canary: &Canary, units: &Units<'_>, node: &Node) -> bool {
    let is_named = |node: &Node| canary.nodes.contains(&node.name);
    match canary.count {
        Some(_) => has_begun(units, node),
        None => is_named(node) || units.of(node).is_some_and(|unit| unit.count(is_named) > 0),
    }
}

/// Returns the admission while the canary holds the waves back; `None` once the canary and its soak
/// have passed.
fn held_by_canary(
    policy: &RolloutPolicy,
    fleet: &Fleet,
    units: &Units<'_>,
    now: Timestamp,
) -> Option<Admission> {
    let canary = find_canary(policy, fleet, units)?;
    let count = |has: &dyn Fn(&Node) -> bool| {
        fleet.count(|node| is_canary(canary, units, node) && has(node))
    };
    let has_begun = |node: &Node| has_begun(units, node);
    let to_begin = match canary.count {
        Some(wanted) => wanted.min(fleet.size()).saturating_sub(count(&has_begun)),
        None => count(&|node| node.stage == Stage::NotBegun && !has_begun(node)),
    };
    let begun = count(&|node| has_begun(node) && !is_done(&node.stage));
    let rule = Rule::Canary {
        open: begun + to_begin,
    };
    if to_begin > 0 {
        return Some(match canary.count {
            Some(_) => Admission::Count {
                left: to_begin,
                next: (begun == 0).then_some(0),
                others: rule,
            },
            None => Admission::Named {
                names: canary.nodes.clone(),
                others: rule,
            },
        });
    }
    let done = fleet
        .nodes
        .iter()
        .filter(|node| is_canary(canary, units, node) && is_done(&node.stage));
    match done.map(|node| node.since).max() {
        _ if begun > 0 => Some(Admission::Closed(rule)),
        None => Some(Admission::Closed(Rule::CanaryWithoutResult)),
        Some(last) => {
            let until = last + SignedDuration::from_secs(i64::from(canary.soak_s));
            (until > now).then_some(Admission::Closed(Rule::Soak { until }))
        }
    }
}

/// Returns whether the node was changed and has passed every gate.
fn is_done(stage: &Stage) -> bool {
    *stage == Stage::Done { changed: true }
}

/// Returns the rest of the wave under way, or the next wave if every node begun so far has ended.
fn admit_wave(policy: &RolloutPolicy, fleet: &Fleet, units: &Units<'_>) -> Admission {
    let has_begun = |node: &Node| has_begun(units, node);
    let begun = fleet.count(has_begun);
    let open = fleet.count(|node| has_begun(node) && !node.stage.mark().is_terminal());
    let canary = policy
        .canary
        .as_ref()
        .map_or(0, |canary| match canary.count {
            Some(count) => count.max(units.largest()),
            None => fleet.count(|node| has_begun(node) && is_canary(canary, units, node)),
        });
    let size = |number| size_of_wave(&policy.waves, number, fleet).max(units.largest());
    let (mut number, mut first) = (1, canary);
    let mut end = first.saturating_add(size(1));
    while begun >= end && end < u32::MAX {
        number += 1;
        first = end;
        end = first.saturating_add(size(number));
    }
    if number > 1 && begun == first && open > 0 {
        return Admission::Closed(Rule::Wave { number, open });
    }
    let left = end - begun;
    Admission::Count {
        left,
        next: (open == 0).then(|| size(number + 1)),
        others: Rule::Wave {
            number: number + 1,
            open: open.saturating_add(left),
        },
    }
}

/// Returns the size of a wave in nodes, counted from wave 1.
fn size_of_wave(waves: &Waves, number: u32, fleet: &Fleet) -> u32 {
    let size = match waves {
        Waves::Sizes(sizes) => match sizes.get(number as usize - 1) {
            Some(size) => size.of(fleet.planned),
            None => u32::MAX,
        },
        Waves::Exponential { initial, factor } => {
            let growth = factor.saturating_pow(number - 1);
            initial.of(fleet.planned).saturating_mul(growth)
        }
    };
    size.max(1)
}

/// Returns the number of the wave of each node: 0 for the canary. Nodes begun so far are numbered in
/// the order of their last change. Other nodes follow in the order in which the planner would take
/// them now. A node that needs no change, is left out or needs a forbidden effect has no wave.
pub fn number_waves(
    policy: &RolloutPolicy,
    fleet: &Fleet,
    now: Timestamp,
) -> BTreeMap<NodeId, u32> {
    let units = Units::find(fleet);
    let begun = |node: &&Node| has_begun(&units, node);
    let is_named = |node: &Node| match &policy.canary {
        Some(canary) => canary.count.is_none() && is_canary(canary, &units, node),
        None => false,
    };
    let mut blocks: Vec<Vec<&Node>> = Vec::new();
    let mut started: Vec<&Node> = fleet.nodes.iter().filter(begun).collect();
    started.sort_by_key(|node| (node.since, &node.name));
    blocks.extend(started.into_iter().map(|node| vec![node]));
    let ledger = Ledger::open(&fleet.budget, fleet.members(), now);
    for block in sort_candidates(policy, fleet, &units, &ledger) {
        let is_left = |node: &&Node| {
            !has_begun(&units, node)
                && node.effect != Effect::None
                && policy.allow.permits(node.effect)
        };
        blocks.push(block.nodes.into_iter().filter(is_left).collect());
    }
    let mut numbers = BTreeMap::new();
    let canary = policy.canary.as_ref().and_then(|canary| canary.count);
    let size = |number: u32| match number {
        0 => canary.map_or(0, |count| count.max(units.largest())),
        _ => size_of_wave(&policy.waves, number, fleet).max(units.largest()),
    };
    let (mut number, mut left) = (0, size(0));
    for block in blocks {
        let (named, others): (Vec<&Node>, Vec<&Node>) =
            block.into_iter().partition(|node| is_named(node));
        numbers.extend(named.iter().map(|node| (node.member.node, 0)));
        let nodes = u32::try_from(others.len()).unwrap_or(u32::MAX);
        // Every later wave has room for the largest block.
        while nodes > left {
            number += 1;
            left = size(number);
        }
        left -= nodes;
        numbers.extend(others.iter().map(|node| (node.member.node, number)));
    }
    numbers
}
