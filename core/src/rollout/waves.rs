//! Canary, soak and waves: which nodes may begin now. The position follows from the marks alone. A
//! node that leaves the rollout moves the position back, never forward: a wave ends before the next.

use jiff::{SignedDuration, Timestamp};

use super::fleet::{Fleet, Node, Stage};
use super::policy::{Canary, RolloutPolicy, Waves};
use super::rule::Rule;

/// The nodes that may begin now, with the rule for all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// A number of nodes, in the order of the policy.
    Count {
        left: u32,
        others: Rule,
    },
    /// The named nodes of the canary.
    Named {
        names: Vec<String>,
        others: Rule,
    },
    Closed(Rule),
}

impl Admission {
    /// Returns the nodes that may begin at `now`.
    pub(super) fn find(policy: &RolloutPolicy, fleet: &Fleet, now: Timestamp) -> Self {
        match held_by_canary(policy, fleet, now) {
            Some(held) => held,
            None => admit_wave(policy, fleet),
        }
    }

    /// Checks whether a node may begin.
    pub(super) fn check(&self, node: &Node) -> Result<(), Rule> {
        match self {
            Self::Count { left: 1.., .. } => Ok(()),
            Self::Named { names, .. } if names.contains(&node.name) => Ok(()),
            Self::Count { others, .. } | Self::Named { others, .. } => Err(others.clone()),
            Self::Closed(rule) => Err(rule.clone()),
        }
    }

    /// Counts a node that begins.
    pub(super) fn take(&mut self) {
        match self {
            Self::Count { left, .. } => *left = left.saturating_sub(1),
            Self::Named { .. } | Self::Closed(_) => {}
        }
    }
}

/// Returns whether the canary and its soak have passed. Joiners take the target from then on, and
/// the revision before until then.
pub fn has_canary_passed(policy: &RolloutPolicy, fleet: &Fleet, now: Timestamp) -> bool {
    held_by_canary(policy, fleet, now).is_none()
}

/// Returns a failed node of the canary, until nodes beyond the canary have begun.
pub(super) fn find_failed_canary<'a>(policy: &RolloutPolicy, fleet: &'a Fleet) -> Option<&'a Node> {
    let canary = find_canary(policy, fleet)?;
    let failed = |node: &&Node| node.stage == Stage::Failed && is_canary(canary, node);
    fleet.nodes.iter().find(failed)
}

/// Returns the canary of the policy, unless a person has promoted the rollout or nodes beyond the
/// canary have begun.
fn find_canary<'a>(policy: &'a RolloutPolicy, fleet: &Fleet) -> Option<&'a Canary> {
    let canary = policy.canary.as_ref().filter(|_| !fleet.promoted)?;
    let is_beyond = match canary.count {
        Some(count) => fleet.count(|node| node.stage.has_begun()) > count,
        None => fleet.count(|node| node.stage.has_begun() && !is_canary(canary, node)) > 0,
    };
    (!is_beyond).then_some(canary)
}

/// Returns whether a node is in the canary: a named node, or, by count, a node begun before the
/// first wave.
fn is_canary(canary: &Canary, node: &Node) -> bool {
    match canary.count {
        Some(_) => node.stage.has_begun(),
        None => canary.nodes.contains(&node.name),
    }
}

/// Returns the admission while the canary holds the waves back; `None` once the canary and its soak
/// have passed.
fn held_by_canary(policy: &RolloutPolicy, fleet: &Fleet, now: Timestamp) -> Option<Admission> {
    let canary = find_canary(policy, fleet)?;
    let count = |stage: fn(&Stage) -> bool| {
        fleet.count(|node| is_canary(canary, node) && stage(&node.stage))
    };
    let to_begin = match canary.count {
        Some(wanted) => wanted
            .min(fleet.size())
            .saturating_sub(count(Stage::has_begun)),
        None => count(|stage| *stage == Stage::NotBegun),
    };
    let begun = count(|stage| stage.has_begun() && !is_done(stage));
    let rule = Rule::Canary {
        open: begun + to_begin,
    };
    if to_begin > 0 {
        return Some(match canary.count {
            Some(_) => Admission::Count {
                left: to_begin,
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
        .filter(|node| is_canary(canary, node) && is_done(&node.stage));
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
fn admit_wave(policy: &RolloutPolicy, fleet: &Fleet) -> Admission {
    let begun = fleet.count(|node| node.stage.has_begun());
    let open = fleet.count(|node| node.stage.has_begun() && !node.stage.mark().is_terminal());
    let canary = policy.canary.as_ref().map_or(0, |canary| {
        canary.count.unwrap_or_else(|| {
            fleet.count(|node| node.stage.has_begun() && is_canary(canary, node))
        })
    });
    let (mut number, mut first) = (1, canary);
    let mut end = first.saturating_add(size_of_wave(&policy.waves, 1, fleet));
    while begun >= end && end < u32::MAX {
        number += 1;
        first = end;
        end = first.saturating_add(size_of_wave(&policy.waves, number, fleet));
    }
    if number > 1 && begun == first && open > 0 {
        return Admission::Closed(Rule::Wave { number, open });
    }
    let left = end - begun;
    Admission::Count {
        left,
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
