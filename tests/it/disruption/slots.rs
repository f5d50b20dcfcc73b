//! Acts that wait for a slot of the budget, and acts without a slot.

use muster_core::gates::Verdict;
use serde_json::json;

use super::{account, budget, serving, settle_all, states, why};
use crate::schedulers::say;
use crate::simulated::World;

#[tokio::test]
async fn a_drain_beyond_the_budget_waits_for_a_slot_and_goes_on_with_the_slot() {
    let mut world = serving(3, json!(1), json!([])).await;
    assert_eq!(account(&world).await, (0, 1, 3));
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    let waits = world.ask("n2", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(
        states(&world, 3).await,
        ["maintenance", "in_service", "in_service"]
    );
    assert_eq!(account(&world).await, (1, 1, 3));
    let (code, sentence) = why(&world, "n2").await;
    assert_eq!(code, "disruption_budget");
    assert_eq!(
        sentence,
        "a slot of the disruption budget: the pool has 1 of 3 nodes out, and 1 may be out at a time"
    );
    let id = waits.body["id"].as_str().unwrap().to_owned();
    let operation = world.admin.get(&format!("/v1/operations/{id}")).await;
    let blocked = &operation.expect(200).body["blocked_by"];
    assert_eq!(blocked["by"], "disruption_budget");
    assert_eq!(
        blocked["self"].as_str().or(blocked["link"].as_str()),
        Some("/v1/pools/gpu/disruption")
    );
    let seen = budget(&world).await;
    assert_eq!(seen["nodes_out"][0]["node"], "n1");
    assert_eq!(seen["nodes_out"][0]["service"], "out");
    assert_eq!(seen["waiting"][0]["node"], "n2");
    assert_eq!(seen["waiting"][0]["action"], "maintain");

    // The slot is free when n1 serves again. n2 is woken while the clock stands.
    world.ask("n1", "resume").await.expect(202);
    world.settle().await;
    assert_eq!(
        states(&world, 3).await,
        ["in_service", "maintenance", "in_service"]
    );
    world.check().await;
}

#[tokio::test]
async fn a_converge_of_the_whole_pool_takes_one_node_at_a_time() {
    let mut world = serving(4, json!("25%"), json!([])).await;
    for node in ["n1", "n2", "n3", "n4"] {
        world.ask(node, "converge").await.expect(202);
    }
    world.engine().await;
    let draining = states(&world, 4).await;
    let out = draining.iter().filter(|state| *state != "in_service");
    assert_eq!(out.count(), 1, "{draining:?}");
    settle_all(&mut world).await;
    for node in ["n1", "n2", "n3", "n4"] {
        let states = world.states(node).await;
        let drained = states.iter().filter(|state| *state == "draining");
        assert_eq!(
            (drained.count(), world.state(node).await.as_str()),
            (1, "in_service")
        );
    }
    world.check().await;
}

#[tokio::test]
async fn a_budget_of_zero_keeps_every_node_in_service() {
    let mut world = serving(1, json!(0), json!([])).await;
    let drain = world.ask("n1", "drain").await.expect(202);
    world.settle().await;
    world.advance(3600);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    // A person may stop the request while the request waits.
    world.cancel(&drain).await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&drain).await.as_str()
        ),
        ("in_service", "cancelled")
    );
    // A release needs no slot: the node leaves the pool.
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.check().await;
}

#[tokio::test]
async fn a_node_on_the_first_way_into_service_takes_no_slot() {
    let mut world = World::declare(2, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["max_unavailable"] = json!(1);
        }
        body
    })
    .await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.gates("n2", &[Verdict::Fail]);
    world.claim("n2").await.expect(201);
    world.settle().await;
    assert_eq!(states(&world, 2).await, ["in_service", "quarantined"]);
    assert_eq!(account(&world).await, (0, 1, 1), "n2 was never in service");
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "maintenance");
    world.check().await;
}

#[tokio::test]
async fn another_act_takes_the_place_of_a_waiting_one() {
    let mut world = serving(2, json!(1), json!([])).await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    let drain = world.ask("n2", "drain").await.expect(202);
    world.settle().await;
    world.ask("n2", "converge").await.expect(202);
    assert_eq!(world.operation(&drain).await, "cancelled");
    // An act that leaves the node in service, such as `inspect`, does not replace a waiting act.
    assert_eq!(world.ask("n2", "inspect").await.status, 409);
    world.ask("n1", "resume").await.expect(202);
    settle_all(&mut world).await;
    assert_eq!(states(&world, 2).await, ["in_service", "in_service"]);
    world.check().await;
}

#[tokio::test]
async fn a_failing_node_serves_until_a_slot_is_free() {
    let mut world = World::declare(2, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["max_unavailable"] = json!(1);
            body["spec"]["health"] = json!({ "sweep": "smoke" });
        }
        body
    })
    .await;
    world.settle().await;
    for node in ["n1", "n2"] {
        world.claim(node).await.expect(201);
    }
    world.settle().await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    world.gates("n2", &[Verdict::Fail]);
    world.ask("n2", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    assert_eq!(why(&world, "n2").await.0, "disruption_budget");
    world.ask("n1", "resume").await.expect(202);
    settle_all(&mut world).await;
    assert_eq!(states(&world, 2).await, ["in_service", "quarantined"]);
    world.check().await;
}

#[tokio::test]
async fn a_drain_by_another_person_counts() {
    let mut world = serving(3, json!(1), json!([])).await;
    say(&mut world, &[("n1", "drained", Some("broken fan"))]).await;
    assert_eq!(account(&world).await, (1, 1, 3));
    world.ask("n2", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    // The drained node takes no second slot.
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "maintenance");
    world.check().await;
}
