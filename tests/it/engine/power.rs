//! Racks that cannot feed all at once, and more than one engine.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_server::engine;
use serde_json::json;

use crate::simulated::World;

#[tokio::test]
async fn a_power_budget_orders_power_ons_and_everybody_gets_through() {
    // Three of 300 W fit into 1000 W.
    let world = World::declare(7, |path, mut body| {
        if path == "/v1/racks/r1" {
            body["spec"]["power_budget_w"] = json!(1000);
        }
        body
    })
    .await;
    let mut most = 0;
    for _ in 0..500 {
        world.engine().await;
        let reserved: i64 = sqlx::query_scalar("SELECT sum(power_reserved_w) FROM nodes")
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap();
        assert!(reserved <= 1000, "{reserved} W of 1000 W are promised");
        most = most.max(reserved);
        // One job at a time, so that the nodes are everywhere on their way.
        match world.agent.lease(1, 0).await.unwrap().pop() {
            Some(job) => drop(world.agent.work(&job).await.unwrap()),
            None => break,
        }
        if most == 900 && world.state("n1").await == "inspecting" {
            let waits: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM nodes WHERE waiting_for = 'r1''s power budget: 900 of 1000 W are committed, this node may draw 300 W'",
            )
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap();
            assert!(waits > 0, "who waits says for what");
        }
    }
    assert_eq!(most, 900);
    // Freed power wakes who waits: no time has passed.
    for number in 1..=7 {
        assert_eq!(world.state(&format!("n{number}")).await, "available");
    }
    world.check().await;
}

/// A rack that can feed everybody is not a queue.
#[tokio::test]
async fn nobody_waits_for_a_rack_that_can_feed_all() {
    let world = World::declare(3, |path, mut body| {
        if path == "/v1/racks/r1" {
            body["spec"]["power_budget_w"] = json!(900);
        }
        body
    })
    .await;
    // Another turn, on another replica, that has not ended.
    let mut other = world.server.app.pool.begin().await.unwrap();
    sqlx::query("SELECT id FROM objects WHERE kind = 'rack' FOR SHARE")
        .execute(&mut *other)
        .await
        .unwrap();
    tokio::time::timeout(Duration::from_secs(20), world.engine())
        .await
        .expect("the engine does not wait for it");
    let reserved = "SELECT sum(power_reserved_w) FROM nodes";
    let watts: i64 = sqlx::query_scalar(reserved)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    assert_eq!(watts, 900);
}

/// Two engines and two agents on one database: every transition happens once, in order, and nobody overwrites anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_engines_share_fifty_nodes() {
    let world = World::start(50).await;
    let second = world.second_agent().await;
    let mut work = tokio::task::JoinSet::new();
    for agent in [world.agent.clone(), second] {
        let app = world.server.app.clone();
        work.spawn(async move {
            let mut idle = 0;
            while idle < 50 {
                let turns = engine::run_until_idle(&app).await.unwrap();
                let jobs = agent.lease(5, 0).await.unwrap();
                idle = if turns == 0 && jobs.is_empty() {
                    idle + 1
                } else {
                    0
                };
                for job in jobs {
                    agent.work(&job).await.unwrap();
                }
                tokio::task::yield_now().await;
            }
        });
    }
    work.join_all().await;
    world.check().await;
    let counts: Vec<(String, i64)> = sqlx::query_as(
        "SELECT kind || COALESCE(' ' || COALESCE(detail ->> 'to', detail ->> 'step'), ''), count(*) FROM events
         WHERE kind IN ('node.advanced', 'step.queued', 'step.succeeded', 'step.retried', 'step.failed', 'step.stale') GROUP BY 1",
    )
    .fetch_all(&world.server.app.pool)
    .await
    .unwrap();
    let expected = [
        "node.advanced available",
        "node.advanced inspecting",
        "step.queued boot_live",
        "step.queued inventory",
        "step.queued power_off",
        "step.succeeded boot_live",
        "step.succeeded inventory",
        "step.succeeded power_off",
    ];
    let expected: BTreeMap<String, i64> = expected
        .iter()
        .map(|what| ((*what).to_owned(), 50))
        .collect();
    assert_eq!(counts.into_iter().collect::<BTreeMap<_, _>>(), expected);
}
