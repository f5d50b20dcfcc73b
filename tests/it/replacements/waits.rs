//! Waits for the state of a claim.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::simulated::World;

#[tokio::test]
async fn a_claim_says_what_it_is_waited_for_and_whether_that_is_so() {
    let mut world = World::start(2).await;
    world.settle().await;
    let made = world.claim("n1").await.expect(201).body;
    assert_eq!(
        (
            &made["status"]["effective_wait_for"],
            &made["status"]["ready"],
            &made["status"]["stuck"]
        ),
        (&json!("in_service"), &json!(false), &json!(false))
    );
    assert_eq!(
        (
            &made["status"]["effective_image"],
            &made["status"]["effective_suite"]
        ),
        (&json!("debian-12"), &json!("smoke"))
    );
    let spec = json!({ "pool": "gpu", "node": "n2", "wait_for": "bound" });
    let bound = world
        .admin
        .post("/v1/claims", &json!({ "name": "b", "spec": spec }))
        .await
        .expect(201)
        .body;
    assert_eq!(
        (&bound["status"]["ready"], &bound["spec"]["wait_for"]),
        (&json!(true), &json!("bound"))
    );
    let spec = json!({ "pool": "gpu", "node": "n2", "wait_for": "lunch" });
    assert_eq!(
        world
            .admin
            .post("/v1/claims", &json!({ "spec": spec }))
            .await
            .problem()
            .2,
        "/spec/wait_for"
    );
    assert_eq!(
        world.admin.get("/v1/claims/b?wait=1h").await.problem().2,
        "wait"
    );
    // A ready claim is answered at once. The answer about `c-n1` comes with the ready state.
    answer_at_once(&world, "b").await;
    let waiting = tokio::spawn({
        let admin = world.admin.clone();
        async move { admin.get("/v1/claims/c-n1?wait=55s").await.expect(200).body }
    });
    world.fail("n2", "write_image", false, 1);
    world.settle().await;
    assert_eq!(waiting.await.unwrap()["status"]["ready"], true);
    // A stuck claim is answered at once too.
    world
        .admin
        .patch(
            "/v1/claims/b",
            &json!({ "spec": { "wait_for": "in_service" } }),
        )
        .await
        .expect(200);
    let stuck = answer_at_once(&world, "b").await;
    assert_eq!(
        (&stuck["status"]["ready"], &stuck["status"]["stuck"]),
        (&json!(false), &json!(true)),
        "{stuck}"
    );
}

/// Reads a claim with the longest wait. Fails if the answer comes at the end of the wait.
async fn answer_at_once(world: &World, claim: &str) -> Value {
    let wait = Duration::from_secs(55);
    let path = format!("/v1/claims/{claim}?wait={}s", wait.as_secs());
    let begun = Instant::now();
    let claim = world.admin.get(&path).await.expect(200).body;
    assert!(begun.elapsed() < wait, "{claim}");
    claim
}
