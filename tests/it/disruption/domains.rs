//! Failure domains: the nodes of a label, a rack, or a label of racks.

use serde_json::json;

use super::{account, budget, parity, read_account, serving, states, why};
use crate::simulated::World;
use crate::support::fleet;

#[tokio::test]
async fn a_failure_domain_limits_its_nodes_over_all_pools() {
    let mut world = serving(4, json!("100%"), parity(json!(1))).await;
    // The second pool has n3 of the domain feed:odd.
    let mut other = fleet::pool();
    other["spec"]["max_unavailable"] = json!("100%");
    world.admin.put("/v1/pools/other", &other).await.expect(201);
    world.release("n3").await.expect(202);
    world.settle().await;
    let body = json!({ "name": "c3", "spec": { "pool": "other", "node": "n3" } });
    world.admin.post("/v1/claims", &body).await.expect(201);
    world.settle().await;

    world.ask("n1", "maintain").await.expect(202);
    world.ask("n2", "maintain").await.expect(202);
    world.settle().await;
    world.ask("n3", "maintain").await.expect(202);
    world.ask("n4", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(
        states(&world, 4).await,
        ["maintenance", "maintenance", "in_service", "in_service"]
    );
    let (code, sentence) = why(&world, "n3").await;
    assert_eq!(code, "disruption_budget");
    assert_eq!(
        sentence,
        "a slot of the disruption budget: the failure domain feed:odd has 1 of 2 nodes out, and 1 may be out at a time"
    );
    let seen = budget(&world).await;
    let domains = seen["domains"].as_array().unwrap();
    let ids: Vec<&str> = domains
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["feed:even", "feed:odd"]);
    assert_eq!(read_account(&domains[1]["account"]), (1, 1, 2));
    // The account of pool `gpu` lists n1 and n2, and no node of the other pool.
    let out = seen["nodes_out"].as_array().unwrap();
    assert_eq!(out.len(), 2, "{seen:#}");
    // A free slot wakes nodes of the same pool only. The engine checks n3 again within 60 s.
    world.ask("n1", "resume").await.expect(202);
    world.settle().await;
    world.advance(60);
    world.settle().await;
    assert_eq!(world.state("n3").await, "maintenance");
}

#[tokio::test]
async fn racks_and_labels_of_racks_are_domains() {
    let mut rack = fleet::rack();
    rack["labels"] = json!({ "feed": "a" });
    let axes = json!([
        { "name": "rack", "source": "rack", "max_unavailable": "50%" },
        { "name": "power", "source": "rack_label", "label": "feed", "max_unavailable": 1 },
    ]);
    let mut world = serving(4, json!("100%"), axes).await;
    assert_eq!(budget(&world).await["domains"].as_array().unwrap().len(), 1);
    world.admin.put("/v1/racks/r1", &rack).await.expect(200);
    let seen = budget(&world).await;
    let accounts: Vec<(&str, (u64, u64, u64))> = seen["domains"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["id"].as_str().unwrap(), read_account(&one["account"])))
        .collect();
    assert_eq!(accounts, [("power:a", (0, 1, 4)), ("rack:r1", (0, 2, 4))]);
    for node in ["n1", "n2", "n3"] {
        world.ask(node, "maintain").await.expect(202);
    }
    world.settle().await;
    assert_eq!(account(&world).await.0, 1, "the power feed");
    rack["labels"] = json!({});
    world.admin.put("/v1/racks/r1", &rack).await.expect(200);
    world.advance(60);
    world.settle().await;
    assert_eq!(account(&world).await.0, 2, "the rack");
}

#[tokio::test]
async fn a_wrong_axis_is_refused_with_its_place() {
    let world = World::start(0).await;
    let table = [
        (
            json!([{ "name": "Rack", "source": "rack", "max_unavailable": 1 }]),
            "/spec/failure_domains/0/name",
        ),
        (
            json!([{ "name": "r", "source": "rack", "label": "x", "max_unavailable": 1 }]),
            "/spec/failure_domains/0/label",
        ),
        (
            json!([{ "name": "r", "source": "rack", "max_unavailable": "0%" }]),
            "/spec/failure_domains/0/max_unavailable",
        ),
        (
            json!([{ "name": "r", "source": "switch", "max_unavailable": 1 }]),
            "/spec/failure_domains/0/source",
        ),
    ];
    for (axes, pointer) in table {
        let body = json!({ "spec": { "failure_domains": axes } });
        let refused = world.admin.put("/v1/sites/other", &body).await;
        let malformed = pointer.ends_with("source") || pointer.ends_with("unavailable");
        assert_eq!(refused.status, if malformed { 400 } else { 422 }, "{axes}");
        assert_eq!(
            refused.body["errors"][0]["pointer"], pointer,
            "{}",
            refused.text
        );
    }
}
