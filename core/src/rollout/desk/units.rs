//! Steps of the nodes of a unit, taken together: all nodes begin in the same call or none, and no
//! change starts before the last node is drained. While unchanged, the whole unit is given back if a
//! node cannot go on.

use super::{Desk, close, count};
use crate::effects::Effect;
use crate::rollout::action::{Act, Because};
use crate::rollout::condition::find_obstacle;
use crate::rollout::fleet::{Change, Member, Node, Service, Stage};
use crate::rollout::jobs::{Exit, judge_jobs};
use crate::rollout::ledger::Slot;
use crate::rollout::rule::{Hindrance, Rule};
use crate::rollout::started::Next;
use crate::rollout::units::{Unit, Units, is_closing};

/// Nodes with their next steps.
type Steps<'b> = Vec<(&'b Node, Next)>;

impl Desk<'_> {
    /// Returns the next step of a changing or validating node. For a closed, unchanged node of a unit,
    /// returns the steps of all closed, waiting and not begun nodes of the unit.
    pub(in crate::rollout) fn go_on<'b>(&mut self, units: &Units<'b>, node: &'b Node) -> Steps<'b> {
        let step = |node: &'b Node| {
            let next = self.started.get(&node.member.node);
            (node, next.cloned().unwrap_or(Next::Run))
        };
        match units.of(node) {
            Some(unit) if is_closing(node) => {
                let closing = unit.nodes.iter().copied().filter(|node| is_closing(node));
                let closing = closing.map(step).collect();
                self.go_on_together(unit, closing)
            }
            Some(_) | None => vec![step(node)],
        }
    }

    /// Returns the steps of the nodes of a unit that are closed and unchanged, and of the nodes still
    /// to be closed.
    fn go_on_together<'b>(&mut self, unit: &Unit<'b>, mut closing: Steps<'b>) -> Steps<'b> {
        if self.view().find_return().is_some() {
            return closing;
        }
        let is_open = |node: &&Node| matches!(node.stage, Stage::NotBegun | Stage::Waiting);
        let open: Vec<&Node> = unit.nodes.iter().copied().filter(is_open).collect();
        let hindrance = self.find_hindrance(unit);
        let mut steps = self.enter_unit(unit, &open);
        let rule = hindrance.or_else(|| find_laggard(unit, &steps));
        let is_closed = |next: &Next| matches!(next, Next::Act(Act::Close { .. }, _));
        let is_draining = |(_, next): &&(&Node, Next)| *next == Next::Run || is_closed(next);
        let draining = closing.iter().chain(&steps).find(is_draining);
        let draining = draining.map(|(node, _)| hinder(unit, node, Hindrance::Drains));
        for (_, next) in closing.iter_mut().filter(|(_, next)| goes_on(next)) {
            if let Some(rule) = &rule {
                *next = self.give_back(rule.clone());
            } else if let Some(rule) = &draining
                && *next != Next::Run
            {
                *next = Next::Hold(rule.clone());
            }
        }
        closing.append(&mut steps);
        closing
    }

    /// Returns the next steps of the waiting and not begun nodes of a unit.
    pub(super) fn enter_unit<'b>(&mut self, unit: &Unit<'b>, nodes: &[&'b Node]) -> Steps<'b> {
        let of_all = |nodes: &[&'b Node], next: &dyn Fn(&Node) -> Next| {
            nodes.iter().map(|node| (*node, next(node))).collect()
        };
        match &self.stop {
            Some(Rule::Superseded) => {
                let next = Next::Act(Act::Skip, Because::Superseded);
                return of_all(nodes, &|_| next.clone());
            }
            Some(rule @ (Rule::Halted(_) | Rule::Frozen { .. })) => {
                return of_all(nodes, &|node| self.leave(node, rule.clone()));
            }
            Some(rule) => return of_all(nodes, &|_| Next::Hold(rule.clone())),
            None => {}
        }
        let mut steps = Vec::new();
        let mut open = Vec::new();
        for node in nodes {
            match self.refuse(node) {
                Some(next) => steps.push((*node, next)),
                None => open.push(*node),
            }
        }
        let refused = || {
            let mut ids = nodes.iter().map(|node| &node.member.node);
            ids.find_map(|id| self.refused.get(id).cloned())
        };
        let rest = match self.find_hindrance(unit).or_else(refused) {
            Some(rule) => of_all(&open, &|node| {
                let own = find_obstacle(node, self.now);
                self.leave(node, own.unwrap_or_else(|| rule.clone()))
            }),
            None => self.begin_together(unit, &open),
        };
        steps.extend(rest);
        steps
    }

    /// Closes all nodes of a unit, or lets all wait for their jobs.
    fn begin_together<'b>(&mut self, unit: &Unit<'b>, nodes: &[&'b Node]) -> Steps<'b> {
        let hold = |rule: &Rule| -> Steps<'b> {
            let hold = |node: &&'b Node| (*node, Next::Hold(rule.clone()));
            nodes.iter().map(hold).collect()
        };
        let is_admitted = unit.is_admitted();
        if !is_admitted && let Err(rule) = self.admission.check(nodes) {
            return hold(&rule);
        }
        let judge = |node: &&'b Node| judge_jobs(self.policy, node, self.hours);
        let exits: Vec<Exit> = nodes.iter().map(judge).collect();
        if exits.contains(&Exit::Skip) {
            let skip = Next::Act(Act::Skip, Because::DrainDeadline);
            return nodes.iter().map(|node| (*node, skip.clone())).collect();
        }
        let steps = match find_late(nodes, &exits) {
            Some((late, rule)) => self.wait_together(unit, nodes, &exits, late, rule),
            None => match self.take_out_together(unit, nodes) {
                Ok(slots) => close_together(nodes, slots, exits),
                Err(rule) => hold(&rule),
            },
        };
        let begins = |(_, next): &(&Node, Next)| matches!(next, Next::Act(..));
        if !is_admitted && steps.iter().any(begins) {
            self.admission.take(count(nodes));
        }
        steps
    }

    /// Lets all nodes of a unit wait if a job is the only reason. Holds the nodes otherwise.
    fn wait_together<'b>(
        &mut self,
        unit: &Unit<'b>,
        nodes: &[&'b Node],
        exits: &[Exit],
        late: &Node,
        rule: &Rule,
    ) -> Steps<'b> {
        let of_unit = hinder(unit, late, Hindrance::Rule(Box::new(rule.clone())));
        let is_new = |node: &&&Node| node.stage == Stage::NotBegun;
        let waits = matches!(rule, Rule::Job(_));
        let new = u32::try_from(nodes.iter().filter(is_new).count()).unwrap_or(u32::MAX);
        let full = match waits {
            true => self.waiting.take(new).err(),
            false => None,
        };
        let full = full.map(|full| limit(unit, new, full));
        let step = |(node, exit): (&&'b Node, &Exit)| {
            let rule = match exit {
                Exit::Hold(rule) => rule.clone(),
                Exit::Close { .. } | Exit::Skip => of_unit.clone(),
            };
            let next = match &full {
                _ if !waits || node.stage == Stage::Waiting => Next::Hold(rule),
                Some(full) => Next::Hold(full.clone()),
                None => Next::Act(Act::Wait, Because::Rule(rule)),
            };
            (*node, next)
        };
        nodes.iter().zip(exits).map(step).collect()
    }

    /// Takes changing slots, slots of the ledger and parts of the links for all nodes, or none.
    pub(super) fn take_out_together(
        &mut self,
        unit: &Unit<'_>,
        nodes: &[&Node],
    ) -> Result<Vec<Slot>, Rule> {
        let needed = count(nodes);
        let refuse = |rule| limit(unit, needed, rule);
        self.changing.check(needed).map_err(refuse)?;
        // The rest of a unit follows the closed nodes, whatever its size.
        if !unit.nodes.iter().any(|node| is_closing(node)) {
            let link = self.links.check(nodes).map_err(Rule::Link);
            link.map_err(refuse)?;
        }
        let members: Vec<&Member> = nodes.iter().map(|node| &node.member).collect();
        let slots = self.ledger.take_all(&members);
        let slots = slots.map_err(|refusal| refuse(Rule::Budget(refusal)))?;
        self.changing.take(needed)?;
        self.links.take(nodes);
        Ok(slots)
    }

    /// Returns the rule by which the first node keeps the unit back.
    pub(super) fn find_hindrance(&self, unit: &Unit<'_>) -> Option<Rule> {
        unit.nodes
            .iter()
            .find_map(|node| Some(hinder(unit, node, self.judge_member(node)?)))
    }

    /// Returns the way in which a node keeps its unit back, jobs and limits aside.
    fn judge_member(&self, node: &Node) -> Option<Hindrance> {
        let needs_change = node.effect != Effect::None;
        match &node.stage {
            Stage::Skipped => needs_change.then_some(Hindrance::Skipped),
            Stage::Failed => {
                let serves = node.member.service == Service::Serving;
                (serves && needs_change).then_some(Hindrance::Failed)
            }
            Stage::NotBegun | Stage::Waiting => match self.refuse(node) {
                Some(Next::Act(Act::Skip, _)) => Some(Hindrance::Skipped),
                Some(Next::Act(..) | Next::Hold(_) | Next::Run) => None,
                None => {
                    let rule = find_obstacle(node, self.now)?;
                    Some(Hindrance::Rule(Box::new(rule)))
                }
            },
            Stage::Changing(Change::Draining | Change::Drained) => {
                match self.started.get(&node.member.node)? {
                    Next::Run | Next::Act(Act::Change { .. }, _) => None,
                    Next::Hold(rule) | Next::Act(_, Because::Rule(rule)) => {
                        Some(Hindrance::Rule(Box::new(rule.clone())))
                    }
                    Next::Act(..) => Some(Hindrance::DrainEnded),
                }
            }
            Stage::Changing(Change::DrainFailed { .. } | Change::DrainCancelled) => {
                Some(Hindrance::DrainEnded)
            }
            Stage::Changing(Change::Working | Change::Arrived | Change::Wrong { .. })
            | Stage::Validating(_)
            | Stage::Done { .. } => None,
        }
    }

    /// Gives a waiting node back, and holds a node that has not begun.
    fn leave(&self, node: &Node, rule: Rule) -> Next {
        match node.stage == Stage::Waiting {
            true => self.give_back(rule),
            false => Next::Hold(rule),
        }
    }
}

/// Returns whether the step of a closed, unchanged node leads to the change.
fn goes_on(next: &Next) -> bool {
    matches!(next, Next::Run | Next::Act(Act::Change { .. }, _))
}

/// Returns the rule by which a node not closed in this call keeps the closed nodes of the unit back.
fn find_laggard(unit: &Unit<'_>, steps: &[(&Node, Next)]) -> Option<Rule> {
    steps.iter().find_map(|(node, next)| match next {
        Next::Hold(rule) | Next::Act(Act::Wait, Because::Rule(rule)) => Some(rule.clone()),
        Next::Act(Act::Skip, _) => Some(hinder(unit, node, Hindrance::Skipped)),
        Next::Act(..) | Next::Run => None,
    })
}

/// Returns the first node that cannot be closed now, a node with jobs last.
fn find_late<'b, 'e>(nodes: &[&'b Node], exits: &'e [Exit]) -> Option<(&'b Node, &'e Rule)> {
    let holds = || {
        let pairs = nodes.iter().zip(exits);
        pairs.filter_map(|(node, exit)| match exit {
            Exit::Hold(rule) => Some((*node, rule)),
            Exit::Close { .. } | Exit::Skip => None,
        })
    };
    let is_job = |(_, rule): &(&Node, &Rule)| matches!(rule, Rule::Job(_));
    holds()
        .find(|hold| !is_job(hold))
        .or_else(|| holds().next())
}

fn close_together<'b>(nodes: &[&'b Node], slots: Vec<Slot>, exits: Vec<Exit>) -> Steps<'b> {
    let pairs = nodes.iter().zip(slots).zip(exits);
    let step = |((node, slot), exit): ((&&'b Node, Slot), Exit)| match exit {
        Exit::Close { requeue, because } => Some((*node, close(slot, requeue, because))),
        Exit::Skip | Exit::Hold(_) => None,
    };
    pairs.filter_map(step).collect()
}

fn hinder(unit: &Unit<'_>, node: &Node, why: Hindrance) -> Rule {
    Rule::Unit {
        unit: unit.id.clone(),
        node: node.name.clone(),
        why,
    }
}

fn limit(unit: &Unit<'_>, nodes: u32, rule: Rule) -> Rule {
    Rule::UnitLimit {
        unit: unit.id.clone(),
        nodes,
        limit: Box::new(rule),
    }
}
