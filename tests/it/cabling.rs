//! Declared cables against what nodes hear: a swapped pair is told as one, on the rack, on the nodes, in the history, and mended by a look.

use muster_core::facts::Neighbour;
use muster_core::wire::job::JobSpec;
use serde_json::{Value, json};

use crate::simulated::World;

fn cable(node: u8) -> Value {
    json!({ "node": format!("n{node}"), "nic": "eth0", "switch": "leaf1", "port": format!("Ethernet{node}") })
}

/// Puts a machine's cable into a port.
fn plug(world: &World, node: &str, port: u8) {
    let neighbour = Neighbour {
        nic: "eth0".into(),
        chassis: "02:00:5e:00:53:03".into(),
        port: format!("02:00:5e:00:53:0{port}"),
        system_name: Some("leaf1.example.net".into()),
        port_description: Some(format!("Ethernet{port}")),
    };
    world.machine(node, |machine| machine.neighbours = vec![neighbour]);
}

async fn world() -> World {
    let planned = |path: &str, mut body: Value| {
        if path == "/v1/racks/r1" {
            body["spec"]["cables"] = json!([cable(1), cable(2), cable(3), cable(4)]);
        }
        body
    };
    let world = World::declare(3, planned).await;
    for (node, port) in [("n1", 2), ("n2", 1), ("n3", 3)] {
        plug(&world, node, port);
    }
    world
}

async fn told(world: &World, node: &str) -> Vec<String> {
    let events = world
        .admin
        .get(&format!("/v1/nodes/{node}/events"))
        .await
        .expect(200)
        .body;
    let items = events["items"].as_array().unwrap().iter();
    items
        .filter(|event| event["kind"] == "node.cabling")
        .map(|event| event["summary"].as_str().unwrap().to_owned())
        .collect()
}

const SWAPPED: &str = "n1 eth0 and n2 eth0 are swapped: n1 eth0 belongs in leaf1 Ethernet1, n2 eth0 in leaf1 Ethernet2";

#[tokio::test]
async fn two_swapped_cables_are_found_told_and_mended() {
    let mut world = world().await;
    let before = world
        .admin
        .get("/v1/racks/r1/cabling")
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&before["wrong"], &before["cables"][0]["state"]),
        (&json!(0), &json!("unseen")),
        "nobody has looked"
    );
    world.settle().await;

    let rack = world
        .admin
        .get("/v1/racks/r1/cabling")
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&rack["rack"], &rack["wrong"], &rack["findings"]),
        (&json!("r1"), &json!(2), &json!([SWAPPED]))
    );
    let states: Vec<&str> = rack["cables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cable| cable["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["swapped", "swapped", "right", "unseen"]);
    assert!(
        rack["cables"][0]["observed_at"].is_string() && rack["cables"][3]["observed_at"].is_null(),
        "{rack}"
    );
    let node = world
        .admin
        .get("/v1/nodes/n2/cabling")
        .await
        .expect(200)
        .body;
    assert_eq!(
        (node["cables"].as_array().unwrap().len(), &node["findings"]),
        (1, &json!([SWAPPED]))
    );

    // Whichever of the two was looked at last told it as a swap; each told it once.
    let both = [told(&world, "n1").await, told(&world, "n2").await];
    assert!(
        both.iter().all(|told| told.len() == 1) && both.concat().contains(&SWAPPED.to_owned()),
        "{both:?}"
    );
    assert!(told(&world, "n3").await.is_empty());
    let page = world.admin.get("/racks").await.expect(200);
    assert!(page.text.contains(SWAPPED), "the page of the rack says it");

    plug(&world, "n1", 1);
    plug(&world, "n2", 2);
    for node in ["n1", "n2"] {
        world.ask(node, "inspect").await.expect(202);
    }
    world.settle().await;
    let rack = world
        .admin
        .get("/v1/racks/r1/cabling")
        .await
        .expect(200)
        .body;
    assert_eq!((&rack["wrong"], &rack["findings"]), (&json!(0), &json!([])));
    assert_eq!(
        told(&world, "n2").await.len(),
        1,
        "a cable that is right is no news"
    );
}

/// The interfaces whose switches are waited for in the next look at a node.
async fn waited_for(world: &mut World, node: &str) -> Vec<String> {
    world.ask(node, "inspect").await.expect(202);
    let job = world.until_leased(node, "inventory").await;
    let JobSpec::Inventory { cabled, .. } = &job.spec else {
        panic!("{job:?}")
    };
    let cabled = cabled.clone();
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    cabled
}

/// A switch speaks every half minute, and a look takes a second: those that a cable is declared to are waited for, where somebody listens.
#[tokio::test]
async fn who_is_looked_at_waits_for_the_switches_of_its_declared_cables() {
    let mut world = world().await;
    world.settle().await;
    assert_eq!(waited_for(&mut world, "n1").await, ["eth0"]);
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(
        waited_for(&mut world, "n1").await,
        [""; 0],
        "an installed system listens to nobody"
    );
    let none = json!({ "spec": { "cables": [cable(3)] } });
    world.admin.patch("/v1/racks/r1", &none).await.expect(200);
    assert_eq!(
        waited_for(&mut world, "n2").await,
        [""; 0],
        "it has no declared cable"
    );
}

#[tokio::test]
async fn a_plan_that_gives_one_port_to_two_cables_is_refused() {
    let world = World::start(1).await;
    let rack = |cables: Value| json!({ "spec": { "site": "lab", "units": 42, "power_budget_w": 1, "cables": cables } });
    let mut twice = cable(2);
    twice["port"] = json!("ethernet1");
    let refused = world
        .admin
        .put("/v1/racks/r2", &rack(json!([cable(1), twice])))
        .await;
    assert_eq!(
        (refused.status, refused.problem().2),
        (422, "/spec/cables/1")
    );
    let many: Vec<Value> = (0..2049).map(|_| cable(1)).collect();
    let refused = world.admin.put("/v1/racks/r2", &rack(json!(many))).await;
    assert_eq!((refused.status, refused.problem().2), (422, "/spec/cables"));
    world
        .admin
        .put("/v1/racks/r2", &rack(json!([cable(1)])))
        .await
        .expect(201);
    let read = world.admin.get("/v1/racks/r2").await.expect(200).body;
    assert_eq!(
        read["spec"]["cables"],
        json!([cable(1)]),
        "it comes back as it was written"
    );
    assert_eq!(world.admin.get("/v1/racks/none/cabling").await.status, 404);
    // A node of another rack is not looked at for this one.
    assert_eq!(
        world
            .admin
            .get("/v1/racks/r2/cabling")
            .await
            .expect(200)
            .body["cables"][0]["state"],
        "unseen"
    );
}
