//! The way back after a halt: nodes out of service in a rollout to the former revision.

use muster_core::gates::Verdict;
use muster_server::tasks::rollouts;
use serde_json::{Value, json};

use crate::rollouts::{
    marked, plan, policy, running, serving, settle, show, start, steer, taken, until_one_changes,
};
use crate::simulated::World;

/// Plans a rollout to revision 1, and starts it in place of the running rollout. Returns its name.
async fn go_back(world: &World) -> String {
    let back = plan(world, 1, &policy()).await.expect(201).body;
    let name = back["name"].as_str().unwrap().to_owned();
    let body = json!({ "plan": back["plan"], "supersede": true });
    steer(world, &name, "start", body).await.expect(200);
    name
}

/// Trap 17: the way back must not need a healthy node.
#[tokio::test]
async fn the_way_back_takes_a_node_whose_change_failed() {
    let mut world = serving(2, json!(1)).await;
    world.fail("n1", "converge", false, 2);
    world.fail("n2", "converge", false, 2);
    let name = start(&world, 2, &policy()).await;
    settle(&mut world).await;
    let halted = show(&world, &name).await;
    let failed = marked(&halted, "failed");
    assert_eq!(world.state(&failed).await, "failed", "{halted:#}");

    let back = go_back(&world).await;
    let seen = show(&world, &back).await;
    let nodes = seen["nodes"].as_array().unwrap();
    let effect = nodes.iter().find(|node| node["node"] == *failed).unwrap();
    assert_eq!(effect["effect"], "reboot", "{seen:#}");
    settle(&mut world).await;
    let done = show(&world, &back).await;
    assert_eq!(done["state"], "done", "{done:#}");
    assert_eq!(running(&world, &failed).await, Some(1));
    assert_eq!(world.state(&failed).await, "in_service");
    world.check().await;
}

/// A request put the node into quarantine, so a person decides.
#[tokio::test]
async fn the_way_back_leaves_a_node_that_a_person_has_quarantined() {
    let mut world = serving(2, json!("100%")).await;
    let mut soak = policy();
    soak["canary"]["soak_s"] = json!(3600);
    let name = start(&world, 2, &soak).await;
    settle(&mut world).await;
    let canary = marked(&show(&world, &name).await, "done");
    world.ask(&canary, "quarantine").await.expect(202);
    settle(&mut world).await;
    assert_eq!(marked(&show(&world, &name).await, "failed"), canary);

    let back = go_back(&world).await;
    settle(&mut world).await;
    let seen = show(&world, &back).await;
    assert_eq!(marked(&seen, "not_begun"), canary, "{seen:#}");
    assert_eq!(world.state(&canary).await, "quarantined");
    assert_eq!(running(&world, &canary).await, Some(2));
}

/// A retry returns the node to service, on the target.
#[tokio::test]
async fn a_retried_node_returns_to_service_through_its_gates() {
    for (kind, state) in [("gates", "quarantined"), ("converge", "failed")] {
        let mut world = serving(3, json!(1)).await;
        for node in ["n1", "n2", "n3"] {
            match kind {
                "gates" => world.gates(node, &[Verdict::Fail]),
                _ => world.fail(node, "converge", false, 2),
            }
        }
        let name = start(&world, 2, &policy()).await;
        settle(&mut world).await;
        let node = marked(&show(&world, &name).await, "failed");
        assert_eq!(world.state(&node).await, state);
        let retry = json!({ "node": node, "reason": "a new disk" });
        steer(&world, &name, "retry", retry).await.expect(200);
        settle(&mut world).await;
        assert_eq!(world.state(&node).await, state, "the rollout is halted");

        let more = json!({ "policy": { "failure_budget": { "count": 1 } }, "reason": "a disk" });
        steer(&world, &name, "adjust", more).await.expect(200);
        let resume = json!({ "reason": "a new disk" });
        let before = world.states(&node).await.len();
        steer(&world, &name, "resume", resume).await.expect(200);
        for _ in 0..300 {
            if mark_of(&world, &name, &node).await == "done" {
                break;
            }
            world.agent.report_jobs().await.unwrap();
            rollouts::round(&world.server.app).await.unwrap();
            world.pass().await;
        }
        assert_eq!(mark_of(&world, &name, &node).await, "done", "{kind}");
        assert_eq!(world.state(&node).await, "in_service", "{kind}");
        assert_eq!(running(&world, &node).await, Some(2), "{kind}");
        let states = world.states(&node).await.split_off(before);
        assert_eq!(
            states,
            ["installing", "validating", "admitting", "in_service"]
        );
        world.check().await;
    }
}

async fn mark_of(world: &World, rollout: &str, node: &str) -> String {
    let seen = show(world, rollout).await;
    let nodes = seen["nodes"].as_array().unwrap();
    let row = nodes.iter().find(|row| row["node"] == *node).unwrap();
    row["mark"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_person_converges_a_quarantined_node_to_the_former_revision() {
    let mut world = serving(1, json!(1)).await;
    world.gates("n1", &[Verdict::Fail]);
    start(&world, 2, &policy()).await;
    settle(&mut world).await;
    assert_eq!(world.state("n1").await, "quarantined");
    let path = "/v1/claims/c-n1/actions/assign-revision";
    let body = json!({ "revision": 1, "reason": "revision 2 is bad" });
    world.admin.post(path, &body).await.expect(200);
    world.ask("n1", "converge").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(running(&world, "n1").await, Some(1));
    world.check().await;
}

/// A halted rollout does not try a change again, and the way back does not leave the node behind.
#[tokio::test]
async fn the_way_back_takes_a_node_whose_first_attempt_failed_in_the_halt() {
    let mut world = serving(2, json!(1)).await;
    world.fail("n1", "converge", false, 1);
    world.fail("n2", "converge", false, 1);
    let name = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &name).await;
    let node = marked(&show(&world, &name).await, "changing");
    world.until(&node, "installing").await;
    let halt = json!({ "reason": "revision 2 is bad" });
    steer(&world, &name, "halt", halt).await.expect(200);
    settle(&mut world).await;
    assert_eq!(world.state(&node).await, "failed");
    assert_eq!(mark_of(&world, &name, &node).await, "changing");

    let back = go_back(&world).await;
    settle(&mut world).await;
    assert_eq!(mark_of(&world, &name, &node).await, "failed");
    assert_eq!(show(&world, &back).await["state"], "done");
    assert_eq!(running(&world, &node).await, Some(1));
    assert_eq!(world.state(&node).await, "in_service");
    world.check().await;
}

/// The node is in quarantine for a reason of its own now. A person may give the node to the rollout.
#[tokio::test]
async fn the_way_back_leaves_a_node_that_failed_again_for_another_request() {
    let mut world = serving(1, json!(1)).await;
    world.gates("n1", &[Verdict::Fail, Verdict::Fail]);
    start(&world, 2, &policy()).await;
    settle(&mut world).await;
    world.advance(60);
    world.ask("n1", "recover").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");

    let back = go_back(&world).await;
    settle(&mut world).await;
    assert_eq!(mark_of(&world, &back, "n1").await, "not_begun");
    assert_eq!(world.state("n1").await, "quarantined");
    for act in ["skip", "retry"] {
        let body = json!({ "node": "n1", "reason": "the disk is new" });
        steer(&world, &back, act, body).await.expect(200);
    }
    settle(&mut world).await;
    assert_eq!(mark_of(&world, &back, "n1").await, "done");
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(running(&world, "n1").await, Some(1));
}

#[tokio::test]
async fn a_quarantine_after_a_retry_ends_the_retry() {
    let mut world = serving(1, json!(1)).await;
    world.fail("n1", "converge", false, 2);
    let name = start(&world, 2, &policy()).await;
    settle(&mut world).await;
    assert_eq!(world.state("n1").await, "failed");
    let retry = json!({ "node": "n1", "reason": "a new disk" });
    steer(&world, &name, "retry", retry).await.expect(200);
    world.advance(60);
    world.ask("n1", "quarantine").await.expect(202);
    world.settle().await;
    let more = json!({ "policy": { "failure_budget": { "count": 1 } }, "reason": "a disk" });
    steer(&world, &name, "adjust", more).await.expect(200);
    let resume = json!({ "reason": "go on" });
    steer(&world, &name, "resume", resume).await.expect(200);
    settle(&mut world).await;
    assert_eq!(mark_of(&world, &name, "n1").await, "not_begun");
    assert_eq!(world.state("n1").await, "quarantined");
}

/// A broken node as the canary would halt the way back of all others.
#[tokio::test]
async fn nodes_out_of_service_are_the_last() {
    let mut world = serving(3, json!("100%")).await;
    world.gates("n1", &[Verdict::Fail]);
    world.gates("n2", &[Verdict::Pass]);
    let mut at_once = policy();
    at_once["canary"] = Value::Null;
    at_once["waves"] = json!({ "sizes": ["100%"] });
    at_once["failure_budget"] = json!({ "count": 2 });
    start(&world, 2, &at_once).await;
    settle(&mut world).await;
    assert_eq!(world.state("n1").await, "quarantined");
    let before = taken(&world).await.len();
    start(&world, 1, &policy()).await;
    settle(&mut world).await;
    let order = taken(&world).await.split_off(before);
    assert_eq!(order, ["n2", "n3", "n1"]);
}
