//! The facts of a rollout's nodes, as the planner reads them.

use jiff::Timestamp;
use muster_core::ids::RolloutId;
use muster_core::lifecycle::state::{Action, State};
use muster_core::rollout::Mark;
use muster_server::db::rollout_facts::{self, NodeRow};
use serde_json::json;
use uuid::Uuid;

use crate::rollouts::{plan, policy, publish, serving};
use crate::simulated::World;

/// A rare fact of a node in service, and whether the row has the fact.
type RareFact = (&'static str, fn(&NodeRow) -> bool);

/// An instant of the database, and of the row.
const AT: &str = "2026-01-06T09:30:15.123456Z";

const OF_MARK: [RareFact; 7] = [
    ("wrong = '{a}'", |row| row.wrong == ["a"]),
    ("failed_before = true", |row| row.failed_before),
    ("deferred_until = 'AT'", |row| is_at(row.deferred_until)),
    ("idle_since = 'AT'", |row| is_at(row.idle_since)),
    ("retried_at = 'AT'", |row| is_at(row.retried_at)),
    ("requeue_agreed_at = 'AT'", |row| {
        is_at(row.requeue_agreed_at)
    }),
    ("unit_change = 'started'", |row| row.unit_started),
];
const OF_NODE: [RareFact; 4] = [
    ("labels = '{\"a\": \"b\"}'", |row| {
        row.labels.0.get("a").is_some_and(|label| label == "b")
    }),
    ("wish = 'converge'", |row| {
        row.action == Some(Action::Converge)
    }),
    ("waiting_reason = 'unit'", |row| row.waits_for_unit),
    (
        "operation_id = (SELECT id FROM operations WHERE finished_at IS NULL)",
        |row| row.open_operation.as_deref() == Some("test"),
    ),
];
const OPERATION: &str = "INSERT INTO operations (id, kind, state, actor, created_at)
    VALUES (gen_random_uuid(), 'test', 'queued', 'test', now())";

fn is_at(at: Option<Timestamp>) -> bool {
    at.is_some_and(|at| at.to_string() == AT)
}

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
        let set = set.replace("AT", AT);
        let change = format!(
            "UPDATE rollout_nodes r SET {set} FROM nodes n WHERE n.id = r.node_id AND n.name = 'n1'"
        );
        (change, has)
    });
    let of_node = OF_NODE.map(|(set, has)| {
        let change = format!("UPDATE nodes SET {set} WHERE name = 'n1'");
        (change, has)
    });
    let plain = read(&world, "UPDATE nodes SET labels = '{}' WHERE name = 'n1'").await;
    assert_eq!(
        (plain.mark, plain.state, plain.labels.0.len()),
        (Mark::NotBegun, State::InService, 0)
    );
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
    let out = [
        ("quarantined", ""),
        ("failed", ", failed_phase = 'imaging'"),
        ("validating", ""),
    ];
    for (state, set) in out {
        let change =
            format!("UPDATE nodes SET state = '{state}', reason = 'why' {set} WHERE name = 'n1'");
        let row = read(&world, &change).await;
        assert_eq!(row.state_reason.as_deref(), Some("why"), "{state}");
        assert_eq!(row.failed_phase.is_some(), state == "failed", "{state}");
    }
    let broken = "WITH n AS (UPDATE nodes SET state = 'quarantined', reason = 'why' WHERE name = 'n1' RETURNING id)
                  UPDATE rollout_nodes r SET mark = 'done', changed = true FROM n WHERE n.id = r.node_id";
    assert!(read(&world, broken).await.is_broken);
}

#[tokio::test]
async fn each_revision_of_a_node_has_its_own_number() {
    let world = serving(2, json!("100%")).await;
    publish(&world, "3").await;
    plan(&world, 2, &policy()).await.expect(201);
    let revision = |number: i32| format!("(SELECT id FROM pool_revisions WHERE number = {number})");
    let change = format!(
        "WITH c AS (UPDATE claims SET assigned_id = {}, running_id = {} WHERE name = 'c-n1' RETURNING id)
         UPDATE rollout_nodes r SET before_id = {} FROM c WHERE c.id = r.claim_id",
        revision(3),
        revision(2),
        revision(1)
    );
    let row = read(&world, &change).await;
    assert_eq!(
        (row.former, row.assigned, row.running),
        (Some(1), Some(3), Some(2))
    );
    let unknown = "UPDATE claims SET running_id = NULL WHERE name = 'c-n1'";
    assert_eq!(read(&world, unknown).await.running, None);
}
