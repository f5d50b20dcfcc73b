//! The way back after a halt: which nodes out of service a rollout to the former revision takes.

use muster_core::gates::Verdict;
use muster_server::tasks::rollouts;
use serde_json::json;

use crate::rollouts::{marked, plan, policy, running, serving, settle, show, start, steer};
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

/// A request put the node into quarantine, so a person decides about it.
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

/// A person who retries a node wants it back in service, on the target.
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
        steer(&world, &name, "resume", resume).await.expect(200);
        for _ in 0..300 {
            if world.state(&node).await == "in_service" {
                break;
            }
            world.agent.report_jobs().await.unwrap();
            rollouts::round(&world.server.app).await.unwrap();
            world.pass().await;
        }
        assert_eq!(world.state(&node).await, "in_service", "{kind}");
        assert_eq!(running(&world, &node).await, Some(2), "{kind}");
        let states = world.states(&node).await;
        let gated = states.iter().filter(|state| *state == "validating");
        assert!(
            gated.count() >= 2 - usize::from(kind == "converge"),
            "{states:?}"
        );
        world.check().await;
    }
}
