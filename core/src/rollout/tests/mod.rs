//! Fleets and policies for the tests, and a small model of the world that applies plans.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::*;
use crate::effects::Effect;
use crate::ids::{NodeId, ObjectId};

mod eta; // The estimated end
mod exhaustive; // Every state of small worlds
mod generated; // Generated fleets, with random events
mod ledger; // Budgets, domains and the members that count
mod links; // Network links of sites
mod losses; // GPU-hours lost by waiting
mod notices; // Notices to users
mod numbers; // Numbers of waves
mod planning; // Waves, canary, order, drains, verdicts
mod reasons; // Reasons of nodes, shown by a plan
mod seats; // Places of waiting nodes
mod together; // Nodes of a job
mod traps; // The traps of other engines, by number
mod units; // Nodes changed together
mod windows; // Windows across changes of summer time
mod world; // The model of the world

const TARGET: RevisionNumber = RevisionNumber(2);
const BEFORE: RevisionNumber = RevisionNumber(1);
const SITE: ObjectId = ObjectId(Uuid::nil());

fn start() -> Timestamp {
    "2026-11-26T08:00:00Z".parse().unwrap()
}

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

fn id(number: usize) -> NodeId {
    NodeId(Uuid::from_u128(number as u128))
}

/// A serving, idle node that needs a reboot.
fn node(number: usize) -> Node {
    Node {
        member: member(number),
        name: format!("n{number}"),
        site: SITE,
        rack: None,
        labels: BTreeMap::new(),
        stage: Stage::NotBegun,
        since: start(),
        runs: Some(BEFORE),
        going_to: Some(BEFORE),
        effect: Effect::Reboot,
        transfer_bytes: 1_000_000_000,
        jobs: Jobs::Known(Vec::new()),
        wrong: Vec::new(),
        failed_before: false,
        requeue_agreed: false,
        gpus: Some(8),
        idle_since: None,
        announced_for: None,
        notified: BTreeSet::new(),
        condition: Condition::default(),
    }
}

fn member(number: usize) -> Member {
    Member {
        node: id(number),
        in_pool: true,
        domains: BTreeSet::new(),
        service: Service::Serving,
        others_drain: None,
        written_off_until: None,
    }
}

/// A running rollout over serving, idle nodes, with room for every node.
fn fleet(count: usize) -> Fleet {
    Fleet {
        target: TARGET,
        supersedes: None,
        control: Control::Running,
        promoted: false,
        planned: count as u32,
        since: start(),
        window: Opening::Open { until: None },
        closed: Vec::new(),
        frozen_until: None,
        signals: Vec::new(),
        silent: None,
        failed_and_left: 0,
        budget: Budget {
            max_unavailable: Amount::Count(1000),
            domains: Vec::new(),
        },
        links: BTreeMap::new(),
        durations_s: Vec::new(),
        nodes: (0..count).map(node).collect(),
        neighbours: Vec::new(),
    }
}

/// A policy without a canary: a single wave, and slots for every node.
fn policy() -> RolloutPolicy {
    RolloutPolicy {
        canary: None,
        waves: Waves::Sizes(Vec::new()),
        budgets: Budgets {
            max_waiting: Amount::Count(1000),
            max_changing: Amount::Count(1000),
            max_validating: Amount::Count(1000),
        },
        failure_budget: FailureBudget {
            count: Some(1000),
            percent: None,
        },
        ..RolloutPolicy::default()
    }
}

fn domain(id: &str, max: u32) -> Domain {
    Domain {
        id: id.to_owned(),
        axis: "rack".to_owned(),
        max_unavailable: Amount::Count(max),
        whole: false,
    }
}

/// A domain that is a unit of change.
fn whole(id: &str, max: u32) -> Domain {
    Domain {
        whole: true,
        ..domain(id, max)
    }
}

fn job(id: &str, ends: Option<Timestamp>) -> Job {
    Job {
        ends,
        id: id.to_owned(),
        holder: "alice".to_owned(),
        requeues: true,
    }
}

/// A job that ends some minutes after the start of the test.
fn job_for(id: &str, count: i64) -> Jobs {
    Jobs::Known(vec![job(id, Some(start() + minutes(count)))])
}

fn out(mut node: Node) -> Node {
    node.member.service = Service::Out;
    node
}

fn staged(number: usize, stage: Stage) -> Node {
    let mut node = node(number);
    let serves = matches!(
        stage,
        Stage::NotBegun | Stage::Waiting | Stage::Done { .. } | Stage::Skipped
    );
    if !serves {
        node.member.service = Service::Taken;
    }
    node.stage = stage;
    node
}

fn done(number: usize) -> Node {
    Node {
        runs: Some(TARGET),
        effect: Effect::None,
        ..staged(number, Stage::Done { changed: true })
    }
}

/// The acts of a plan on a node, by code.
fn acts(plan: &Plan, number: usize) -> Vec<&'static str> {
    let on_node = plan
        .actions
        .iter()
        .filter(|action| action.node == id(number));
    on_node.map(|action| action.act.code()).collect()
}

/// The nodes that a plan closes.
fn closed(plan: &Plan) -> Vec<NodeId> {
    let closes = |action: &&Action| matches!(action.act, Act::Close { .. });
    plan.actions
        .iter()
        .filter(closes)
        .map(|action| action.node)
        .collect()
}

/// The code of the rule that keeps a node from going on.
fn why(plan: &Plan, number: usize) -> Option<&'static str> {
    let placement = plan
        .placements
        .iter()
        .find(|place| place.node == id(number));
    placement.unwrap().why.as_ref().map(Rule::code)
}

fn mark(plan: &Plan, number: usize) -> Mark {
    plan.placements
        .iter()
        .find(|place| place.node == id(number))
        .unwrap()
        .mark
}
