//! The places of waiting nodes. A node that waits counts as begun, so the canary or the wave may admit
//! no further node. When the budgets refuse every waiting node because nodes are out of service, the
//! rollout would stand still. Waiting nodes are then given back, if another node would begin in their
//! place: a failed node, which needs no slot, or a serving node with room in its failure domains.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Desk;
use crate::ids::NodeId;
use crate::rollout::action::Act;
use crate::rollout::fleet::{Fleet, HaltReason, Member, Node, Service, Stage};
use crate::rollout::ledger::Ledger;
use crate::rollout::order::{find_together, has_room_for, sort_candidates};
use crate::rollout::rule::Rule;
use crate::rollout::started::Next;
use crate::rollout::units::Units;

/// The first node to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// A node that the budgets admit, and that was not given back.
    Admitted,
    /// A node that would wait, perhaps for ever: given back just now, or refused by the budgets.
    Refused,
}

impl Desk<'_> {
    /// Notes the waiting nodes to be given back: the last of the waiting nodes, or all if the place of
    /// the last admits no other node.
    pub(in crate::rollout) fn give_places(&mut self, fleet: &Fleet, halt: Option<&HaltReason>) {
        if self.stop.is_some() || self.changing.in_use > 0 || self.validating.in_use > 0 {
            return;
        }
        let waits = |node: &&Node| node.stage == Stage::Waiting;
        if !fleet.nodes.iter().any(|node| waits(&node)) {
            return;
        }
        let settled = settle(fleet, self.now);
        let is_refused = |node: &Node| !has_room_for(&settled, self.units, node);
        if !fleet.nodes.iter().filter(waits).all(is_refused) {
            return;
        }
        let blocks = sort_candidates(self.policy, fleet, self.units, &self.ledger);
        let waiting = blocks.iter().map(|block| {
            let nodes = block.nodes.iter().copied().filter(waits);
            nodes.collect::<Vec<&Node>>()
        });
        let waiting: Vec<Vec<&Node>> = waiting.filter(|nodes| !nodes.is_empty()).collect();
        let last = waiting.last().cloned().unwrap_or_default();
        // A node that begins now needs no place of another.
        if self.find_first(fleet, halt, &[]).is_some() {
            return;
        }
        let mut attempts = [last, waiting.concat()].into_iter();
        let is_replaced =
            |given: &Vec<&Node>| self.find_first(fleet, halt, given) == Some(First::Admitted);
        if let Some(given) = attempts.find(is_replaced) {
            let refused = given.iter().filter_map(|node| self.refuse_place(node));
            self.refused = refused.collect();
        }
    }

    /// Returns the refusal of the budgets for a node, with its unit.
    fn refuse_place(&self, node: &Node) -> Option<(NodeId, Rule)> {
        let together = find_together(self.units, node);
        let members = together.iter().map(|node| &node.member);
        let refusal = self.ledger.check_all(members).err()?;
        Some((node.member.node, Rule::Budget(refusal)))
    }

    /// Returns the first node to begin, once some nodes are given back; `None` if no node begins.
    fn find_first(
        &self,
        fleet: &Fleet,
        halt: Option<&HaltReason>,
        given: &[&Node],
    ) -> Option<First> {
        let given: BTreeSet<NodeId> = given.iter().map(|node| node.member.node).collect();
        let is_given = |node: &Node| given.contains(&node.member.node);
        let mut after = fleet.clone();
        for node in after.nodes.iter_mut().filter(|node| is_given(node)) {
            node.stage = Stage::NotBegun;
        }
        let units = Units::find(&after);
        let mut desk = Desk::open(self.policy, &after, &units, halt, self.now);
        let blocks = sort_candidates(self.policy, &after, &units, &desk.ledger);
        let mut steps = blocks.iter().flat_map(|block| desk.enter(block));
        let begins =
            |(_, next): &(&Node, Next)| matches!(next, Next::Act(Act::Close { .. } | Act::Wait, _));
        let (node, _) = steps.find(begins)?;
        let has_room = has_room_for(&self.ledger, &units, node);
        Some(match !is_given(node) && has_room {
            true => First::Admitted,
            false => First::Refused,
        })
    }
}

/// Opens the ledger as if every node under change, also of other owners, were back in service.
fn settle(fleet: &Fleet, now: Timestamp) -> Ledger {
    let back = |member: &Member| {
        let mut member = member.clone();
        if member.service == Service::Taken {
            member.service = Service::Serving;
        }
        member
    };
    let members: Vec<Member> = fleet.members().map(back).collect();
    Ledger::open(&fleet.budget, &members, now)
}
