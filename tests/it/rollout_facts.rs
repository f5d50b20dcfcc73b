//! The facts of a rollout's nodes, as the planner reads them.

use muster_core::ids::RolloutId;
use muster_core::rollout::Mark;
use muster_server::db::rollout_facts::{self, NodeRow};
use serde_json::json;
use uuid::Uuid;

use crate::rollouts::{plan, policy, serving};
use crate::simulated::World;

/// A rare fact of a node in service, and whether the row has the fact.
type RareFact = (&'static str, fn(&NodeRow) -> bool);

const OF_MARK: [RareFact; 7] = [
    ("wrong = '{a}'", |row| row.wrong == ["a"]),
    ("failed_before = true", |row| row.failed_before),
    ("deferred_until = now()", |row| row.deferred_until.is_some()),
    ("idle_since = now()", |row| row.idle_since.is_some()),
    ("retried_at = now()", |row| row.retried_at.is_some()),
    ("requeue_agreed_at = now()", |row| {
        row.requeue_agreed_at.is_some()
    }),
    ("unit_change = 'started'", |row| row.unit_started),
];
const OF_NODE: [RareFact; 3] = [
    ("wish = 'converge'", |row| row.action.is_some()),
    ("waiting_reason = 'unit'", |row| row.waits_for_unit),
    (
        "operation_id = (SELECT id FROM operations WHERE finished_at IS NULL)",
        |row| row.open_operation.as_deref() == Some("test"),
    ),
];
const OPERATION: &str = "INSERT INTO operations (id, kind, state, actor, created_at)
    VALUES (gen_random_uuid(), 'test', 'queued', 'test', now())";

/// Returns the row of `n1` after a change in a transaction, which is rolled back.
async fn read(world: &World, change: &str) -> NodeRow {
    let mut tx = world.server.app.pool.begin().await.unwrap();
    sqlx::query(OPERATION).execute(&mut *tx).await.unwrap();
    let changed = sqlx::query(sqlx::AssertSqlSafe(change))
        .execute(&mut *tx)
        .await;
    assert_eq!(changed.expect(change).rows_affected(), 1, "{change}");
    let id: Uuid = sqlx::query_scalar("SELECT id FROM rollouts")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let rows = rollout_facts::list_nodes(&mut tx, RolloutId(id))
        .await
        .unwrap();
    assert_eq!(rows.len(), 2);
    rows.into_iter().find(|row| row.name == "n1").expect("n1")
}

#[tokio::test]
async fn each_rare_fact_of_a_node_in_service_is_read() {
    let world = serving(2, json!("100%")).await;
    plan(&world, 2, &policy()).await.expect(201);
    let of_mark = OF_MARK.map(|(set, has)| {
        let change = format!(
            "UPDATE rollout_nodes r SET {set} FROM nodes n WHERE n.id = r.node_id AND n.name = 'n1'"
        );
        (change, has)
    });
    let of_node = OF_NODE.map(|(set, has)| {
        let change = format!("UPDATE nodes SET {set} WHERE name = 'n1'");
        (change, has)
    });
    let plain = read(
        &world,
        "UPDATE nodes SET updated_at = now() WHERE name = 'n1'",
    )
    .await;
    assert_eq!(
        (plain.mark, plain.state.as_str()),
        (Mark::NotBegun, "in_service")
    );
    assert!(plain.assigned == Some(1) && plain.running == Some(1) && plain.former == Some(1));
    for (change, has) in of_mark.iter().chain(&of_node) {
        assert!(!has(&plain), "{change}");
        assert!(has(&read(&world, change).await), "{change}");
    }
}

#[tokio::test]
async fn all_facts_of_a_node_with_work_are_read() {
    let world = serving(2, json!("100%")).await;
    plan(&world, 2, &policy()).await.expect(201);
    // The reason of the state belongs to the work of a begun node.
    for mark in ["waiting", "changing", "validating"] {
        let change = format!(
            "WITH n AS (UPDATE nodes SET reason = 'why' WHERE name = 'n1' RETURNING id)
             UPDATE rollout_nodes r SET mark = '{mark}' FROM n WHERE n.id = r.node_id"
        );
        assert_eq!(
            read(&world, &change).await.state_reason.as_deref(),
            Some("why")
        );
    }
    let out = "UPDATE nodes SET state = 'quarantined', reason = 'why' WHERE name = 'n1'";
    assert_eq!(read(&world, out).await.state_reason.as_deref(), Some("why"));
    let broken = "WITH n AS (UPDATE nodes SET state = 'quarantined', reason = 'why' WHERE name = 'n1' RETURNING id)
                  UPDATE rollout_nodes r SET mark = 'done', changed = true FROM n WHERE n.id = r.node_id";
    assert!(read(&world, broken).await.is_broken);
}
