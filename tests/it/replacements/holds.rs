//! Claims on hold: the change touches no node, and a recovery installs no image.

use muster_core::gates::Verdict;
use serde_json::json;

use super::{claim, serving};
use crate::simulated::World;

#[tokio::test]
async fn a_hold_touches_no_node_and_is_seen_everywhere() {
    let world = serving(1).await;
    let look = async || -> (i64, Option<String>, i64) {
        let row = sqlx::query_as(
            "SELECT version, due_at::text, (SELECT count(*) FROM operations) FROM nodes",
        );
        row.fetch_one(&world.server.app.pool).await.unwrap()
    };
    let before = look().await;
    let hold = json!({ "spec": { "hold": true } });
    expect_planned_hold(&world).await;
    assert_eq!(
        world
            .admin
            .expecting(2)
            .patch("/v1/claims/c-n1", &hold)
            .await
            .status,
        412
    );
    let held = world
        .admin
        .expecting(1)
        .patch("/v1/claims/c-n1", &hold)
        .await
        .expect(200);
    assert_eq!(
        (held.header("etag"), &held.body["spec"]["hold"]),
        ("\"2\"", &json!(true))
    );
    assert_eq!(held.body["status"]["effective_hold"], true);
    world
        .admin
        .patch("/v1/claims/c-n1", &hold)
        .await
        .expect(200);
    assert_eq!(claim(&world, "c-n1").await["generation"], 2, "as it was");
    assert!(
        world
            .admin
            .get("/claims")
            .await
            .expect(200)
            .text
            .contains("</svg>held</span>")
    );
    world.engine().await;
    assert_eq!(look().await, before, "its node did not notice");
    expect_immutable(&world).await;
    let free = json!({ "spec": { "hold": null } });
    let free = world
        .admin
        .patch("/v1/claims/c-n1", &free)
        .await
        .expect(200)
        .body;
    assert_eq!(
        (free["spec"].get("hold"), &free["status"]["effective_hold"]),
        (None, &json!(false))
    );
}

/// A plan shows the change of the hold. The claim stays unchanged.
async fn expect_planned_hold(world: &World) {
    let desired = json!({ "kind": "claim", "name": "c-n1", "spec": { "pool": "gpu", "node": "n1", "hold": true } });
    let plan = world
        .admin
        .post("/v1/plan", &json!({ "objects": [desired] }))
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&plan["effect"], &plan["objects"][0]["change"]),
        (&json!("none"), &json!("change")),
        "{plan}"
    );
    assert_eq!(plan["objects"][0]["diff"][0]["pointer"], "/spec/hold");
    assert_eq!(
        claim(world, "c-n1").await["status"]["effective_hold"],
        false,
        "only planned"
    );
}

/// The node, the pool and the labels of a claim cannot be changed.
async fn expect_immutable(world: &World) {
    for patch in [
        json!({ "spec": { "node": "n2" } }),
        json!({ "spec": { "pool": "cpu" } }),
    ] {
        assert_eq!(
            world
                .admin
                .patch("/v1/claims/c-n1", &patch)
                .await
                .problem()
                .1,
            "immutable",
            "{patch}"
        );
    }
    let desired =
        json!({ "kind": "claim", "name": "c-n1", "spec": { "pool": "gpu", "node": "n2" } });
    let plan = world
        .admin
        .post("/v1/plan", &json!({ "objects": [desired] }))
        .await
        .expect(200)
        .body;
    assert_eq!(plan["objects"][0]["blockers"][0]["code"], "immutable");
    assert_eq!(
        world
            .admin
            .patch("/v1/claims/c-n1", &json!({ "labels": {} }))
            .await
            .problem()
            .2,
        "/labels"
    );
}

#[tokio::test]
async fn a_held_node_that_fails_is_recovered_without_installing_anything() {
    let mut world = World::declare(1, |path, mut body| {
        if path == "/v1/pools/gpu" {
            let rungs = ["collect", "restart_services", "reboot", "reimage"];
            body["spec"]["health"] = json!({ "sweep": "smoke", "recovery": { "rungs": rungs } });
        }
        body
    })
    .await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world
        .admin
        .patch("/v1/claims/c-n1", &json!({ "spec": { "hold": true } }))
        .await
        .expect(200);
    let images = |world: &World| {
        world.machine("n1", |m| {
            m.log.iter().filter(|done| done.act == "image").count()
        })
    };
    let before = images(&world);
    // The sweep, and the gates after the reboot.
    world.gates("n1", &[Verdict::Fail, Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), images(&world)),
        ("quarantined", before)
    );
    let tried = world
        .admin
        .get("/v1/nodes/n1/recoveries")
        .await
        .expect(200)
        .body["items"][0]["tried"]
        .clone();
    let outcomes: Vec<&str> = tried
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["done", "skipped", "done", "skipped"], "{tried}");
    assert!(
        tried[3]["why"].as_str().unwrap().contains("on hold"),
        "{tried}"
    );
    world.check().await;
}
