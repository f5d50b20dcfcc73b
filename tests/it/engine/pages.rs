//! The console of nodes that have lived: what a page reads was written by the engine, so it must be able to read all of it.

use reqwest::Method;

use crate::simulated::World;

/// Every page there is, and each page of every node, operation and job.
async fn paths(world: &World) -> Vec<String> {
    let mut paths: Vec<String> =
        ["/", "/nodes", "/operations", "/racks", "/claims", "/events", "/agents"].map(String::from).to_vec();
    let admin = &world.admin;
    for node in admin.get("/v1/nodes").await.expect(200).body["items"].as_array().unwrap() {
        let name = node["name"].as_str().unwrap();
        paths.extend(["", "/console"].map(|page| format!("/nodes/{name}{page}")));
    }
    for operation in admin.get("/v1/operations?limit=100").await.expect(200).body["items"].as_array().unwrap() {
        paths.push(format!("/operations/{}", operation["id"].as_str().unwrap()));
        for step in operation["steps"].as_array().unwrap() {
            paths.push(format!("/jobs/{}/log", step["job"].as_str().unwrap()));
        }
    }
    paths
}

async fn every_page_opens(world: &World) {
    let paths = paths(world).await;
    for path in &paths {
        let reply = world.admin.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    }
}

#[tokio::test]
async fn every_page_opens_through_a_life() {
    let mut world = World::start(2).await;
    every_page_opens(&world).await;
    world.settle().await;
    every_page_opens(&world).await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    every_page_opens(&world).await;
    world.release("n1").await;
    world.settle().await;
    every_page_opens(&world).await;
}

/// A form that the page does not have: what it leaves out is asked for, and nothing is begun.
#[tokio::test]
async fn a_form_made_by_hand_cannot_leave_out_what_an_action_takes() {
    let mut world = World::start(1).await;
    world.settle().await;
    let person = world.admin.header("content-type", "application/x-www-form-urlencoded");
    for (wish, takes) in [("adopt", "host key"), ("replace-parts", "serials"), ("release", "claim")] {
        let path = format!("/ui/nodes/n1/actions/{wish}");
        let reply = person.send(Method::POST, &path, b"reason=by+hand&typed=n1".to_vec()).await.expect(422);
        assert!(reply.text.contains(takes), "{wish}: {}", reply.text);
    }
    assert_eq!((world.value("n1", "wish").await, world.state("n1").await.as_str()), (None, "available"));
    let path = "/ui/nodes/n1/actions/retire";
    person.send(Method::POST, path, b"reason=by+hand".to_vec()).await.expect(303);
    assert_eq!(world.value("n1", "wish").await.as_deref(), Some("retire"));
}
