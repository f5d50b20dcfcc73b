//! Claims: who gets a node, and how it is given back.

use muster_api::tokens::Role;
use serde_json::json;

use crate::support::fleet;
use crate::support::server::Server;

#[tokio::test]
async fn fifty_claims_at_once_on_ten_nodes_bind_exactly_ten() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 10).await;
    let mut claims = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let admin = admin.clone();
        claims.spawn(async move {
            admin
                .post(
                    "/v1/claims",
                    &json!({ "spec": { "pool": "gpu", "selector": {} } }),
                )
                .await
        });
    }
    let replies = claims.join_all().await;
    let won: Vec<&str> = replies
        .iter()
        .filter(|reply| reply.status == 201)
        .map(|r| r.body["status"]["node"].as_str().unwrap())
        .collect();
    let nodes: std::collections::BTreeSet<&str> = won.iter().copied().collect();
    assert_eq!((won.len(), nodes.len()), (10, 10), "{won:?}");
    for lost in replies.iter().filter(|reply| reply.status != 201) {
        assert_eq!(
            lost.problem(),
            (409, "no_node_available", ""),
            "{}",
            lost.text
        );
    }
}

#[tokio::test]
async fn a_claim_raises_the_epoch_and_its_deletion_does_again() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 1).await;
    let body = json!({ "name": "c1", "spec": { "pool": "gpu", "selector": { "parity": "odd" } } });
    let claim = admin.post("/v1/claims", &body).await.expect(201);
    assert_eq!(claim.header("location"), "/v1/claims/c1");
    assert_eq!(claim.body["spec"], body["spec"]);
    assert_eq!(
        (
            claim.body["status"]["node"].as_str(),
            claim.body["status"]["epoch"].as_i64()
        ),
        (Some("n1"), Some(1))
    );
    let node = admin.get("/v1/nodes/n1").await.expect(200);
    assert_eq!(
        (
            node.body["status"]["claim"].as_str(),
            node.body["status"]["pool"].as_str()
        ),
        (Some("c1"), Some("gpu"))
    );
    assert_eq!(
        admin
            .post(
                "/v1/claims",
                &json!({ "spec": { "pool": "gpu", "node": "n1" } })
            )
            .await
            .problem(),
        (409, "node_claimed", "")
    );

    admin.delete("/v1/claims/c1").await.expect(428);
    let released = admin.expecting(1).delete("/v1/claims/c1").await.expect(202);
    assert_eq!(released.body["kind"], "release");
    let again = admin.expecting(1).delete("/v1/claims/c1").await.expect(202);
    assert_eq!(
        again.body["id"], released.body["id"],
        "the same call leads to the same operation"
    );
    let claim = admin.get("/v1/claims/c1").await.expect(200);
    assert_eq!(
        (
            claim.body["status"]["state"].as_str(),
            claim.body["status"]["epoch"].as_i64()
        ),
        (Some("releasing"), Some(2))
    );
    let due: (Option<String>, bool) =
        sqlx::query_as("SELECT wish, due_at IS NOT NULL FROM nodes WHERE name = 'n1'")
            .fetch_one(&server.app.pool)
            .await
            .unwrap();
    assert_eq!(due, (Some("release".into()), true));
}

#[tokio::test]
async fn what_cannot_be_claimed_says_why() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 3).await;
    for sql in [
        "UPDATE nodes SET protected = true WHERE name = 'n1'",
        "UPDATE nodes SET profile_id = NULL WHERE name = 'n2'",
        "UPDATE nodes SET state = 'retired' WHERE name = 'n3'",
    ] {
        sqlx::query(sql).execute(&server.app.pool).await.unwrap();
    }
    for (spec, problem) in [
        (
            json!({ "pool": "gpu", "node": "n1" }),
            (409, "protected", ""),
        ),
        (
            json!({ "pool": "gpu", "node": "n2" }),
            (409, "no_profile", ""),
        ),
        (
            json!({ "pool": "gpu", "node": "n3" }),
            (409, "node_not_available", ""),
        ),
        (
            json!({ "pool": "gpu", "selector": {} }),
            (409, "no_node_available", ""),
        ),
        (
            json!({ "pool": "gpu", "node": "n9" }),
            (422, "unprocessable", "/spec/node"),
        ),
        (
            json!({ "pool": "cpu", "node": "n1" }),
            (422, "unprocessable", "/spec/pool"),
        ),
        (json!({ "pool": "gpu" }), (422, "unprocessable", "/spec")),
        (
            json!({ "pool": "gpu", "node": "n1", "selector": {} }),
            (422, "unprocessable", "/spec"),
        ),
    ] {
        assert_eq!(
            admin
                .post("/v1/claims", &json!({ "spec": spec }))
                .await
                .problem(),
            problem,
            "{spec}"
        );
    }
}

#[tokio::test]
async fn the_same_request_again_has_its_effect_once() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 5).await;
    let body = json!({ "spec": { "pool": "gpu", "selector": {} } });
    let keyed = admin.header("idempotency-key", "k1");
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (keyed, body) = (keyed.clone(), body.clone());
        tries.spawn(async move { keyed.post("/v1/claims", &body).await.expect(201) });
    }
    let replies = tries.join_all().await;
    assert!(replies.iter().all(|reply| reply.body == replies[0].body));
    let replayed = replies
        .iter()
        .filter(|reply| reply.header("idempotency-replayed") == "true")
        .count();
    assert_eq!(replayed, 7);
    assert_eq!(
        admin.get("/v1/claims").await.body["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let other = json!({ "spec": { "pool": "gpu", "node": "n5" } });
    assert_eq!(
        keyed.post("/v1/claims", &other).await.problem(),
        (422, "unprocessable", "Idempotency-Key")
    );
    let stranger = server
        .caller(Role::Operator)
        .await
        .header("idempotency-key", "k1");
    assert_ne!(
        stranger.post("/v1/claims", &body).await.expect(201).body["id"],
        replies[0].body["id"],
        "keys are each caller's own"
    );
}

#[tokio::test]
async fn a_key_is_kept_for_a_week_and_then_forgotten() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 2).await;
    let keyed = admin.header("idempotency-key", "k1");
    let body = json!({ "spec": { "pool": "gpu", "selector": {} } });
    let first = keyed.post("/v1/claims", &body).await.expect(201);
    server
        .app
        .clock
        .advance(jiff::SignedDuration::from_hours(7 * 24));
    let admin = server.admin().await;
    assert_eq!(
        muster_server::tasks::idempotency::forget(&server.app)
            .await
            .unwrap(),
        0
    );
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM idempotency_keys")
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    assert_eq!(stored, 1);
    server.app.clock.advance(jiff::SignedDuration::from_secs(1));
    assert_eq!(
        muster_server::tasks::idempotency::forget(&server.app)
            .await
            .unwrap(),
        1
    );
    let second = admin
        .header("idempotency-key", "k1")
        .post("/v1/claims", &body)
        .await
        .expect(201);
    assert_ne!(first.body["id"], second.body["id"]);
}
