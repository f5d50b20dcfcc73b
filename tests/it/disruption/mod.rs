//! The disruption budget: no act of Muster takes a serving node out of service beyond the budget of
//! the node's pool or failure domains. The simulated world has an outside observer of the same
//! rule.

mod counts; // The count of nodes out, for acts and for pair runs
mod domains; // Failure domains
mod exceptions; // Overrides, larger budgets, and nodes written off
mod locks; // Engines at the same time, and the locks of a slot
mod slots; // Acts that wait for a slot

use serde_json::{Value, json};

use crate::simulated::World;

/// Builds nodes in service, in a pool with a budget, at a site with axes of failure domains.
async fn serving(nodes: u8, max_unavailable: Value, axes: Value) -> World {
    World::serving(nodes, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["max_unavailable"] = max_unavailable.clone();
        }
        if path == "/v1/sites/lab" {
            body["spec"]["failure_domains"] = axes.clone();
        }
        body
    })
    .await
}

async fn budget(world: &World) -> Value {
    let path = "/v1/pools/gpu/disruption";
    world.admin.get(path).await.expect(200).body
}

/// Returns the numbers of nodes out, allowed and counted of the pool's account.
async fn account(world: &World) -> (u64, u64, u64) {
    read_account(&budget(world).await["account"])
}

fn read_account(account: &Value) -> (u64, u64, u64) {
    let number = |name: &str| account[name].as_u64().unwrap();
    (number("out"), number("max"), number("counted"))
}

/// Returns the code and the sentence of a node's wait.
async fn why(world: &World, node: &str) -> (String, String) {
    let path = format!("/v1/nodes/{node}/why");
    let why = world.admin.get(&path).await.expect(200).body;
    let text = |name: &str| why[name].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("waiting_for"))
}

/// Returns the states of the nodes `n1`, `n2` and so on, in order.
async fn states(world: &World, nodes: u8) -> Vec<String> {
    let mut states = Vec::new();
    for number in 1..=nodes {
        states.push(world.state(&format!("n{number}")).await);
    }
    states
}

/// Settles until no request waits for a slot. Advances the clock by 60 s for the next check of a
/// waiting node.
async fn settle_all(world: &mut World) {
    for _ in 0..50 {
        world.settle().await;
        if budget(world).await["waiting"]
            .as_array()
            .unwrap()
            .is_empty()
        {
            return;
        }
        world.advance(60);
    }
    panic!("a request waits for ever: {:#}", budget(world).await);
}

/// Returns an axis over the label `parity`: `odd` for n1 and n3, `even` for n2 and n4.
fn parity(max_unavailable: Value) -> Value {
    json!([{ "name": "feed", "source": "node_label", "label": "parity", "max_unavailable": max_unavailable }])
}
