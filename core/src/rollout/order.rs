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
use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use super::fleet::{Fleet, Job, Jobs, Node, Service, Stage};
use super::ledger::Ledger;
use super::policy::{OrderKey, RolloutPolicy};
use super::units::{Unit, Units};

/// The end of the work on a node, from the earliest to the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WorkEnd {
    Idle,
    At(Timestamp),
    Never,
    Unknown,
}

/// The room of the budgets for a candidate, with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Room {
    /// The budgets let the serving nodes leave.
    Free,
    /// No node serves.
    NotNeeded,
    /// The budgets refuse.
    Full,
}

/// The class of a candidate. Blocks whose first nodes have different classes never follow each other
/// for a common job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Class {
    room: Room,
    /// The node runs or goes to the superseded revision.
    is_superseded: bool,
}

/// A candidate with the facts that the sort compares many times.
struct Candidate<'a> {
    node: &'a Node,
    class: Class,
    last: Option<&'a Job>,
    end: WorkEnd,
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
    let mut candidates = list_candidates(fleet, units, ledger);
    // Fleets are read in the order of the names, so the first sort moves no candidate.
    candidates.sort_by(compare_names);
    candidates.sort_by(|a, b| compare_candidates(policy, a, b));
    let blocks = form_blocks(&candidates, units);
    let keys = |class: Class, block: &Block<'a>| {
        let jobs = block.jobs().into_iter();
        jobs.map(move |job| (class, job))
    };
    let mut of_job: HashMap<(Class, &str), Vec<usize>> = HashMap::new();
    for (position, (class, block)) in blocks.iter().enumerate() {
        for key in keys(*class, block) {
            of_job.entry(key).or_default().push(position);
        }
    }
    let mut order = Vec::with_capacity(blocks.len());
    for (position, (class, block)) in blocks.iter().enumerate() {
        let mates = keys(*class, block).flat_map(|key| of_job.remove(&key).unwrap_or_default());
        let mates: BTreeSet<usize> = mates.collect();
        order.extend(std::iter::once(position).chain(mates));
    }
    let blocks = blocks.into_iter().map(|(_, block)| Some(block));
    let mut left: Vec<Option<Block<'a>>> = blocks.collect();
    let taken = order
        .into_iter()
        .filter_map(|position| left[position].take());
    taken.collect()
}

/// Joins the candidates of each unit at the place of the first. A block has the class of its first
/// candidate.
fn form_blocks<'a>(candidates: &[Candidate<'a>], units: &Units<'a>) -> Vec<(Class, Block<'a>)> {
    let mut blocks: Vec<(Class, Block<'a>)> = Vec::with_capacity(candidates.len());
    let mut of_unit: HashMap<&str, usize> = HashMap::new();
    for Candidate { node, class, .. } in candidates {
        let unit = units.of(node);
        let known = unit.and_then(|unit| of_unit.get(unit.id.as_str()));
        if let Some(position) = known {
            blocks[*position].1.nodes.push(node);
            continue;
        }
        if let Some(unit) = unit {
            of_unit.insert(&unit.id, blocks.len());
        }
        let block = Block {
            unit: unit.cloned(),
            nodes: vec![node],
        };
        blocks.push((*class, block));
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

/// Lists the nodes that wait or have not begun, in the order of the fleet.
fn list_candidates<'a>(fleet: &'a Fleet, units: &Units<'a>, ledger: &Ledger) -> Vec<Candidate<'a>> {
    let mut of_unit: HashMap<&str, Room> = HashMap::new();
    let mut find = |node: &Node| match units.of(node) {
        Some(unit) => *of_unit
            .entry(&unit.id)
            .or_insert_with(|| find_room(ledger, &list_together(unit))),
        None => find_room(ledger, &[node]),
    };
    let nodes = fleet.nodes.iter().filter(is_candidate);
    let candidates = nodes.map(|node| {
        let class = Class {
            room: find(node),
            is_superseded: is_superseded(fleet, node),
        };
        Candidate::new(node, class)
    });
    candidates.collect()
}

/// Returns the room of the budgets for nodes that leave together.
fn find_room(ledger: &Ledger, nodes: &[&Node]) -> Room {
    let serves = |node: &&Node| node.member.service == Service::Serving;
    match nodes.iter().any(serves) {
        false => Room::NotNeeded,
        true if has_room(ledger, nodes) => Room::Free,
        true => Room::Full,
    }
}

/// Returns whether the budgets let all nodes leave service together.
fn has_room(ledger: &Ledger, nodes: &[&Node]) -> bool {
    let members = nodes.iter().map(|node| &node.member);
    ledger.check_all(members).is_ok()
}

/// Returns whether the budgets let a node leave service, with the candidates of its unit.
pub(super) fn has_room_for(ledger: &Ledger, units: &Units<'_>, node: &Node) -> bool {
    has_room(ledger, &find_together(units, node))
}

/// Returns the candidates of a node's unit, or the node alone.
pub(super) fn find_together<'a>(units: &Units<'a>, node: &'a Node) -> Vec<&'a Node> {
    match units.of(node) {
        Some(unit) => list_together(unit),
        None => vec![node],
    }
}

/// Returns the candidates of a unit.
fn list_together<'a>(unit: &Unit<'a>) -> Vec<&'a Node> {
    unit.nodes.iter().copied().filter(is_candidate).collect()
}

/// Returns whether a node waits or has not begun.
fn is_candidate(node: &&Node) -> bool {
    matches!(node.stage, Stage::Waiting | Stage::NotBegun)
}

impl<'a> Candidate<'a> {
    fn new(node: &'a Node, class: Class) -> Self {
        let last = node.jobs.last();
        let end = match (&node.jobs, last) {
            (Jobs::Unknown, _) => WorkEnd::Unknown,
            (Jobs::Known(_), None) => WorkEnd::Idle,
            (Jobs::Known(_), Some(job)) => job.ends.map_or(WorkEnd::Never, WorkEnd::At),
        };
        Self {
            node,
            class,
            last,
            end,
        }
    }

    /// Returns the place before the sort keys of the policy.
    fn rank(&self) -> (bool, Room, bool) {
        let Class {
            room,
            is_superseded,
        } = self.class;
        (self.node.stage != Stage::Waiting, room, !is_superseded)
    }
}

fn compare_names(a: &Candidate<'_>, b: &Candidate<'_>) -> Ordering {
    let by_name = a.node.name.cmp(&b.node.name);
    by_name.then_with(|| a.node.member.node.cmp(&b.node.member.node))
}

/// Compares candidates by rank and by the keys of the policy. Equal candidates stay in the order of
/// their names.
fn compare_candidates(policy: &RolloutPolicy, a: &Candidate<'_>, b: &Candidate<'_>) -> Ordering {
    let by_key = || {
        let orders = policy.order.iter().map(|key| compare(key, a, b));
        orders.fold(Ordering::Equal, Ordering::then)
    };
    let by_rank = a.rank().cmp(&b.rank());
    by_rank
        .then_with(by_key)
        .then_with(|| a.end.cmp(&b.end))
        .then_with(|| a.last.cmp(&b.last))
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
