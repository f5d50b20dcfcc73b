//! Nodes of a job, taken together when the job ends.

use super::*;

fn with_jobs(jobs: &[&str], ends: i64) -> Fleet {
    let mut fleet = fleet(jobs.len());
    for (node, job) in fleet.nodes.iter_mut().zip(jobs) {
        node.jobs = job_for(job, ends);
    }
    fleet
}

#[test]
fn nodes_of_a_job_follow_the_first_regardless_of_the_sort_keys() {
    let mut policy = policy();
    policy.order = vec![OrderKey::Rack];
    policy.budgets.max_changing = Amount::Count(2);
    let mut fleet = with_jobs(&["7", "8", "7", "8"], 10);
    for (node, rack) in fleet.nodes.iter_mut().zip(["r1", "r2", "r3", "r4"]) {
        node.rack = Some(rack.to_owned());
    }
    let jobs = plan(&policy, &fleet, start());
    assert_eq!(closed(&jobs), [id(0), id(2)], "rack r3 follows its job");
    // A waiting node brings the nodes of its job that have not begun.
    fleet.nodes[3].stage = Stage::Waiting;
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(3), id(1)]);
}

#[test]
fn a_job_on_more_nodes_than_slots_is_taken_in_parts() {
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Count(5);
    let mut fleet = with_jobs(&["7"; 100], 10);
    assert_eq!(closed(&plan(&policy, &fleet, start())).len(), 5);
    // Long before the end, all nodes of the job wait together.
    for node in &mut fleet.nodes {
        node.jobs = job_for("7", 600);
    }
    let waits = plan(&policy, &fleet, start());
    assert!(waits.actions.iter().all(|action| action.act == Act::Wait));
    assert_eq!(waits.actions.len(), 100);
}

#[test]
fn a_node_of_the_job_that_is_held_keeps_no_other() {
    let mut fleet = with_jobs(&["7", "7", "7"], 10);
    fleet.nodes[1].condition.held = true;
    assert_eq!(closed(&plan(&policy(), &fleet, start())), [id(0), id(2)]);
}

#[test]
fn a_job_brings_no_node_before_the_superseded_revision() {
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Count(2);
    let mut fleet = with_jobs(&["7", "7", "7", "8"], 10);
    fleet.supersedes = Some(TARGET);
    fleet.target = RevisionNumber(3);
    for number in [2, 3] {
        fleet.nodes[number].runs = Some(TARGET);
    }
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(2), id(3)]);
}

#[test]
fn a_unit_brings_the_nodes_of_its_jobs() {
    let mut policy = policy();
    policy.order = vec![OrderKey::Rack];
    policy.budgets.max_changing = Amount::Count(3);
    let mut fleet = with_jobs(&["7", "8", "9", "8"], 10);
    fleet.budget.domains = vec![whole("u", 1000)];
    for number in [0, 1] {
        fleet.nodes[number].member.domains = ["u".to_owned()].into();
    }
    for (node, rack) in fleet.nodes.iter_mut().zip(["r1", "r1", "r2", "r3"]) {
        node.rack = Some(rack.to_owned());
    }
    assert_eq!(closed(&plan(&policy, &fleet, start())), [0, 1, 3].map(id));
}
