//! The order in which nodes are taken. Nodes that wait already come first, then the nodes of the
//! superseded revision, then the sort keys of the policy. Nodes of the same job stay together.

use std::cmp::Ordering;

use jiff::Timestamp;

use super::fleet::{Fleet, Jobs, Node, Stage};
use super::policy::{OrderKey, RolloutPolicy};

/// The end of the work on a node, from the earliest to the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WorkEnd {
    Idle,
    At(Timestamp),
    Never,
    Unknown,
}

/// Returns the nodes that wait or have not begun, in order.
pub(super) fn sort_candidates<'a>(policy: &RolloutPolicy, fleet: &'a Fleet) -> Vec<&'a Node> {
    let is_candidate = |node: &&Node| matches!(node.stage, Stage::Waiting | Stage::NotBegun);
    let mut nodes: Vec<&Node> = fleet.nodes.iter().filter(is_candidate).collect();
    let rank = |node: &Node| {
        let superseded = fleet
            .supersedes
            .is_some_and(|bad| node.runs == Some(bad) || node.going_to == Some(bad));
        (node.stage != Stage::Waiting, !superseded)
    };
    nodes.sort_by(|a, b| {
        let by_key = || {
            let orders = policy.order.iter().map(|key| compare(key, a, b));
            orders.fold(Ordering::Equal, Ordering::then)
        };
        rank(a)
            .cmp(&rank(b))
            .then_with(by_key)
            .then_with(|| work_end(a).cmp(&work_end(b)))
            .then_with(|| a.jobs.last().cmp(&b.jobs.last()))
            .then_with(|| (&a.name, a.member.node).cmp(&(&b.name, b.member.node)))
    });
    nodes
}

fn compare(key: &OrderKey, a: &Node, b: &Node) -> Ordering {
    let is_busy = |node: &Node| work_end(node) != WorkEnd::Idle;
    match key {
        OrderKey::IdleFirst => is_busy(a).cmp(&is_busy(b)),
        OrderKey::JobEnd => work_end(a).cmp(&work_end(b)),
        OrderKey::Rack => compare_present(a.rack.as_ref(), b.rack.as_ref()),
        OrderKey::Label(label) => compare_present(a.labels.get(label), b.labels.get(label)),
    }
}

/// Compares values; a missing value comes last.
fn compare_present(a: Option<&String>, b: Option<&String>) -> Ordering {
    (a.is_none(), a).cmp(&(b.is_none(), b))
}

fn work_end(node: &Node) -> WorkEnd {
    match (&node.jobs, node.jobs.last()) {
        (Jobs::Unknown, _) => WorkEnd::Unknown,
        (Jobs::Known(_), None) => WorkEnd::Idle,
        (Jobs::Known(_), Some(job)) => job.ends.map_or(WorkEnd::Never, WorkEnd::At),
    }
}
