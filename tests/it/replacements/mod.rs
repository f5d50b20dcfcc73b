//! Replacement of a claim's node: a new node serves before the release of the former node.

mod course; // From the request to the release of the former node
mod crashes; // Crashes of the server and the agent, and concurrent deletes
mod holds; // Claims on hold
mod requests; // Refusals, approvals, plans and the console
mod waits; // Waits for the state of a claim

use serde_json::Value;

use crate::simulated::World;
use crate::support::server::Reply;

/// Starts nodes. The node `n1` is in service under the claim `c-n1`.
async fn serving(nodes: u8) -> World {
    let mut world = World::start(nodes).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world
}

async fn claim(world: &World, key: &str) -> Value {
    world
        .admin
        .get(&format!("/v1/claims/{key}"))
        .await
        .expect(200)
        .body
}

async fn message(world: &World, reply: &Reply) -> String {
    let id = reply.body["id"].as_str().unwrap();
    let operation = world
        .admin
        .get(&format!("/v1/operations/{id}"))
        .await
        .expect(200)
        .body;
    operation["progress"]["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn wiped(world: &World, name: &str) -> usize {
    world.machine(name, |machine| {
        machine.log.iter().filter(|done| done.act == "wipe").count()
    })
}
