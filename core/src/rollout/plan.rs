//! The planner: the actions that bring a fleet closer to the target, from the facts at a tick. Plans
//! are never stored. After a crash the next tick plans again from the marks.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::action::{Act, Action, Because};
use super::condition::{find_obstacle, find_unreadable};
use super::desk::Desk;
use super::failures::{self, find_halt};
use super::fleet::{Fleet, HaltReason, Mark, Node, Silent, Stage};
use super::order::{Block, sort_candidates};
use super::policy::RolloutPolicy;
use super::rule::Rule;
use super::started::{Next, find_refusal};
use super::units::Units;
use super::waves::has_canary_passed;
use super::windows::measure_outside;
use crate::ids::NodeId;

/// The plan of a tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In the order of execution; at most one action per node.
    pub actions: Vec<Action>,
    pub verdict: Verdict,
    /// The rule that keeps further nodes from going on now; `None` if no node is held back.
    pub binding: Option<Rule>,
    pub concurrency: Concurrency,
    /// Every node of the rollout, in the order of the fleet.
    pub placements: Vec<Placement>,
    /// Joiners take the target once true, and the revision before until then.
    pub has_canary_passed: bool,
    /// The failure budget as a sentence.
    pub failure_rule: String,
}

/// The state of the rollout at a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Running,
    /// The rollout is halted, or must be recorded as halted now.
    Halt(HaltReason),
    /// No progress since `since`, and no action is possible now. An alarm, not an end.
    Stalled {
        cause: Rule,
        since: Timestamp,
    },
    /// Every node has a terminal mark.
    Done,
}

/// The effective concurrency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// Nodes that change, with the nodes closed by the plan.
    pub now: u32,
    /// Nodes that could change at the same time if no jobs ran.
    pub max: u32,
    /// The rule that limits `max`; `None` if every node could change.
    pub bound_by: Option<Rule>,
}

/// A node's position after the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub node: NodeId,
    pub mark: Mark,
    /// The rule that keeps the node from going on; `None` if the node goes on or has ended.
    pub why: Option<Rule>,
    /// The reason that lies in the node itself: the policy permits less than the node needs, or an
    /// obstacle. Known before the rollout comes to the node.
    pub own: Option<Because>,
    /// The node has not ended, and the policy's `visit_by` has passed.
    pub is_overdue: bool,
}

/// The steps planned so far, with the rules met for the plan's summary.
#[derive(Clone, Debug, Default)]
struct Met {
    steps: HashMap<NodeId, Next>,
    /// By a changing or validating node.
    started: Option<Rule>,
    /// By a waiting node.
    waiting: Option<Rule>,
    /// By a node that has not begun: a rule of the rollout, and a rule of the node.
    rollout: Option<Rule>,
    node: Option<Rule>,
}

/// Plans the next actions of a rollout.
pub fn plan(policy: &RolloutPolicy, fleet: &Fleet, now: Timestamp) -> Plan {
    let units = Units::find(fleet);
    let halt = find_halt(policy, fleet);
    let mut desk = Desk::open(policy, fleet, &units, halt.as_ref(), now);
    desk.give_places(fleet, halt.as_ref());
    let mut met = Met::default();
    for node in fleet.nodes.iter().filter(is_started) {
        if !met.is_planned(node) {
            let planned = desk.go_on(&units, node);
            met.record(&mut desk, planned);
        }
    }
    let candidates = sort_candidates(policy, fleet, &units, desk.ledger());
    for block in &candidates {
        if !block.nodes.iter().any(|node| met.is_planned(node)) {
            let planned = desk.enter(block);
            met.record(&mut desk, planned);
        }
    }
    let binding = desk.stop.clone().or_else(|| met.binding());
    let verdict = match halt {
        Some(reason) => Verdict::Halt(reason),
        None => judge_progress(policy, fleet, &desk, met.started, binding.as_ref(), now),
    };
    Plan {
        verdict,
        binding,
        concurrency: measure(desk.clone(), &candidates, &met.steps),
        placements: place_nodes(policy, fleet, &met.steps, now),
        actions: desk.actions,
        has_canary_passed: has_canary_passed(policy, fleet, now),
        failure_rule: failures::describe(policy, fleet),
    }
}

impl Met {
    fn is_planned(&self, node: &Node) -> bool {
        self.steps.contains_key(&node.member.node)
    }

    /// Plans the next steps of nodes.
    fn record(&mut self, desk: &mut Desk<'_>, planned: Vec<(&Node, Next)>) {
        for (node, next) in planned {
            let next = desk.plan_step(node, next);
            self.note(node, &next);
            self.steps.insert(node.member.node, next);
        }
    }

    /// Keeps the first rule of each kind of node.
    fn note(&mut self, node: &Node, next: &Next) {
        let Next::Hold(rule) = next else {
            return;
        };
        let first = match node.stage.mark() {
            Mark::Changing | Mark::Validating => &mut self.started,
            Mark::Waiting => &mut self.waiting,
            Mark::NotBegun | Mark::Done | Mark::Skipped | Mark::Failed => {
                match rule.is_of_rollout() {
                    true => &mut self.rollout,
                    false => &mut self.node,
                }
            }
        };
        first.get_or_insert_with(|| rule.clone());
    }

    fn binding(&self) -> Option<Rule> {
        let rules = [&self.started, &self.waiting, &self.rollout, &self.node];
        rules.into_iter().flatten().next().cloned()
    }
}

/// Returns done, stalled or running. A wait that ends by the calendar is no stall.
fn judge_progress(
    policy: &RolloutPolicy,
    fleet: &Fleet,
    desk: &Desk<'_>,
    started: Option<Rule>,
    binding: Option<&Rule>,
    now: Timestamp,
) -> Verdict {
    let has_ended = |node: &Node| node.stage.mark().is_terminal();
    if fleet.nodes.iter().all(has_ended) {
        // The comparison of the last node may halt the rollout.
        let is_compared = !matches!(
            fleet.silent,
            Some(Silent::Gate {
                is_pending: true,
                ..
            })
        );
        return match is_compared {
            true => Verdict::Done,
            false => Verdict::Running,
        };
    }
    let work = started.or_else(|| find_oldest_work(fleet));
    let last = fleet.nodes.iter().map(|node| node.since);
    let last = last.fold(fleet.since, Timestamp::max);
    // Changes under way go on in a closed window. No other progress is possible there, and a window that
    // never opens is a cause of its own.
    let never_opens = matches!(binding, Some(Rule::WindowClosed { opens: None }));
    let waited = match work.is_some() || never_opens {
        true => now.duration_since(last),
        false => measure_outside(&fleet.closed, last, now),
    };
    let deadline = SignedDuration::from_secs(i64::from(policy.stall_after_s));
    let cause = work
        .or_else(|| binding.cloned())
        .filter(|rule| !rule.is_scheduled());
    match cause {
        Some(cause) if desk.actions.is_empty() && waited >= deadline => {
            Verdict::Stalled { cause, since: last }
        }
        Some(_) | None => Verdict::Running,
    }
}

/// Returns whether a node changes or validates.
fn is_started(node: &&Node) -> bool {
    matches!(node.stage.mark(), Mark::Changing | Mark::Validating)
}

/// Returns the changing or validating node whose mark is the oldest.
fn find_oldest_work(fleet: &Fleet) -> Option<Rule> {
    let started = fleet.nodes.iter().filter(is_started);
    started
        .min_by_key(|node| node.since)
        .map(|node| Rule::Working {
            node: node.name.clone(),
            mark: node.stage.mark(),
            since: node.since,
        })
}

/// Returns the number of nodes that could change at the same time if no jobs ran.
fn measure(
    mut desk: Desk<'_>,
    candidates: &[Block<'_>],
    steps: &HashMap<NodeId, Next>,
) -> Concurrency {
    let now = desk.changing();
    let stop = desk.stop.clone();
    if stop.is_some() {
        return Concurrency {
            now,
            max: now,
            bound_by: stop,
        };
    }
    let mut bound_by = None;
    for block in candidates {
        // The first rule is known, and no further node fits.
        if bound_by.is_some() && desk.is_full() {
            break;
        }
        let step = |node: &Node| steps.get(&node.member.node);
        let waits = |node: &Node| matches!(step(node), Some(Next::Act(Act::Wait, _)));
        let is_left = |node: &&Node| waits(node) || !matches!(step(node), Some(Next::Act(..)));
        let left = Block {
            unit: block.unit.clone(),
            nodes: block.nodes.iter().copied().filter(is_left).collect(),
        };
        let is_admitted = |node: &&Node| waits(node) || node.stage == Stage::Waiting;
        let is_admitted = left.nodes.iter().any(is_admitted);
        if let Err(Some(rule)) = desk.close_as_idle(&left, is_admitted) {
            bound_by.get_or_insert(rule);
        }
    }
    Concurrency {
        now,
        max: desk.changing(),
        bound_by,
    }
}

fn place_nodes(
    policy: &RolloutPolicy,
    fleet: &Fleet,
    steps: &HashMap<NodeId, Next>,
    now: Timestamp,
) -> Vec<Placement> {
    let place = |node: &Node| {
        let before = node.stage.mark();
        let (mark, why) = match steps.get(&node.member.node) {
            Some(Next::Act(act, _)) => (act.mark(), None),
            Some(Next::Hold(rule)) => (before, Some(rule.clone())),
            Some(Next::Run) | None => (before, None),
        };
        Placement {
            node: node.member.node,
            mark,
            why,
            own: find_own_reason(policy, node, now),
            is_overdue: !mark.is_terminal() && policy.visit_by.is_some_and(|by| by <= now),
        }
    };
    fleet.nodes.iter().map(place).collect()
}

/// Returns the reason of a node that has not begun against a change of the node.
fn find_own_reason(policy: &RolloutPolicy, node: &Node, now: Timestamp) -> Option<Because> {
    match node.stage.mark() {
        Mark::NotBegun | Mark::Waiting => {}
        Mark::Changing | Mark::Validating | Mark::Done | Mark::Skipped | Mark::Failed => {
            return None;
        }
    }
    let is_known = find_unreadable(node).is_none();
    match find_refusal(policy, node).filter(|_| is_known) {
        Some(Because::NoChangeNeeded) => None,
        Some(because) => Some(because),
        None => find_obstacle(node, now).map(Because::Rule),
    }
}
