//! The facts of a rollout's nodes, as the planner reads them.

use jiff::Timestamp;
use muster_api::operations::OperationState;
use muster_core::ids::{NodeId, RolloutId};
use muster_core::lifecycle::state::{Action, State};
use muster_core::rollout::Mark;
use muster_server::db::rollout_facts::{self, NodeRow};
use muster_server::db::rollout_nodes;
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
const OF_NODE: [RareFact; 8] = [
    ("protected = true", |row| row.protected),
    ("adopted = true", |row| row.adopted),
    ("held_back = true", |row| row.held_back),
    ("os_host_key = NULL", |row| row.has_no_system),
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
const OF_CLAIM: [RareFact; 3] = [
    ("hold = true", |row| row.hold),
    ("served_at = NULL", |row| !row.served),
    ("state = 'releasing'", |row| !row.is_member),
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
    let of_claim = OF_CLAIM.map(|(set, has)| {
        let change = format!("UPDATE claims SET {set} WHERE name = 'c-n1'");
        (change, has)
    });
    let plain = read(&world, "UPDATE nodes SET labels = '{}' WHERE name = 'n1'").await;
    assert_eq!(
        (plain.mark, plain.state, plain.labels.0.len()),
        (Mark::NotBegun, State::InService, 0)
    );
    for (change, has) in of_mark.iter().chain(&of_node).chain(&of_claim) {
        assert!(!has(&plain), "{change}");
        assert!(has(&read(&world, change).await), "{change}");
    }
}

/// A measurement of pairs holds the node back until its end.
#[tokio::test]
async fn a_node_in_a_measurement_of_pairs_is_held_back() {
    let world = serving(2, json!("100%")).await;
    plan(&world, 2, &policy()).await.expect(201);
    for (back_at, held_back) in [("NULL", true), ("now()", false)] {
        let change = format!(
            "WITH run AS (
                 INSERT INTO pair_runs (id, pool_id, actor, suite, beyond, begun_at, deadline_at)
                 SELECT o.id, (SELECT id FROM objects WHERE kind = 'pool'), 'test', '{{}}', 0, now(), now() FROM operations o WHERE o.finished_at IS NULL
                 RETURNING id)
             INSERT INTO pair_ends (run_id, name, node_id, back_at) SELECT run.id, n.name, n.id, {back_at} FROM run, nodes n WHERE n.name = 'n1'"
        );
        assert_eq!(read(&world, &change).await.held_back, held_back);
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
        assert_eq!(row.state.as_str(), state);
        assert_eq!(row.state_reason.as_deref(), Some("why"), "{state}");
        assert_eq!(row.failed_phase.is_some(), state == "failed", "{state}");
    }
    for (operation, is_attempt) in [
        ("n.operation_id", true),
        (
            "(SELECT id FROM operations WHERE finished_at IS NULL)",
            false,
        ),
    ] {
        let change = format!(
            "UPDATE rollout_nodes r SET mark = 'changing', operation_id = {operation} FROM nodes n
             WHERE n.id = r.node_id AND n.name = 'n1' AND n.operation_id IS NOT NULL"
        );
        let row = read(&world, &change).await;
        assert_eq!(row.is_attempt, is_attempt, "{operation}");
        let is_open = row.attempt == Some(OperationState::Queued);
        assert_eq!(is_open, !is_attempt, "{operation}: {:?}", row.attempt);
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

/// A person may assign another revision between the plan and the change.
#[tokio::test]
async fn the_revision_assigned_last_is_kept_when_the_target_is_assigned() {
    let world = serving(2, json!("100%")).await;
    publish(&world, "3").await;
    plan(&world, 2, &policy()).await.expect(201);
    let mut tx = world.server.app.pool.begin().await.unwrap();
    let set = "UPDATE claims SET assigned_id = (SELECT id FROM pool_revisions WHERE number = 3) WHERE name = 'c-n1'";
    sqlx::query(set).execute(&mut *tx).await.unwrap();
    let ids = "SELECT r.rollout_id, r.node_id FROM rollout_nodes r JOIN nodes n ON n.id = r.node_id WHERE n.name = 'n1'";
    let (rollout, node): (Uuid, Uuid) = sqlx::query_as(ids).fetch_one(&mut *tx).await.unwrap();
    let (rollout, node) = (RolloutId(rollout), NodeId(node));
    let now: Timestamp = AT.parse().unwrap();
    // A second call, as after a crash, keeps the same revision.
    for _ in 0..2 {
        let assigned = rollout_nodes::assign_target(&mut tx, rollout, node, now).await;
        assert!(assigned.unwrap());
        let rows = rollout_facts::list_nodes(&mut tx, rollout).await.unwrap();
        let row = rows.iter().find(|row| row.node == node).expect("n1");
        assert_eq!((row.former, row.assigned), (Some(3), Some(2)));
    }
    let released = "UPDATE claims SET state = 'releasing' WHERE name = 'c-n1'";
    sqlx::query(released).execute(&mut *tx).await.unwrap();
    let assigned = rollout_nodes::assign_target(&mut tx, rollout, node, now).await;
    assert!(!assigned.unwrap());
}
