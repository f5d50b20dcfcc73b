//! Rollouts: the nodes of a pool move to a revision in waves behind a canary, within the disruption
//! budget. The simulated world drives the executor, the engine and the agent.

use muster_api::tokens::Role;
use muster_core::gates::Verdict;
use muster_server::tasks::rollouts;
use serde_json::{Value, json};

use crate::schedulers::say;
use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::Reply;

/// Nodes in service on revision 1, and a published revision 2 that needs a reboot.
pub(crate) async fn serving(nodes: u8, max_unavailable: Value) -> World {
    let world = World::serving(nodes, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["max_unavailable"] = max_unavailable.clone();
        }
        body
    })
    .await;
    publish(&world, "2").await;
    world
}

pub(crate) async fn publish(world: &World, version: &str) {
    let mut stack = fleet::stack();
    stack["spec"]["version"] = json!(version);
    stack["spec"]["bundle"] = json!(fleet::digest("bundle"));
    stack["spec"]["kernel_args"] = json!(["nouveau.modeset=0", format!("v={version}")]);
    world.admin.put("/v1/stacks/base", &stack).await.expect(200);
}

/// A canary of 1 node without a soak, then waves of 2 nodes.
pub(crate) fn policy() -> Value {
    json!({
        "canary": { "count": 1, "soak_s": 0 },
        "waves": { "sizes": [2, 2, 2] },
        "budgets": { "max_waiting": "100%", "max_changing": "100%", "max_validating": "100%" },
        "failure_budget": { "count": 0 },
    })
}

/// The policy with all nodes in one wave, without a canary.
pub(crate) fn at_once() -> Value {
    let mut policy = policy();
    policy["canary"] = Value::Null;
    policy["waves"] = json!({ "sizes": ["100%"] });
    policy
}

pub(crate) async fn plan(world: &World, revision: i64, policy: &Value) -> Reply {
    let body = json!({ "pool": "gpu", "revision": revision, "policy": policy });
    world.admin.post("/v1/rollouts", &body).await
}

pub(crate) async fn steer(world: &World, rollout: &str, act: &str, body: Value) -> Reply {
    let path = format!("/v1/rollouts/{rollout}/actions/{act}");
    world.admin.post(&path, &body).await
}

/// Plans and starts a rollout. Returns its name.
pub(crate) async fn start(world: &World, revision: i64, policy: &Value) -> String {
    let planned = plan(world, revision, policy).await.expect(201).body;
    let name = planned["name"].as_str().unwrap().to_owned();
    let body = json!({ "plan": planned["plan"] });
    steer(world, &name, "start", body).await.expect(200);
    name
}

pub(crate) async fn show(world: &World, rollout: &str) -> Value {
    let path = format!("/v1/rollouts/{rollout}");
    world.admin.get(&path).await.expect(200).body
}

/// The marks of the nodes `n1`… in order.
pub(crate) fn marks(rollout: &Value) -> Vec<&str> {
    let nodes = rollout["nodes"].as_array().unwrap();
    nodes
        .iter()
        .map(|node| node["mark"].as_str().unwrap())
        .collect()
}

/// Runs the rollout task, the engine and the agent until no work is left.
pub(crate) async fn settle(world: &mut World) {
    for _ in 0..300 {
        world.agent.report_jobs().await.unwrap();
        let ticked = rollouts::round(&world.server.app).await.unwrap();
        let moved = world.pass().await;
        if !ticked && !moved {
            world.settle().await;
            world.agent.report_jobs().await.unwrap();
            if !rollouts::round(&world.server.app).await.unwrap() {
                return;
            }
        }
    }
    panic!("the rollout does not come to rest");
}

/// Runs until a node has left service for the rollout.
pub(crate) async fn until_one_changes(world: &mut World, rollout: &str) {
    for _ in 0..100 {
        world.agent.report_jobs().await.unwrap();
        rollouts::round(&world.server.app).await.unwrap();
        if marks(&show(world, rollout).await).contains(&"changing") {
            return;
        }
        world.pass().await;
    }
    panic!("no node changes");
}

/// The revision that a node runs.
pub(crate) async fn running(world: &World, node: &str) -> Option<i64> {
    let path = format!("/v1/claims/c-{node}");
    let claim = world.admin.get(&path).await.expect(200).body;
    claim["status"]["running_revision"].as_i64()
}

/// The nodes in the order of the rollout's `close` events.
pub(crate) async fn taken(world: &World) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT n.name FROM events e JOIN nodes n ON n.id = e.node_id
         WHERE e.kind = 'rollout.node' AND e.detail ->> 'act' = 'close' ORDER BY e.seq",
    )
    .fetch_all(&world.server.app.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_rollout_moves_a_pool_in_waves_behind_a_canary() {
    let mut world = serving(4, json!("100%")).await;
    let planned = plan(&world, 2, &policy()).await.expect(201).body;
    assert_eq!(
        (&planned["state"], &planned["planned"], &planned["name"]),
        (&json!("planned"), &json!(4), &json!("gpu-1"))
    );
    assert_eq!(planned["nodes"][0]["effect"], "reboot");
    settle(&mut world).await;
    assert_eq!(taken(&world).await.len(), 0, "a plan changes no node");

    let body = json!({ "plan": planned["plan"] });
    steer(&world, "gpu-1", "start", body).await.expect(200);
    until_one_changes(&mut world, "gpu-1").await;
    let canary = show(&world, "gpu-1").await;
    let changing = marks(&canary)
        .iter()
        .filter(|mark| **mark == "changing")
        .count();
    assert_eq!(changing, 1, "{canary:#}");
    assert_eq!(canary["now"]["binding"]["code"], "canary");
    let effects = |seen: &Value| {
        let nodes = seen["nodes"].as_array().unwrap().iter();
        nodes.filter(|node| node["effect"] == "reboot").count()
    };
    // From the begin of its converge, the revision of the canary is unknown.
    let node = marked(&canary, "changing");
    for _ in 0..100 {
        if running(&world, &node).await.is_none() {
            break;
        }
        world.pass().await;
    }
    assert_eq!(running(&world, &node).await, None);
    let converged = show(&world, "gpu-1").await;
    assert_eq!(effects(&converged), 4, "{converged:#}");
    settle(&mut world).await;
    let done = show(&world, "gpu-1").await;
    assert_eq!(effects(&done), 4, "{done:#}");
    assert_eq!(
        (&done["state"], marks(&done)),
        (&json!("done"), vec!["done"; 4])
    );
    for node in ["n1", "n2", "n3", "n4"] {
        assert_eq!(running(&world, node).await, Some(2), "{node}");
        let drained = world.states(node).await;
        let drained = drained.iter().filter(|state| *state == "draining").count();
        assert_eq!(drained, 1, "{node}");
    }
    let pool = world.admin.get("/v1/pools/gpu").await.expect(200).body;
    assert_eq!(pool["status"]["present_revision"], 2);
    world.check().await;
}

#[tokio::test]
async fn a_failed_node_halts_the_rollout_and_the_rollback_needs_no_health() {
    let mut world = serving(4, json!("100%")).await;
    world.gates("n3", &[Verdict::Fail]);
    let name = start(&world, 2, &policy()).await;
    settle(&mut world).await;
    let halted = show(&world, &name).await;
    assert_eq!(halted["state"], "halted", "{halted:#}");
    let mark =
        |rollout: &Value, mark: &str| marks(rollout).iter().filter(|one| **one == mark).count();
    assert_eq!(mark(&halted, "failed"), 1, "{halted:#}");
    assert!(
        ["failure_budget", "canary_failed"].contains(&halted["halt"]["code"].as_str().unwrap()),
        "{halted:#}"
    );
    assert!(mark(&halted, "not_begun") >= 1, "{halted:#}");
    let before = taken(&world).await;
    world.advance(3600);
    settle(&mut world).await;
    assert_eq!(
        taken(&world).await,
        before,
        "a halted rollout starts no work"
    );

    // The way back is a rollout to the former revision.
    let beside = plan(&world, 1, &policy()).await;
    let back = beside.expect(201).body;
    let refused = json!({ "plan": back["plan"] });
    let refused = steer(&world, "gpu-2", "start", refused).await;
    assert_eq!(refused.problem().0, 409, "{}", refused.text);
    let body = json!({ "plan": back["plan"], "supersede": true });
    steer(&world, "gpu-2", "start", body).await.expect(200);
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "superseded");
    for node in ["n1", "n2", "n3", "n4"] {
        assert_eq!(running(&world, node).await, Some(1), "{node}");
        assert_eq!(world.state(node).await, "in_service");
    }
    assert_eq!(show(&world, "gpu-2").await["state"], "done");
    world.check().await;
}

#[tokio::test]
async fn the_disruption_budget_bounds_a_rollout() {
    let mut world = serving(3, json!(1)).await;
    let name = start(&world, 2, &at_once()).await;
    world.ask("n3", "maintain").await.expect(202);
    world.settle().await;
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(taken(&world).await.len(), 0, "n3 has the slot: {seen:#}");
    assert_eq!(seen["now"]["binding"]["code"], "pool_budget");
    world.ask("n3", "resume").await.expect(202);
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(done["state"], "done", "{done:#}");
    world.check().await;
}

#[tokio::test]
async fn a_halt_by_a_person_wins_until_a_resume() {
    let mut world = serving(3, json!("100%")).await;
    let name = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &name).await;
    let nothing = steer(&world, &name, "halt", json!({ "reason": " " })).await;
    assert_eq!(nothing.status, 422, "{}", nothing.text);
    steer(
        &world,
        &name,
        "halt",
        json!({ "reason": "the deadline is near" }),
    )
    .await
    .expect(200);
    settle(&mut world).await;
    let halted = show(&world, &name).await;
    assert_eq!(
        (&halted["state"], &halted["halt"]["code"]),
        (&json!("halted"), &json!("person"))
    );
    assert_eq!(
        taken(&world).await.len(),
        1,
        "the changing node goes on alone"
    );
    world.restart_server().await;
    settle(&mut world).await;
    assert_eq!(taken(&world).await.len(), 1);
    steer(
        &world,
        &name,
        "resume",
        json!({ "reason": "the deadline is over" }),
    )
    .await
    .expect(200);
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
    world.check().await;
}

#[tokio::test]
async fn a_plan_is_started_as_confirmed_or_not_at_all() {
    let mut world = serving(3, json!("100%")).await;
    let unknown = plan(&world, 9, &policy()).await;
    assert_eq!(unknown.problem().0, 422, "{}", unknown.text);
    let nothing = plan(&world, 1, &policy()).await;
    assert_eq!(
        nothing.problem(),
        (409, "nothing_to_change", nothing.problem().2)
    );
    for (member, value) in [
        ("train", json!(true)),
        ("stall_after_s", json!(1)),
        ("visit_by", json!("2020-01-01T00:00:00Z")),
    ] {
        let mut wrong = policy();
        wrong[member] = value;
        let refused = plan(&world, 2, &wrong).await;
        assert_eq!(refused.status, 422, "{member}: {}", refused.text);
        let pointer = refused.body["errors"][0]["pointer"].as_str().unwrap();
        assert_eq!(pointer, format!("/policy/{member}"));
    }
    // The start of a rollout needs a permission beyond the permission to plan.
    let automation = world.server.caller(Role::Automation).await;
    let body = json!({ "pool": "gpu", "revision": 2, "policy": policy() });
    let planned = automation
        .post("/v1/rollouts", &body)
        .await
        .expect(201)
        .body;
    let start = json!({ "plan": planned["plan"] });
    let path = "/v1/rollouts/gpu-1/actions/start";
    assert_eq!(automation.post(path, &start).await.status, 403);
    // The fleet changes between the plan and the start.
    world.release("n3").await.expect(202);
    world.settle().await;
    let changed = steer(&world, "gpu-1", "start", start.clone()).await;
    assert_eq!(
        changed.problem(),
        (409, "plan_changed", changed.problem().2)
    );
    let again = plan(&world, 2, &policy()).await.expect(201).body;
    assert_eq!(again["planned"], 2);
    let wrong = steer(&world, "gpu-2", "start", start).await;
    assert_eq!(wrong.problem(), (409, "plan_changed", wrong.problem().2));
    world.advance(25 * 3600);
    let late = json!({ "plan": again["plan"] });
    let late = steer(&world, "gpu-2", "start", late).await;
    assert_eq!(late.problem(), (409, "expired", late.problem().2));
}

#[tokio::test]
async fn nodes_on_hold_are_left_alone_and_named() {
    let mut world = serving(3, json!("100%")).await;
    let hold = json!({ "spec": { "hold": true } });
    world
        .admin
        .patch("/v1/claims/c-n1", &hold)
        .await
        .expect(200);
    let name = start(&world, 2, &policy()).await;
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(marks(&seen), ["not_begun", "done", "done"], "{seen:#}");
    assert_eq!(seen["nodes"][0]["why"]["code"], "held");
    assert_eq!(running(&world, "n1").await, Some(1));
    let reason = json!({ "node": "n1", "reason": "its user runs until Friday" });
    steer(&world, &name, "skip", reason.clone())
        .await
        .expect(200);
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(
        (&done["state"], marks(&done)[0]),
        (&json!("done"), "skipped")
    );
    let late = steer(&world, &name, "retry", reason).await;
    assert_eq!(late.problem(), (409, "state", late.problem().2));
    world.check().await;
}

/// The node with a mark.
pub(crate) fn marked(rollout: &Value, mark: &str) -> String {
    let nodes = rollout["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["mark"] == mark);
    node.unwrap()["node"].as_str().unwrap().to_owned()
}

async fn assigned(world: &World, node: &str) -> i64 {
    let path = format!("/v1/claims/c-{node}");
    let claim = world.admin.get(&path).await.expect(200).body;
    claim["status"]["revision"].as_i64().unwrap()
}

#[tokio::test]
async fn a_drain_of_the_rollout_is_not_taken_for_a_drain_of_others() {
    let mut world = serving(2, json!(1)).await;
    let name = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &name).await;
    let node = marked(&show(&world, &name).await, "changing");
    // The scheduler's look reports the node while the last job still runs.
    let reason = Some("muster: leaving service");
    say(&mut world, &[(&node, "draining", reason)]).await;
    assert_eq!(world.state(&node).await, "draining");
    rollouts::round(&world.server.app).await.unwrap();
    assert_eq!(marked(&show(&world, &name).await, "changing"), node);
    // The other node begins before the scheduler's next look at the first node.
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
    let states = world.states(&node).await;
    let drained = states.iter().filter(|state| *state == "draining").count();
    assert_eq!(drained, 1);
    world.check().await;
}

#[tokio::test]
async fn a_canary_that_breaks_in_its_soak_halts_the_rollout() {
    let mut world = serving(3, json!("100%")).await;
    let mut soaks = policy();
    soaks["canary"]["soak_s"] = json!(3600);
    let name = start(&world, 2, &soaks).await;
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(seen["now"]["binding"]["code"], "soak", "{seen:#}");
    let canary = marked(&seen, "done");
    world.ask(&canary, "quarantine").await.expect(202);
    settle(&mut world).await;
    world.advance(7200);
    settle(&mut world).await;
    let halted = show(&world, &name).await;
    assert_eq!(halted["halt"]["code"], "canary_failed", "{halted:#}");
    assert_eq!(taken(&world).await, [canary]);
    world.check().await;
}

#[tokio::test]
async fn a_superseded_rollout_is_followed_to_its_end() {
    let mut world = serving(3, json!("100%")).await;
    let first = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &first).await;
    publish(&world, "3").await;
    let next = plan(&world, 3, &policy()).await.expect(201).body;
    let body = json!({ "plan": next["plan"], "supersede": true });
    steer(&world, "gpu-2", "start", body).await.expect(200);
    settle(&mut world).await;
    let ended = show(&world, &first).await;
    let terminal = ["done", "skipped", "failed"];
    assert!(
        marks(&ended).iter().all(|mark| terminal.contains(mark)),
        "{ended:#}"
    );
    assert_eq!(show(&world, "gpu-2").await["state"], "done");
    for node in ["n1", "n2", "n3"] {
        assert_eq!(running(&world, node).await, Some(3), "{node}");
    }
    world.check().await;
}

#[tokio::test]
async fn a_person_who_undrains_a_node_keeps_the_node_on_its_revision() {
    let mut world = serving(2, json!("100%")).await;
    let name = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &name).await;
    let node = marked(&show(&world, &name).await, "changing");
    assert_eq!(assigned(&world, &node).await, 2);
    world.ask(&node, "undrain").await.expect(202);
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(marked(&seen, "skipped"), node, "{seen:#}");
    assert_eq!(assigned(&world, &node).await, 1);
    assert_eq!(world.state(&node).await, "in_service");
    world.check().await;
}

#[tokio::test]
async fn a_change_stopped_by_a_person_is_not_begun_again() {
    let mut world = serving(2, json!("100%")).await;
    let name = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &name).await;
    let node = marked(&show(&world, &name).await, "changing");
    world.until(&node, "installing").await;
    let path = format!("/v1/claims/c-{node}");
    let claim = world.admin.get(&path).await.expect(200);
    world.cancel(&claim).await.expect(202);
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(marked(&seen, "skipped"), node, "{seen:#}");
    assert_eq!(world.state(&node).await, "failed");
    let states = world.states(&node).await;
    let begun = states.iter().filter(|state| *state == "draining").count();
    assert_eq!(begun, 1);
}

#[tokio::test]
async fn new_claims_take_a_revision_only_after_a_node_has_passed() {
    let mut world = serving(2, json!("100%")).await;
    let mut mild = policy();
    mild["allow"] = json!("in_place");
    let name = start(&world, 2, &mild).await;
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(
        (&done["state"], marks(&done)),
        (&json!("done"), vec!["skipped"; 2])
    );
    let pool = world.admin.get("/v1/pools/gpu").await.expect(200).body;
    assert_eq!(pool["status"]["present_revision"], 1);
    // A pool with past rollouts can be removed.
    for node in ["n1", "n2"] {
        world.release(node).await.expect(202);
    }
    world.settle().await;
    let pool = world.admin.header("if-match", "*");
    pool.delete("/v1/pools/gpu").await.expect(204);
    world.check().await;
}
