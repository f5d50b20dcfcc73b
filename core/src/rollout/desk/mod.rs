//! The state of a planning call: slots, ledger and waves, counted down as actions are planned. A slot
//! freed by an action is used by the next call.

mod seats; // Places of waiting nodes that the ledger refuses
mod units; // Steps of the nodes of a unit, taken together

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::action::{Act, Action, Because};
use super::condition::{find_obstacle, find_stop, find_unreadable};
use super::fleet::{Fleet, HaltReason, Node, Stage};
use super::jobs::{Exit, Hours, judge_jobs};
use super::ledger::{Ledger, Slot};
use super::links::Links;
use super::order::Block;
use super::policy::RolloutPolicy;
use super::rule::{Phase, Rule};
use super::started::{Next, View, find_refusal, follow_change, follow_validation};
use super::units::Units;
use super::waves::Admission;
use super::windows::Opening;
use crate::ids::NodeId;

/// Slots of a phase.
#[derive(Clone, Copy, Debug)]
struct Slots {
    phase: Phase,
    in_use: u32,
    max: u32,
}

/// The state of a planning call.
#[derive(Clone, Debug)]
pub(super) struct Desk<'a> {
    policy: &'a RolloutPolicy,
    units: &'a Units<'a>,
    now: Timestamp,
    /// The rule that keeps the whole rollout from starting work.
    pub(super) stop: Option<Rule>,
    hours: Hours<'a>,
    ledger: Ledger,
    links: Links<'a>,
    admission: Admission,
    /// Waiting nodes given back for their places, with the rule: see `seats`.
    refused: BTreeMap<NodeId, Rule>,
    waiting: Slots,
    changing: Slots,
    validating: Slots,
    /// The next step of each changing or validating node, as if the node were in no unit.
    started: BTreeMap<NodeId, Next>,
    pub(super) actions: Vec<Action>,
}

impl<'a> Desk<'a> {
    /// Opens the desk with the counts of the fleet.
    pub(super) fn open(
        policy: &'a RolloutPolicy,
        fleet: &'a Fleet,
        units: &'a Units<'a>,
        halt: Option<&HaltReason>,
        now: Timestamp,
    ) -> Self {
        let closes = match fleet.window {
            Opening::Open { until } => until,
            Opening::Closed { .. } => None,
        };
        let closed = &fleet.closed;
        let hours = Hours {
            now,
            closes,
            closed,
        };
        let asks = |node: &Node| {
            let asks = |exit| matches!(exit, Exit::Hold(rule) if rule.asks_about_jobs());
            node.stage == Stage::Waiting && asks(judge_jobs(policy, node, hours))
        };
        // A unit waits for a person as a whole.
        let waits = |node: &Node| {
            let asks = match units.of(node) {
                Some(unit) => unit.count(asks) > 0,
                None => asks(node),
            };
            node.stage == Stage::Waiting && !asks
        };
        let budgets = policy.budgets;
        let slots = |phase, in_use, max| Slots { phase, in_use, max };
        let mut desk = Self {
            policy,
            units,
            now,
            stop: find_stop(fleet, halt, now),
            hours,
            ledger: Ledger::open(&fleet.budget, fleet.members(), now),
            links: Links::open(fleet),
            admission: Admission::find(policy, fleet, units, now),
            refused: BTreeMap::new(),
            waiting: slots(
                Phase::Waiting,
                fleet.count(waits),
                budgets.max_waiting.of(fleet.planned),
            ),
            changing: slots(
                Phase::Changing,
                fleet.count(|node| matches!(node.stage, Stage::Changing(_))),
                budgets.max_changing.of(fleet.planned),
            ),
            validating: slots(
                Phase::Validating,
                fleet.count(|node| matches!(node.stage, Stage::Validating(_))),
                budgets.max_validating.of(fleet.planned),
            ),
            started: BTreeMap::new(),
            actions: Vec::new(),
        };
        let started = fleet.nodes.iter().filter_map(|node| desk.follow(node));
        desk.started = started.collect();
        desk
    }

    /// Returns the next step of a changing or validating node, as if the node were in no unit.
    fn follow(&self, node: &Node) -> Option<(NodeId, Next)> {
        let next = match &node.stage {
            Stage::Changing(change) => follow_change(self.view(), node, change),
            Stage::Validating(validation) => follow_validation(node, validation),
            Stage::NotBegun
            | Stage::Waiting
            | Stage::Done { .. }
            | Stage::Skipped
            | Stage::Failed => return None,
        };
        Some((node.member.node, next))
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn view(&self) -> View<'_> {
        View {
            policy: self.policy,
            stop: self.stop.as_ref(),
            now: self.now,
        }
    }

    /// Returns the number of changing nodes, with the nodes closed in this call.
    pub(super) fn changing(&self) -> u32 {
        self.changing.in_use
    }

    /// Returns whether no further node may change.
    pub(super) fn is_full(&self) -> bool {
        self.changing.check(1).is_err()
    }

    /// Plans the next step of a node, unless the phase of the step has no free slot.
    pub(super) fn plan_step(&mut self, node: &Node, next: Next) -> Next {
        let Next::Act(act, because) = next else {
            return next;
        };
        if act == Act::Validate
            && let Err(rule) = self.validating.take(1)
        {
            return Next::Hold(rule);
        }
        self.actions.push(Action {
            node: node.member.node,
            unit: self.units.of(node).map(|unit| unit.id.clone()),
            act: act.clone(),
            because: because.clone(),
        });
        Next::Act(act, because)
    }

    /// Returns the next steps of waiting or not begun nodes, and takes the needed slots.
    pub(super) fn enter<'b>(&mut self, block: &Block<'b>) -> Vec<(&'b Node, Next)> {
        match &block.unit {
            Some(unit) => self.enter_unit(unit, &block.nodes),
            None => {
                let enter = |node: &&'b Node| (*node, self.enter_node(node));
                block.nodes.iter().map(enter).collect()
            }
        }
    }

    fn enter_node(&mut self, node: &Node) -> Next {
        let is_waiting = node.stage == Stage::Waiting;
        match &self.stop {
            Some(Rule::Superseded) => return Next::Act(Act::Skip, Because::Superseded),
            Some(rule @ (Rule::Halted(_) | Rule::Frozen { .. })) if is_waiting => {
                return self.give_back(rule.clone());
            }
            Some(rule) => return Next::Hold(rule.clone()),
            None => {}
        }
        if let Some(next) = self.refuse(node) {
            return next;
        }
        match find_obstacle(node, self.now) {
            Some(rule) if is_waiting => return self.give_back(rule),
            Some(rule) => return Next::Hold(rule),
            None => {}
        }
        if let Some(rule) = self.refused.get(&node.member.node) {
            return self.give_back(rule.clone());
        }
        if !is_waiting && let Err(rule) = self.admission.check(&[node]) {
            return Next::Hold(rule);
        }
        self.begin(node)
    }

    /// Returns the end of a node that the rollout may not change, or has no need to change.
    fn refuse(&self, node: &Node) -> Option<Next> {
        let refusal = find_refusal(self.policy, node).filter(|_| find_unreadable(node).is_none());
        match refusal {
            Some(Because::NoChangeNeeded) => {
                let act = Act::Finish { changed: false };
                Some(Next::Act(act, Because::NoChangeNeeded))
            }
            Some(because) => Some(Next::Act(Act::Skip, because)),
            None => None,
        }
    }

    /// Closes the node if the change can start, or lets the node wait for its jobs.
    fn begin(&mut self, node: &Node) -> Next {
        let next = match judge_jobs(self.policy, node, self.hours) {
            Exit::Skip => Next::Act(Act::Skip, Because::DrainDeadline),
            Exit::Hold(rule @ Rule::Job(_)) if node.stage == Stage::NotBegun => {
                match self.waiting.take(1) {
                    Ok(()) => Next::Act(Act::Wait, Because::Rule(rule)),
                    Err(full) => Next::Hold(full),
                }
            }
            Exit::Hold(rule) => Next::Hold(rule),
            Exit::Close { requeue, because } => match self.take_out(node) {
                Ok(slot) => close(slot, requeue, because),
                Err(rule) => Next::Hold(rule),
            },
        };
        if node.stage == Stage::NotBegun && matches!(next, Next::Act(..)) {
            self.admission.take(1);
        }
        next
    }

    /// Takes a changing slot, a slot of the ledger and a part of the site's link.
    fn take_out(&mut self, node: &Node) -> Result<Slot, Rule> {
        self.changing.check(1)?;
        self.links.check(&[node]).map_err(Rule::Link)?;
        let slot = self.ledger.take(&node.member).map_err(Rule::Budget)?;
        self.changing.take(1)?;
        self.links.take(&[node]);
        Ok(slot)
    }

    /// Takes the slots of a block as if no jobs ran. The nodes of an admitted block wait or were
    /// begun by this call.
    ///
    /// # Errors
    /// Returns the rule that would keep an idle block from being closed; `None` if the rollout never
    /// closes the block.
    pub(super) fn close_as_idle(
        &mut self,
        block: &Block<'_>,
        is_admitted: bool,
    ) -> Result<(), Option<Rule>> {
        let (policy, now) = (self.policy, self.now);
        let needs_change = |node: &&Node| find_refusal(policy, node).is_none();
        let nodes = block.nodes.iter().copied().filter(needs_change);
        let nodes: Vec<&Node> = nodes.collect();
        let is_kept = |node: &&Node| find_obstacle(node, now).is_some();
        let unit = block.unit.as_ref();
        let is_hindered = unit.is_some_and(|unit| self.find_hindrance(unit).is_some());
        if nodes.is_empty() || is_hindered || nodes.iter().any(is_kept) {
            return Err(None);
        }
        if !is_admitted {
            self.admission.check(&nodes)?;
        }
        match unit {
            Some(unit) => _ = self.take_out_together(unit, &nodes)?,
            None => _ = self.take_out(nodes[0])?,
        }
        if !is_admitted {
            self.admission.take(count(&nodes));
        }
        Ok(())
    }

    fn give_back(&self, rule: Rule) -> Next {
        let not_before = self.now;
        Next::Act(Act::GiveBack { not_before }, Because::Rule(rule))
    }
}

impl Slots {
    fn check(&self, nodes: u32) -> Result<(), Rule> {
        let Self { phase, in_use, max } = *self;
        match nodes <= max.saturating_sub(in_use) {
            true => Ok(()),
            false => Err(Rule::Slots { phase, in_use, max }),
        }
    }

    fn take(&mut self, nodes: u32) -> Result<(), Rule> {
        self.check(nodes)?;
        self.in_use += nodes;
        Ok(())
    }
}

fn close(slot: Slot, requeue: bool, because: Because) -> Next {
    let takes_slot = slot == Slot::Taken;
    let act = Act::Close {
        takes_slot,
        requeue,
    };
    Next::Act(act, because)
}

fn count(nodes: &[&Node]) -> u32 {
    u32::try_from(nodes.len()).unwrap_or(u32::MAX)
}
