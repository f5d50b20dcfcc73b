//! The order in which nodes are taken. Nodes that wait already come first, then serving nodes that the
//! budgets let leave, then nodes out of service: such a node may fail again, and as the canary would
//! halt the way back. Serving nodes that the budgets refuse come last: the slots may be those of the
//! nodes out of service. In each class the nodes of the superseded revision come first, then the sort
//! keys of the policy hold. The nodes of a unit are taken as a single block, at the place of the first.
//!
//! Nodes with the same last job follow the first such node, regardless of the sort keys, because the job
//! ends on all nodes at the same time. As many as the slots admit are taken. A job on more nodes than
//! slots therefore blocks no slot, and the other nodes of the job wait for the next free slots. Nodes of
//! the superseded revision follow each other only, so the worst revision still comes first. So do nodes
//! with the same room in the budgets.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::fleet::{Fleet, Job, Jobs, Member, Node, Service, Stage};
use super::ledger::Ledger;
use super::policy::{OrderKey, RolloutPolicy};
use super::units::{Unit, Units};
use crate::ids::NodeId;

/// The end of the work on a node, from the earliest to the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WorkEnd {
    Idle,
    At(Timestamp),
    Never,
    Unknown,
}

/// The room of the budgets for a candidate, with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Room {
    /// The budgets let the serving nodes leave.
    Free,
    /// No node serves.
    NotNeeded,
    /// The budgets refuse.
    Full,
}

/// Nodes that are taken together: a single node, or the candidates of a unit.
#[derive(Clone, Debug)]
pub(super) struct Block<'a> {
    pub unit: Option<Unit<'a>>,
    pub nodes: Vec<&'a Node>,
}

/// Returns the nodes that wait or have not begun, in order.
pub(super) fn sort_candidates<'a>(
    policy: &RolloutPolicy,
    fleet: &'a Fleet,
    units: &Units<'a>,
    ledger: &Ledger,
) -> Vec<Block<'a>> {
    let rooms = find_rooms(fleet, units, ledger);
    let blocks = form_blocks(sort_nodes(policy, fleet, &rooms), units);
    let keys = |block: &Block<'a>| {
        let first = block.nodes[0];
        let is_superseded = is_superseded(fleet, first);
        let room = rooms[&first.member.node];
        let jobs = block.jobs().into_iter();
        jobs.map(move |job| (room, is_superseded, job))
    };
    let mut of_job: BTreeMap<(Room, bool, &str), Vec<usize>> = BTreeMap::new();
    for (position, block) in blocks.iter().enumerate() {
        for key in keys(block) {
            of_job.entry(key).or_default().push(position);
        }
    }
    let mut order = Vec::with_capacity(blocks.len());
    for (position, block) in blocks.iter().enumerate() {
        let mates = keys(block).flat_map(|key| of_job.remove(&key).unwrap_or_default());
        let mates: BTreeSet<usize> = mates.collect();
        order.extend(std::iter::once(position).chain(mates));
    }
    let mut left: Vec<Option<Block<'a>>> = blocks.into_iter().map(Some).collect();
    let taken = order
        .into_iter()
        .filter_map(|position| left[position].take());
    taken.collect()
}

/// Joins the candidates of each unit at the place of the first.
fn form_blocks<'a>(nodes: Vec<&'a Node>, units: &Units<'a>) -> Vec<Block<'a>> {
    let mut blocks: Vec<Block<'a>> = Vec::new();
    let mut of_unit: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes {
        let unit = units.of(node);
        let known = unit.and_then(|unit| of_unit.get(unit.id.as_str()));
        if let Some(position) = known {
            blocks[*position].nodes.push(node);
            continue;
        }
        if let Some(unit) = unit {
            of_unit.insert(&unit.id, blocks.len());
        }
        blocks.push(Block {
            unit: unit.cloned(),
            nodes: vec![node],
        });
    }
    blocks
}

impl<'a> Block<'a> {
    /// Returns the last job of each node, each job once.
    fn jobs(&self) -> Vec<&'a str> {
        let last = self.nodes.iter().filter_map(|node| node.jobs.last());
        let mut jobs: Vec<&str> = last.map(|job| job.id.as_str()).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }
}

/// Returns whether a node runs or goes to the superseded revision.
fn is_superseded(fleet: &Fleet, node: &Node) -> bool {
    fleet
        .supersedes
        .is_some_and(|bad| node.runs == Some(bad) || node.going_to == Some(bad))
}

/// Returns the room of each candidate.
fn find_rooms(fleet: &Fleet, units: &Units<'_>, ledger: &Ledger) -> BTreeMap<NodeId, Room> {
    let mut of_unit: BTreeMap<&str, Room> = BTreeMap::new();
    let find = |node: &Node| {
        let together = find_together(units, node);
        match (are_out(&together), has_room(ledger, &together)) {
            (true, _) => Room::NotNeeded,
            (false, true) => Room::Free,
            (false, false) => Room::Full,
        }
    };
    let candidates = fleet.nodes.iter().filter(is_candidate);
    let rooms = candidates.map(|node| {
        let room = match units.of(node) {
            Some(unit) => *of_unit.entry(&unit.id).or_insert_with(|| find(node)),
            None => find(node),
        };
        (node.member.node, room)
    });
    rooms.collect()
}

/// Returns whether the budgets let all nodes leave service together.
pub(super) fn has_room(ledger: &Ledger, nodes: &[&Node]) -> bool {
    let members: Vec<&Member> = nodes.iter().map(|node| &node.member).collect();
    ledger.check_all(&members).is_ok()
}

/// Returns the candidates of a node's unit, or the node alone.
pub(super) fn find_together<'a>(units: &Units<'a>, node: &'a Node) -> Vec<&'a Node> {
    match units.of(node) {
        Some(unit) => unit.nodes.iter().copied().filter(is_candidate).collect(),
        None => vec![node],
    }
}

/// Returns whether no node serves.
fn are_out(nodes: &[&Node]) -> bool {
    let serves = |node: &&Node| node.member.service == Service::Serving;
    !nodes.iter().any(serves)
}

/// Returns whether a node waits or has not begun.
fn is_candidate(node: &&Node) -> bool {
    matches!(node.stage, Stage::Waiting | Stage::NotBegun)
}

fn sort_nodes<'a>(
    policy: &RolloutPolicy,
    fleet: &'a Fleet,
    rooms: &BTreeMap<NodeId, Room>,
) -> Vec<&'a Node> {
    let rank = |node: &'a Node| {
        (
            node.stage != Stage::Waiting,
            rooms[&node.member.node],
            !is_superseded(fleet, node),
        )
    };
    let candidates = fleet.nodes.iter().filter(is_candidate);
    let mut nodes: Vec<_> = candidates
        .map(|node| (rank(node), Candidate::new(node)))
        .collect();
    nodes.sort_unstable_by(|(rank_a, a), (rank_b, b)| {
        let by_key = || {
            let orders = policy.order.iter().map(|key| compare(key, a, b));
            orders.fold(Ordering::Equal, Ordering::then)
        };
        let name = |one: &Candidate<'a>| (&one.node.name, one.node.member.node);
        rank_a
            .cmp(rank_b)
            .then_with(by_key)
            .then_with(|| a.end.cmp(&b.end))
            .then_with(|| a.last.cmp(&b.last))
            .then_with(|| name(a).cmp(&name(b)))
    });
    nodes.into_iter().map(|(_, one)| one.node).collect()
}

/// A candidate with the facts of its last job, which a sort compares many times.
struct Candidate<'a> {
    node: &'a Node,
    last: Option<&'a Job>,
    end: WorkEnd,
}

impl<'a> Candidate<'a> {
    fn new(node: &'a Node) -> Self {
        let last = node.jobs.last();
        let end = match (&node.jobs, last) {
            (Jobs::Unknown, _) => WorkEnd::Unknown,
            (Jobs::Known(_), None) => WorkEnd::Idle,
            (Jobs::Known(_), Some(job)) => job.ends.map_or(WorkEnd::Never, WorkEnd::At),
        };
        Self { node, last, end }
    }
}

fn compare(key: &OrderKey, a: &Candidate<'_>, b: &Candidate<'_>) -> Ordering {
    let is_busy = |one: &Candidate<'_>| one.end != WorkEnd::Idle;
    match key {
        OrderKey::IdleFirst => is_busy(a).cmp(&is_busy(b)),
        OrderKey::JobEnd => a.end.cmp(&b.end),
        OrderKey::Rack => compare_present(a.node.rack.as_ref(), b.node.rack.as_ref()),
        OrderKey::Label(key) => compare_present(a.node.labels.get(key), b.node.labels.get(key)),
    }
}

/// Compares values; a missing value comes last.
fn compare_present(a: Option<&String>, b: Option<&String>) -> Ordering {
    (a.is_none(), a).cmp(&(b.is_none(), b))
}
