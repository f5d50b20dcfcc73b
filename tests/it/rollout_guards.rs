//! Guards of the executor of rollouts: changes between the plan of a tick and the acts, and members that
//! come and go. A trigger makes a change in the transaction of the first act, so the change precedes the
//! second act in every run.

use muster_core::gates::Verdict;
use muster_server::tasks::rollouts;
use serde_json::{Value, json};

use crate::rollout_jobs::run_job;
use crate::rollouts::{
    at_once, marked, marks, plan, policy, publish, serving, settle, show, start, steer, taken,
    until_one_changes,
};
use crate::simulated::World;

/// Runs a statement when the first node gets a mark. The statement reads the node's row as `NEW`.
pub(crate) async fn at_first(world: &World, mark: &str, statement: &str) {
    let trigger = format!(
        "CREATE OR REPLACE FUNCTION interfere() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {statement}; RETURN NULL; END $$;
         CREATE OR REPLACE TRIGGER interfere AFTER UPDATE ON rollout_nodes FOR EACH ROW
         WHEN (NEW.mark = '{mark}' AND OLD.mark <> NEW.mark) EXECUTE FUNCTION interfere()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(trigger))
        .execute(&world.server.app.pool)
        .await
        .unwrap();
}

/// One tick that plans to close both nodes of a pool, with a statement after the first close. Returns
/// the rollout after the tick.
async fn tick(statement: &str) -> (World, Value) {
    let world = serving(2, json!("100%")).await;
    let name = start(&world, 2, &at_once()).await;
    at_first(&world, "changing", statement).await;
    world.agent.report_jobs().await.unwrap();
    rollouts::round(&world.server.app).await.unwrap();
    let seen = show(&world, &name).await;
    (world, seen)
}

#[tokio::test]
async fn a_change_after_the_plan_of_a_tick_stops_the_next_act() {
    let (world, seen) = tick("NULL").await;
    assert_eq!(taken(&world).await.len(), 2, "one tick: {seen:#}");
    for statement in [
        "UPDATE claims SET hold = true WHERE id <> NEW.claim_id",
        "UPDATE rollouts SET state = 'halted', halt = '{\"person\": \"smoke\"}'",
        "UPDATE rollouts SET state = 'superseded', ended_at = NEW.since",
        "UPDATE rollouts SET state = 'done', ended_at = NEW.since",
        "UPDATE rollout_nodes SET mark = 'skipped' WHERE node_id <> NEW.node_id",
    ] {
        let (world, seen) = tick(statement).await;
        let taken = taken(&world).await;
        assert_eq!(taken.len(), 1, "{statement}: {seen:#}");
        let other = if taken[0] == "n1" { "n2" } else { "n1" };
        assert_eq!(world.state(other).await, "in_service", "{statement}");
    }
}

#[tokio::test]
async fn a_budget_lowered_after_the_plan_of_a_tick_stops_the_next_act() {
    let lower = "UPDATE rollouts SET policy = jsonb_set(policy, '{budgets,max_changing}', '1')";
    let (world, seen) = tick(lower).await;
    assert_eq!(taken(&world).await.len(), 1, "{seen:#}");
}

#[tokio::test]
async fn a_refused_act_leaves_the_mark_and_names_the_refusal() {
    let protect = "UPDATE nodes SET protected = true WHERE id <> NEW.node_id";
    let (world, seen) = tick(protect).await;
    assert_eq!(taken(&world).await.len(), 1, "{seen:#}");
    let refused = marked(&seen, "not_begun");
    let nodes = seen["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["node"] == refused).unwrap();
    assert_eq!(node["last"]["code"], "protected", "{seen:#}");
    // The revision of the refused act is not assigned.
    let path = format!("/v1/claims/c-{refused}");
    let claim = world.admin.get(&path).await.expect(200).body;
    assert_eq!(claim["status"]["revision"], 1);
}

#[tokio::test]
async fn the_mark_of_a_node_follows_the_change_during_a_halt() {
    let mut world = serving(2, json!("100%")).await;
    let name = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &name).await;
    let node = marked(&show(&world, &name).await, "changing");
    world.until(&node, "installing").await;
    let reason = json!({ "reason": "the deadline is near" });
    steer(&world, &name, "halt", reason).await.expect(200);
    settle(&mut world).await;
    let halted = show(&world, &name).await;
    assert_eq!(halted["state"], "halted");
    assert_eq!(marked(&halted, "done"), node, "{halted:#}");
    assert!(marks(&halted).contains(&"not_begun"), "{halted:#}");
}

#[tokio::test]
async fn a_claim_that_joins_the_pool_joins_the_rollout() {
    let mut world = serving(3, json!("100%")).await;
    world.release("n3").await.expect(202);
    world.settle().await;
    let name = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &name).await;
    let body = json!({ "name": "late", "spec": { "pool": "gpu", "node": "n3" } });
    world.admin.post("/v1/claims", &body).await.expect(201);
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(
        (&done["state"], marks(&done)),
        (&json!("done"), vec!["done"; 3]),
        "{done:#}"
    );
    let claim = world.admin.get("/v1/claims/late").await.expect(200).body;
    assert_eq!(claim["status"]["running_revision"], 2);
    world.check().await;
}

/// The rows of a plan are the members at the time of the plan.
#[tokio::test]
async fn nodes_claimed_after_the_plan_count_in_the_budget() {
    let mut world = World::declare(6, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["max_unavailable"] = json!("50%");
        }
        body
    })
    .await;
    world.settle().await;
    for node in ["n1", "n2", "n3", "n4"] {
        world.claim(node).await.expect(201);
    }
    settle(&mut world).await;
    publish(&world, "2").await;
    let planned = plan(&world, 2, &at_once()).await.expect(201).body;
    let name = planned["name"].as_str().unwrap();
    let before = show(&world, name).await;
    assert_eq!(before["now"]["most_changing"], 2, "{before:#}");

    for node in ["n5", "n6"] {
        world.claim(node).await.expect(201);
    }
    settle(&mut world).await;
    let after = show(&world, name).await;
    assert_eq!(after["now"]["most_changing"], 3, "half of 6: {after:#}");
    assert_eq!(marks(&after).len(), 4, "no row before the start: {after:#}");
}

/// The numbers of rows and of claims are equal at the next tick.
#[tokio::test]
async fn a_node_claimed_anew_between_two_ticks_joins_the_rollout() {
    let mut world = serving(2, json!("100%")).await;
    let name = start(&world, 2, &policy()).await;
    let reason = json!({ "reason": "a test" });
    steer(&world, &name, "halt", reason.clone())
        .await
        .expect(200);
    settle(&mut world).await;
    world.release("n2").await.expect(202);
    world.settle().await;
    let body = json!({ "name": "anew", "spec": { "pool": "gpu", "node": "n2" } });
    world.admin.post("/v1/claims", &body).await.expect(201);
    world.settle().await;
    steer(&world, &name, "resume", reason).await.expect(200);
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(marks(&done), ["done"; 2], "{done:#}");
    let claim = world.admin.get("/v1/claims/anew").await.expect(200).body;
    assert_eq!(claim["status"]["running_revision"], 2);
}

#[tokio::test]
async fn a_failed_node_that_leaves_the_pool_stays_counted() {
    let mut world = serving(3, json!("100%")).await;
    let hold = async |world: &World, node: &str, hold: bool| {
        let path = format!("/v1/claims/c-{node}");
        let body = json!({ "spec": { "hold": hold } });
        world.admin.patch(&path, &body).await.expect(200);
    };
    hold(&world, "n2", true).await;
    hold(&world, "n3", true).await;
    let mut one = policy();
    one["canary"] = Value::Null;
    one["failure_budget"] = json!({ "count": 1, "percent": 100 });
    world.gates("n1", &[Verdict::Fail]);
    let name = start(&world, 2, &one).await;
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(
        (&seen["state"], marks(&seen)[0]),
        (&json!("running"), "failed")
    );
    world.release("n1").await.expect(202);
    world.settle().await;
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(marks(&seen), ["not_begun"; 2], "{seen:#}");
    // The next failure is the second one of the run.
    world.gates("n2", &[Verdict::Fail]);
    hold(&world, "n2", false).await;
    settle(&mut world).await;
    let halted = show(&world, &name).await;
    assert_eq!(halted["halt"]["code"], "failure_budget", "{halted:#}");
}

#[tokio::test]
async fn an_act_without_a_slot_is_undone() {
    let shrink =
        "UPDATE objects SET spec = jsonb_set(spec, '{max_unavailable}', '1') WHERE kind = 'pool'";
    let (world, seen) = tick(shrink).await;
    assert_eq!(taken(&world).await.len(), 1, "{seen:#}");
    let other = marked(&seen, "not_begun");
    let path = format!("/v1/claims/c-{other}");
    let claim = world.admin.get(&path).await.expect(200).body;
    assert_eq!(claim["status"]["revision"], 1);
    assert_eq!(world.value(&other, "wish").await, None);
    world.check().await;
}

#[tokio::test]
async fn a_node_that_moved_on_after_the_plan_is_not_given_back() {
    let (world, seen) = tick("NULL").await;
    let name = seen["name"].as_str().unwrap();
    let moves = "UPDATE nodes SET operation_id = NULL WHERE id <> NEW.node_id";
    at_first(&world, "not_begun", moves).await;
    let reason = json!({ "reason": "the deadline is near" });
    steer(&world, name, "halt", reason).await.expect(200);
    rollouts::round(&world.server.app).await.unwrap();
    let seen = show(&world, name).await;
    let other = marked(&seen, "changing");
    assert!(marks(&seen).contains(&"not_begun"), "{seen:#}");
    let path = format!("/v1/claims/c-{other}");
    let claim = world.admin.get(&path).await.expect(200).body;
    assert_eq!(claim["status"]["revision"], 2);
    assert_eq!(world.value(&other, "wish").await, None);
}

#[tokio::test]
async fn a_revision_assigned_by_others_stays_at_the_end_of_the_drain() {
    let mut world = serving(2, json!("100%")).await;
    let name = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &name).await;
    let node = marked(&show(&world, &name).await, "changing");
    publish(&world, "3").await;
    let assign = "UPDATE claims c SET assigned_id = r.id FROM pool_revisions r, nodes n
                  WHERE r.pool_id = c.pool_id AND r.number = 3 AND n.id = c.node_id AND n.name = $1";
    let assign = sqlx::query(assign).bind(&node);
    assign.execute(&world.server.app.pool).await.unwrap();
    world.ask(&node, "undrain").await.expect(202);
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(marked(&seen, "skipped"), node, "{seen:#}");
    let path = format!("/v1/claims/c-{node}");
    let claim = world.admin.get(&path).await.expect(200).body;
    assert_eq!(claim["status"]["revision"], 3);
}

#[tokio::test]
async fn a_hold_gives_a_draining_node_back_until_the_end_of_the_hold() {
    let mut world = serving(2, json!("100%")).await;
    let name = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &name).await;
    let node = marked(&show(&world, &name).await, "changing");
    let path = format!("/v1/claims/c-{node}");
    let hold = async |world: &World, hold: bool| {
        let body = json!({ "spec": { "hold": hold } });
        world.admin.patch(&path, &body).await.expect(200)
    };
    let held = hold(&world, true).await.body;
    assert_eq!(held["status"]["revision"], 2);
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert!(marks(&seen).contains(&"not_begun"), "{seen:#}");
    assert_eq!(world.state(&node).await, "in_service");
    let back = world.admin.get(&path).await.expect(200).body;
    assert_eq!(back["status"]["revision"], 1);
    hold(&world, false).await;
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(marks(&done), ["done"; 2], "{done:#}");
    world.check().await;
}

#[tokio::test]
async fn a_change_is_tried_again_until_the_same_result_is_seen_twice() {
    for (failures, mark) in [(1, "done"), (2, "failed")] {
        let mut world = serving(1, json!("100%")).await;
        world.fail("n1", "converge", false, failures);
        let name = start(&world, 2, &policy()).await;
        settle(&mut world).await;
        let seen = show(&world, &name).await;
        assert_eq!(marks(&seen), [mark], "{failures} failures: {seen:#}");
    }
}

/// Trap 16: the nodes of the superseded revision are the first, before idle nodes.
#[tokio::test]
async fn nodes_of_the_superseded_revision_go_first() {
    let mut world = serving(3, json!("100%")).await;
    let first = start(&world, 2, &policy()).await;
    for _ in 0..100 {
        if marks(&show(&world, &first).await).contains(&"done") {
            break;
        }
        world.agent.report_jobs().await.unwrap();
        rollouts::round(&world.server.app).await.unwrap();
        world.pass().await;
    }
    let halt = json!({ "reason": "revision 2 is bad" });
    steer(&world, &first, "halt", halt).await.expect(200);
    settle(&mut world).await;
    let bad = taken(&world).await[0].clone();
    run_job(&world, "17", Some(300), &[&bad]);
    world.agent.report_jobs().await.unwrap();
    publish(&world, "3").await;
    let next = plan(&world, 3, &policy()).await.expect(201).body;
    let nodes = next["nodes"].as_array().unwrap();
    let canary = nodes.iter().find(|node| node["wave"] == 0);
    assert_eq!(canary.unwrap()["node"], bad.as_str(), "{next:#}");
    let body = json!({ "plan": next["plan"], "supersede": true });
    steer(&world, "gpu-2", "start", body).await.expect(200);
    let before = taken(&world).await.len();
    until_one_changes(&mut world, "gpu-2").await;
    assert_eq!(taken(&world).await[before], bad);
}

#[tokio::test]
async fn trap_19_a_node_serves_again_after_a_failed_drain() {
    let mut world = serving(1, json!("100%")).await;
    world.fail("n1", "drain", false, 1);
    let name = start(&world, 2, &policy()).await;
    let path = "/v1/claims/c-n1";
    let revision = async |world: &World| {
        let claim = world.admin.get(path).await.expect(200).body;
        claim["status"]["revision"].clone()
    };
    for (again, mark) in [(1, "not_begun"), (0, "failed")] {
        until_one_changes(&mut world, &name).await;
        settle(&mut world).await;
        let seen = show(&world, &name).await;
        assert_eq!(marks(&seen), [mark], "{seen:#}");
        assert_eq!(world.state("n1").await, "in_service");
        assert_eq!(revision(&world).await, 1);
        // The same failure once more.
        world.fail("n1", "drain", false, again);
        world.advance(11 * 60);
    }
    let states = world.states("n1").await;
    let drained = states.iter().filter(|state| *state == "draining").count();
    assert_eq!(drained, 2, "{states:?}");
    world.check().await;
}

#[tokio::test]
async fn trap_19_a_second_drain_that_succeeds_changes_the_node() {
    let mut world = serving(1, json!("100%")).await;
    world.fail("n1", "drain", false, 1);
    let name = start(&world, 2, &policy()).await;
    settle(&mut world).await;
    assert_eq!(world.state("n1").await, "in_service");
    world.advance(11 * 60);
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(marks(&done), ["done"], "{done:#}");
    world.check().await;
}

#[tokio::test]
async fn a_node_that_the_scheduler_does_not_take_back_has_failed() {
    let mut world = serving(2, json!("100%")).await;
    let mut named = policy();
    named["canary"] = json!({ "nodes": ["n1"], "soak_s": 0 });
    world.fail("n1", "drain", false, 1);
    world.fail("n1", "admit", false, 1);
    let name = start(&world, 2, &named).await;
    settle(&mut world).await;
    let halted = show(&world, &name).await;
    assert_eq!(marked(&halted, "failed"), "n1", "{halted:#}");
    assert_eq!(halted["state"], "halted", "{halted:#}");
    assert_eq!(world.state("n1").await, "failed");
    world.check().await;
}

#[tokio::test]
async fn a_failed_drain_that_a_person_repeats_is_left_to_the_person() {
    let mut world = serving(1, json!("100%")).await;
    let name = start(&world, 2, &policy()).await;
    world.fail("n1", "drain", false, 2);
    until_one_changes(&mut world, &name).await;
    world.until("n1", "failed").await;
    world.ask("n1", "retry").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "failed");
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(marks(&seen), ["skipped"], "{seen:#}");
    assert_eq!(world.state("n1").await, "failed");
    world.check().await;
}
