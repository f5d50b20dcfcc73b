//! The estimated end of a large rollout: calculated by a task, stored, and forgotten with the policy.

use jiff::Timestamp;
use serde_json::{Value, json};

use muster_server::tasks::rollouts;

use crate::rollouts::{plan, policy, serving, show, steer};
use crate::simulated::World;

/// Adds nodes in service to the pool, without machines.
async fn add_nodes(world: &World, nodes: i32) {
    let mut tx = world.server.app.pool.begin().await.unwrap();
    let statements = [
        "SET LOCAL session_replication_role = replica",
        "INSERT INTO nodes (id, name, labels, annotations, spec, site_id, profile_id, serial, power, power_person, created_at, updated_at, state, entered_at, epoch, in_cluster)
         SELECT gen_random_uuid(), 'z' || i, '{}', '{}', jsonb_build_object('site', 'lab'), n.site_id, n.profile_id, 'Z' || i, 'manual', 'somebody',
                n.created_at, n.updated_at, 'in_service', n.entered_at, 1, true
         FROM nodes n, generate_series(1, NODES) i WHERE n.name = 'n1'",
        "INSERT INTO claims (id, name, node_id, pool_id, spec, state, epoch, actor, created_at, updated_at, assigned_id, imaged_id, running_id, served_at)
         SELECT gen_random_uuid(), 'c-' || z.name, z.id, c.pool_id, c.spec, c.state, 1, c.actor, c.created_at, c.updated_at, c.assigned_id, c.imaged_id, c.running_id, c.served_at
         FROM nodes z, claims c JOIN nodes n ON n.id = c.node_id WHERE z.name LIKE 'z%' AND n.name = 'n1'",
    ];
    for sql in statements {
        let sql = sql.replace("NODES", &nodes.to_string());
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
}

async fn estimate(world: &World) -> Value {
    show(world, "gpu-1").await["estimate"].clone()
}

/// The time from the calculation to the late end.
fn seconds(estimate: &Value) -> i64 {
    let at = |name: &str| {
        let time: Timestamp = estimate[name].as_str().unwrap().parse().unwrap();
        time.as_second()
    };
    at("late") - at("as_of")
}

#[tokio::test]
async fn a_large_rollout_is_estimated_by_the_task() {
    let world = serving(1, json!("100%")).await;
    world.agent.report_jobs().await.unwrap();
    add_nodes(&world, 260).await;
    let planned = plan(&world, 2, &policy()).await.expect(201).body;
    assert_eq!(planned["planned"], 261);
    let pending = estimate(&world).await;
    let why = pending["unknown"].as_str().unwrap();
    assert!(why.contains("261 nodes is being calculated"), "{why}");
    let app = &world.server.app;
    assert_eq!(rollouts::estimate(app).await.unwrap(), 1);
    let first = estimate(&world).await;
    assert!(first["early"].as_str() < first["late"].as_str(), "{first}");
    assert_eq!(first["unknown"], Value::Null);
    assert!(first["as_of"].is_string(), "{first}");

    // Each estimate stands for minutes, and is then calculated anew.
    world.advance(60);
    assert_eq!(rollouts::estimate(app).await.unwrap(), 0);
    world.advance(300);
    world.agent.report_jobs().await.unwrap();
    assert_eq!(rollouts::estimate(app).await.unwrap(), 1);
    assert_ne!(estimate(&world).await["as_of"], first["as_of"]);

    let body = json!({ "plan": planned["plan"] });
    steer(&world, "gpu-1", "start", body).await.expect(200);
    assert!(estimate(&world).await["unknown"].is_string());
    assert_eq!(rollouts::estimate(app).await.unwrap(), 1);
    let slower =
        json!({ "policy": { "budgets": { "max_changing": 5 } }, "reason": "the mirror is busy" });
    steer(&world, "gpu-1", "adjust", slower).await.expect(200);
    assert!(estimate(&world).await["unknown"].is_string());
    assert_eq!(rollouts::estimate(app).await.unwrap(), 1);
    let slow = estimate(&world).await;
    assert!(seconds(&slow) > seconds(&first), "{slow}");

    // A halt is known at once.
    let halt = json!({ "reason": "the deadline is near" });
    steer(&world, "gpu-1", "halt", halt).await.expect(200);
    let halted = estimate(&world).await;
    assert!(
        halted["unknown"]
            .as_str()
            .unwrap()
            .contains("the deadline is near"),
        "{halted}"
    );
}

#[tokio::test]
async fn a_small_rollout_is_estimated_for_its_reader() {
    let world = serving(2, json!("100%")).await;
    world.agent.report_jobs().await.unwrap();
    plan(&world, 2, &policy()).await.expect(201);
    let seen = estimate(&world).await;
    assert!(
        seen["early"].is_string() && seen["as_of"] == Value::Null,
        "{seen}"
    );
    assert_eq!(rollouts::estimate(&world.server.app).await.unwrap(), 0);
}
