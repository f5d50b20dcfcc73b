//! Slots under the locks of pool and domain, and engines that run at the same time.

use muster_server::engine;
use serde_json::json;

use super::{budget, parity, read_account, serving};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn engines_at_the_same_time_take_one_slot_once() {
    const NODES: u8 = 8;
    let mut world = serving(NODES, json!(2), parity(json!(1))).await;
    for number in 1..=NODES {
        world
            .ask(&format!("n{number}"), "converge")
            .await
            .expect(202);
    }
    for _ in 0..200 {
        let engines = (0..6).map(|_| {
            let app = world.server.app.clone();
            tokio::spawn(async move { engine::run_until_idle(&app).await })
        });
        for done in futures::future::join_all(engines).await {
            done.unwrap().unwrap();
        }
        let seen = budget(&world).await;
        let (out, max, _) = read_account(&seen["account"]);
        assert!(out <= max, "{seen:#}");
        for domain in seen["domains"].as_array().unwrap() {
            let (out, max, _) = read_account(&domain["account"]);
            assert!(out <= max, "{seen:#}");
        }
        if out == 0 && seen["waiting"].as_array().unwrap().is_empty() {
            break;
        }
        world.pass().await;
        world.advance(5);
    }
    for number in 1..=NODES {
        let node = format!("n{number}");
        let states = world.states(&node).await;
        let drained = states.iter().filter(|state| *state == "draining").count();
        assert_eq!(
            (drained, world.state(&node).await.as_str()),
            (1, "in_service"),
            "{node}"
        );
    }
    world.check().await;
}

/// Returns when a transaction in the test's database waits for an advisory lock. The key is for
/// the message of the panic.
async fn until_a_lock_is_awaited(pool: &sqlx::PgPool, key: &str) {
    let query = "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                 WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)";
    for _ in 0..600 {
        if sqlx::query_scalar(query).fetch_one(pool).await.unwrap() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("no act waits for {key}");
}

#[tokio::test]
async fn a_slot_is_taken_under_the_locks_of_the_pool_and_of_the_domain() {
    let world = serving(3, json!("100%"), parity(json!("100%"))).await;
    let pool = &world.server.app.pool;
    let id = async |kind: &str| -> sqlx::types::Uuid {
        let query =
            sqlx::query_scalar("SELECT id FROM objects WHERE kind = $1 AND name IN ('gpu', 'lab')");
        query.bind(kind.to_owned()).fetch_one(pool).await.unwrap()
    };
    let of_pool = format!("muster disruption pool {}", id("pool").await);
    let of_domain = format!("muster disruption domain {} feed:odd", id("site").await);
    for (node, key) in [("n1", of_pool), ("n3", of_domain)] {
        let mut holder = pool.begin().await.unwrap();
        sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))")
            .bind(&key)
            .execute(&mut *holder)
            .await
            .unwrap();
        world.ask(node, "maintain").await.expect(202);
        let app = world.server.app.clone();
        let waits = tokio::spawn(async move { engine::run_until_idle(&app).await });
        until_a_lock_is_awaited(pool, &key).await;
        assert_eq!(world.state(node).await, "in_service", "{key}");
        holder.rollback().await.unwrap();
        waits.await.unwrap().unwrap();
        assert_eq!(world.state(node).await, "draining");
    }
}
