//! What an operation waits for while nothing of it is done, and what came of it.

use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::server::Reply;

async fn operation(world: &World, reply: &Reply) -> Value {
    let id = reply.body["status"]["operation"]
        .as_str()
        .or(reply.body["id"].as_str())
        .unwrap();
    world
        .admin
        .get(&format!("/v1/operations/{id}"))
        .await
        .expect(200)
        .body
}

async fn blocked(world: &World, reply: &Reply) -> (Option<String>, Option<String>) {
    let blocked = operation(world, reply).await["blocked_by"].clone();
    let text = |member: &str| blocked[member].as_str().map(str::to_owned);
    (text("by"), text("link"))
}

fn by(word: &str, link: &str) -> (Option<String>, Option<String>) {
    (
        Some(word.to_owned()),
        Some(link.to_owned()).filter(|link| !link.is_empty()),
    )
}

#[tokio::test]
async fn an_operation_says_what_it_waits_for() {
    let mut world = World::declare(2, |path, mut body| {
        if path == "/v1/racks/r1" {
            body["spec"]["power_budget_w"] = json!(350);
        }
        if path == "/v1/pools/gpu" {
            body["spec"]["undo_window_s"] = json!(900);
        }
        body
    })
    .await;
    world.settle().await;
    let first = world.claim("n1").await.expect(201);
    world.engine().await;
    assert_eq!(
        blocked(&world, &first).await,
        by("agent", "/v1/sites/lab/agents"),
        "nobody has leased it"
    );
    let job = world.until_leased("n1", "boot_live").await;
    assert_eq!(
        blocked(&world, &first).await,
        (None, None),
        "somebody is at it"
    );
    let second = world.claim("n2").await.expect(201);
    world.engine().await;
    assert_eq!(
        blocked(&world, &second).await,
        by("rack_power", "/v1/racks/r1")
    );
    let more = json!({ "spec": { "power_budget_w": 1000 } });
    world.admin.patch("/v1/racks/r1", &more).await.expect(200);
    world.protect("n1", true).await;
    world.agent.work(&job).await.unwrap();
    world.engine().await;
    assert_eq!(blocked(&world, &first).await, by("protection", ""));
    assert_eq!(
        operation(&world, &first).await["result"],
        Value::Null,
        "it is not done"
    );
    world.protect("n1", false).await;
    world.settle().await;

    let page = world
        .admin
        .get(&format!(
            "/operations/{}",
            first.body["status"]["operation"].as_str().unwrap()
        ))
        .await;
    assert!(page.expect(200).text.contains("gate run: smoke 1: pass"));
    let done = operation(&world, &first).await;
    assert_eq!(done["blocked_by"], Value::Null);
    let links: Vec<(&str, &str)> = done["result"]["links"]
        .as_array()
        .unwrap()
        .iter()
        .map(|link| {
            (
                link["of"].as_str().unwrap(),
                link["told"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    let runs = [("gate_run", "smoke 1: pass"), ("gate_run", "smoke 1: pass")];
    assert_eq!(
        links,
        [
            &[("claim", ""), ("node", ""), ("drift", "")][..],
            &runs[..],
            &[("log", "")][..]
        ]
        .concat()
    );
    for link in done["result"]["links"].as_array().unwrap() {
        world
            .admin
            .get(link["self"].as_str().unwrap())
            .await
            .expect(200);
    }

    let released = world.release("n1").await.expect(202);
    for _ in 0..20 {
        world.pass().await;
    }
    assert_eq!(world.state("n1").await, "wiping");
    assert_eq!(
        blocked(&world, &released).await,
        by("undo_window", "/v1/claims/c-n1")
    );
}
