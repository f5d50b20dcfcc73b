//! Many callers, one thing: one of them gets it, the others are told why not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::fleet;
use crate::support::server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_writers_one_is_told_that_it_was_late() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for round in 1..=20 {
        let mut writers = JoinSet::new();
        for writer in ["a", "b"] {
            // The first round creates, the others replace what they read.
            let caller = match round {
                1 => admin.header("if-none-match", "*"),
                _ => admin.expecting(round - 1),
            };
            let body =
                json!({ "labels": { "by": writer, "round": round.to_string() }, "spec": {} });
            writers.spawn(async move { (writer, caller.put("/v1/sites/one", &body).await) });
        }
        let (mut won, mut late) = (Vec::new(), 0);
        while let Some(ended) = writers.join_next().await {
            let (writer, reply) = ended.unwrap();
            match (reply.status, reply.problem().1) {
                (200 | 201, _) => won.push(writer),
                (412, "stale_generation" | "exists") | (409, "name_taken") => late += 1,
                _ => panic!("round {round}: {}", reply.text),
            }
        }
        assert_eq!((won.len(), late), (1, 1), "round {round}");
        let site = admin.get("/v1/sites/one").await.expect(200);
        assert_eq!(
            (&site.body["labels"]["by"], &site.body["generation"]),
            (&json!(won[0]), &json!(round))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_hundred_claims_of_a_hundred_nodes_bind_each_node_once() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 100).await;
    let mut claims = JoinSet::new();
    for number in 0..500 {
        let caller = admin.header("idempotency-key", &format!("claim-{number}"));
        let body =
            json!({ "name": format!("c{number}"), "spec": { "pool": "gpu", "selector": {} } });
        claims.spawn(async move { caller.post("/v1/claims", &body).await });
    }
    let (mut nodes, mut refused) = (BTreeSet::new(), BTreeMap::new());
    while let Some(ended) = claims.join_next().await {
        let reply = ended.unwrap();
        match reply.status {
            201 => assert!(
                nodes.insert(reply.body["status"]["node"].to_string()),
                "claimed twice: {}",
                reply.text
            ),
            _ => {
                *refused
                    .entry((reply.status, reply.problem().1.to_owned()))
                    .or_insert(0) += 1
            }
        }
    }
    assert_eq!(nodes.len(), 100, "{refused:?}");
    assert_eq!(
        refused,
        BTreeMap::from([((409, "no_node_available".to_owned()), 400)])
    );
    let held = "SELECT count(*), count(DISTINCT node_id) FROM claims WHERE state <> 'released'";
    let held: (i64, i64) = sqlx::query_as(held)
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    assert_eq!(held, (100, 100));
}
