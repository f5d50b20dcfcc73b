//! The state of a planning call: slots, ledger and waves, counted down as actions are planned. A slot
//! freed by an action is used by the next call.

use jiff::Timestamp;

use super::action::{Act, Action, Because};
use super::condition::{find_obstacle, find_stop, find_unreadable};
use super::fleet::{Fleet, HaltReason, Node, Stage};
use super::jobs::{Exit, judge_jobs};
use super::ledger::{Ledger, Slot};
use super::policy::RolloutPolicy;
use super::rule::{Phase, Rule};
use super::started::{Next, View, find_refusal};
use super::waves::Admission;
use super::windows::Opening;

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
    now: Timestamp,
    /// The rule that keeps the whole rollout from starting work.
    pub(super) stop: Option<Rule>,
    /// The end of the open window.
    closes: Option<Timestamp>,
    ledger: Ledger,
    admission: Admission,
    waiting: Slots,
    changing: Slots,
    validating: Slots,
    pub(super) actions: Vec<Action>,
}

impl<'a> Desk<'a> {
    /// Opens the desk with the counts of the fleet.
    pub(super) fn open(
        policy: &'a RolloutPolicy,
        fleet: &Fleet,
        halt: Option<&HaltReason>,
        now: Timestamp,
    ) -> Self {
        let closes = match fleet.window {
            Opening::Open { until } => until,
            Opening::Closed { .. } => None,
        };
        let waits = |node: &Node| {
            let asks = Exit::Hold(Rule::DrainDeadline);
            node.stage == Stage::Waiting && judge_jobs(policy, node, closes, now) != asks
        };
        let budgets = policy.budgets;
        let slots = |phase, in_use, max| Slots { phase, in_use, max };
        Self {
            policy,
            now,
            stop: find_stop(fleet, halt, now),
            closes,
            ledger: Ledger::open(&fleet.budget, fleet.members(), now),
            admission: Admission::find(policy, fleet, now),
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
            actions: Vec::new(),
        }
    }

    pub(super) fn view(&self) -> View<'_> {
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

    /// Plans the next step of a node, unless the phase of the step has no free slot.
    pub(super) fn plan_step(&mut self, node: &Node, next: Next) -> Next {
        let Next::Act(act, because) = next else {
            return next;
        };
        if act == Act::Validate
            && let Err(rule) = self.validating.take()
        {
            return Next::Hold(rule);
        }
        self.actions.push(Action {
            node: node.member.node,
            act: act.clone(),
            because: because.clone(),
        });
        Next::Act(act, because)
    }

    /// Returns the next step of a waiting or not begun node, and takes the needed slots.
    pub(super) fn enter(&mut self, node: &Node) -> Next {
        let is_waiting = node.stage == Stage::Waiting;
        match &self.stop {
            Some(Rule::Superseded) => return Next::Act(Act::Skip, Because::Superseded),
            Some(rule @ (Rule::Halted(_) | Rule::Frozen { .. })) if is_waiting => {
                return self.give_back(rule.clone());
            }
            Some(rule) => return Next::Hold(rule.clone()),
            None => {}
        }
        let refusal = find_refusal(self.policy, node).filter(|_| find_unreadable(node).is_none());
        match refusal {
            Some(Because::NoChangeNeeded) => {
                return Next::Act(Act::Finish { changed: false }, Because::NoChangeNeeded);
            }
            Some(because) => return Next::Act(Act::Skip, because),
            None => {}
        }
        match find_obstacle(node, self.now) {
            Some(rule) if is_waiting => return self.give_back(rule),
            Some(rule) => return Next::Hold(rule),
            None => {}
        }
        if !is_waiting && let Err(rule) = self.admission.check(node) {
            return Next::Hold(rule);
        }
        self.begin(node)
    }

    /// Closes the node if the change can start, or lets the node wait for its jobs.
    fn begin(&mut self, node: &Node) -> Next {
        let next = match judge_jobs(self.policy, node, self.closes, self.now) {
            Exit::Skip => Next::Act(Act::Skip, Because::DrainDeadline),
            Exit::Hold(rule @ Rule::Job(_)) if node.stage == Stage::NotBegun => {
                match self.waiting.take() {
                    Ok(()) => Next::Act(Act::Wait, Because::Rule(rule)),
                    Err(full) => Next::Hold(full),
                }
            }
            Exit::Hold(rule) => Next::Hold(rule),
            Exit::Close { requeue, because } => match self.take_out(node) {
                Ok(slot) => {
                    let takes_slot = slot == Slot::Taken;
                    let act = Act::Close {
                        takes_slot,
                        requeue,
                    };
                    Next::Act(act, because)
                }
                Err(rule) => Next::Hold(rule),
            },
        };
        if node.stage == Stage::NotBegun && matches!(next, Next::Act(..)) {
            self.admission.take();
        }
        next
    }

    /// Takes a changing slot and a slot of the ledger.
    fn take_out(&mut self, node: &Node) -> Result<Slot, Rule> {
        self.changing.check()?;
        let slot = self.ledger.take(&node.member).map_err(Rule::Budget)?;
        self.changing.take()?;
        Ok(slot)
    }

    /// Takes the slots of a node as if the node had no jobs. An admitted node waits or was begun by
    /// this call.
    ///
    /// # Errors
    /// Returns the rule that would keep an idle node from being closed; `None` if the rollout never
    /// closes the node.
    pub(super) fn close_as_idle(
        &mut self,
        node: &Node,
        is_admitted: bool,
    ) -> Result<(), Option<Rule>> {
        let is_refused = find_refusal(self.policy, node).is_some();
        if is_refused || find_obstacle(node, self.now).is_some() {
            return Err(None);
        }
        if !is_admitted {
            self.admission.check(node)?;
        }
        self.take_out(node)?;
        if !is_admitted {
            self.admission.take();
        }
        Ok(())
    }

    fn give_back(&self, rule: Rule) -> Next {
        let not_before = self.now;
        Next::Act(Act::GiveBack { not_before }, Because::Rule(rule))
    }
}

impl Slots {
    fn check(&self) -> Result<(), Rule> {
        let Self { phase, in_use, max } = *self;
        match in_use < max {
            true => Ok(()),
            false => Err(Rule::Slots { phase, in_use, max }),
        }
    }

    fn take(&mut self) -> Result<(), Rule> {
        self.check()?;
        self.in_use += 1;
        Ok(())
    }
}
