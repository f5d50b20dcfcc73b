//! A rollout of a test pool before a rollout of production. The second start is refused until the first
//! rollout is done with the same software.

use axum::http::Method;
use serde_json::{Value, json};

use crate::rollouts::{plan, policy, publish, settle, show, start, steer};
use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::{Caller, Reply};

/// The node n1 in service in the pool `gpu`, and n2 in the pool `test`. Both pools have a revision 2.
async fn serving() -> World {
    let mut world = World::declare(2, |_, body| body).await;
    let admin = &world.admin;
    admin
        .put("/v1/pools/test", &fleet::pool())
        .await
        .expect(201);
    world.settle().await;
    world.claim("n1").await.expect(201);
    let claim = json!({ "name": "c-n2", "spec": { "pool": "test", "node": "n2" } });
    world.admin.post("/v1/claims", &claim).await.expect(201);
    world.settle().await;
    publish(&world, "2").await;
    world
}

fn after(rollout: &str) -> Value {
    let mut policy = policy();
    policy["after"] = json!(rollout);
    policy
}

async fn plan_test(world: &World, revision: i64) -> Value {
    let body = json!({ "pool": "test", "revision": revision, "policy": policy() });
    world
        .admin
        .post("/v1/rollouts", &body)
        .await
        .expect(201)
        .body
}

async fn start_plan(world: &World, planned: &Value) -> Reply {
    let body = json!({ "plan": planned["plan"] });
    steer(world, planned["name"].as_str().unwrap(), "start", body).await
}

fn is_refused(reply: &Reply, detail: &str) {
    let found = (reply.problem().1, reply.body["detail"].as_str());
    assert_eq!(found, ("not_promoted", Some(detail)), "{}", reply.text);
}

/// Sends the console's form for a plan with the policy of a former rollout. Returns the status.
pub(crate) async fn plan_like(caller: &Caller, form: &str) -> u16 {
    let caller = caller.header("content-type", "application/x-www-form-urlencoded");
    let path = "/ui/pools/gpu/rollouts";
    caller.send(Method::POST, path, form.into()).await.status
}

#[tokio::test]
async fn production_starts_after_the_test_pool() {
    let mut world = serving().await;
    let test = plan_test(&world, 2).await;
    let production = plan(&world, 2, &after("test-1")).await.expect(201).body;
    let refused = async |detail: &str| {
        let refused = start_plan(&world, &production).await;
        is_refused(&refused, detail);
    };
    refused("test-1 is planned; it must be done before gpu-1.").await;
    start_plan(&world, &test).await.expect(200);
    refused("test-1 is running; it must be done before gpu-1.").await;
    settle(&mut world).await;
    assert_eq!(show(&world, "test-1").await["state"], "done");
    start_plan(&world, &production).await.expect(200);
    let page = world.admin.get("/rollouts/gpu-1").await.expect(200).text;
    let link = "<a href=\"/rollouts/test-1\">test-1</a></dd>";
    assert!(page.contains(link), "{page}");
    settle(&mut world).await;
    assert_eq!(show(&world, "gpu-1").await["state"], "done");
    // The way back waits for no other rollout.
    assert_eq!(plan_like(&world.admin, "revision=1&like=gpu-1").await, 303);
    let back = show(&world, "gpu-2").await;
    assert!(back["policy"]["after"].is_null(), "{back:#}");
    world.check().await;
}

/// The only node of the test pool is left out.
#[tokio::test]
async fn a_test_without_a_changed_node_is_no_test() {
    let mut world = serving().await;
    let test = plan_test(&world, 2).await;
    let production = plan(&world, 2, &after("test-1")).await.expect(201).body;
    start_plan(&world, &test).await.expect(200);
    let skip = json!({ "node": "n2", "reason": "the node is needed" });
    steer(&world, "test-1", "skip", skip).await.expect(200);
    settle(&mut world).await;
    assert_eq!(show(&world, "test-1").await["state"], "done");
    let refused = start_plan(&world, &production).await;
    let detail = "test-1 is done without a node that runs the revision.";
    is_refused(&refused, detail);
}

#[tokio::test]
async fn a_rollout_before_has_another_pool_and_the_same_software() {
    let world = serving().await;
    plan_test(&world, 2).await;
    let refused = async |revision: i64, before: &str| {
        let refused = plan(&world, revision, &after(before)).await.expect(422);
        let first = &refused.body["errors"][0];
        assert_eq!(first["pointer"], "/policy/after");
        first["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(refused(2, "none-1").await, "not_found");
    assert_eq!(refused(2, "").await, "out_of_range");
    let own = plan(&world, 2, &policy()).await.expect(201).body;
    assert_eq!(refused(2, own["name"].as_str().unwrap()).await, "same_pool");
    publish(&world, "3").await;
    assert_eq!(refused(3, "test-1").await, "other_software");
    let planned = plan(&world, 2, &after("test-1")).await.expect(201).body;
    // A plan with the policy of a former rollout keeps the condition.
    let like = planned["name"].as_str().unwrap();
    for (revision, status) in [(3, 422), (2, 303)] {
        let form = format!("revision={revision}&like={like}");
        assert_eq!(plan_like(&world.admin, &form).await, status, "{revision}");
    }
    // Without the right to read the other pool, the rollout is unknown.
    let body = json!({ "name": "gpu", "role": "operator", "scope": { "pool": "gpu" }, "expires_in_s": 3600 });
    let token = world.admin.post("/v1/tokens", &body).await.expect(201);
    let scoped = world
        .server
        .with(token.body["secret"].as_str().map(str::to_owned));
    let plan = async |policy: Value| {
        let body = json!({ "pool": "gpu", "revision": 2, "policy": policy });
        scoped.post("/v1/rollouts", &body).await
    };
    plan(policy()).await.expect(201);
    let refused = plan(after("test-1")).await.expect(422);
    assert_eq!(
        refused.body["errors"][0]["code"], "not_found",
        "{}",
        refused.text
    );
}

/// The test pool goes back after the rollout, or another rollout has the name.
#[tokio::test]
async fn a_test_that_was_taken_back_promotes_nothing() {
    let mut world = serving().await;
    let test = plan_test(&world, 2).await;
    start_plan(&world, &test).await.expect(200);
    settle(&mut world).await;
    let production = plan(&world, 2, &after("test-1")).await.expect(201).body;
    let back = plan_test(&world, 1).await;
    start_plan(&world, &back).await.expect(200);
    let refused = start_plan(&world, &production).await;
    is_refused(&refused, "test-2 is running: the pool test moves on.");
    settle(&mut world).await;
    let refused = start_plan(&world, &production).await;
    is_refused(&refused, "The pool test has left the revision of test-1.");
    let other = "UPDATE rollouts SET name = 'test-9' WHERE name = 'test-1'; UPDATE rollouts SET name = 'test-1' WHERE name = 'test-2'";
    sqlx::raw_sql(other)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    let refused = start_plan(&world, &production).await.expect(422);
    assert_eq!(refused.body["errors"][0]["code"], "other_software");
}

/// A superseded rollout is not done.
#[tokio::test]
async fn a_superseded_test_promotes_nothing() {
    let mut world = serving().await;
    let test = plan_test(&world, 2).await;
    start_plan(&world, &test).await.expect(200);
    let production = plan(&world, 2, &after("test-1")).await.expect(201).body;
    let halt = json!({ "reason": "a wrong image" });
    steer(&world, "test-1", "halt", halt).await.expect(200);
    let back = plan_test(&world, 2).await;
    let body = json!({ "plan": back["plan"], "supersede": true });
    steer(&world, "test-2", "start", body).await.expect(200);
    settle(&mut world).await;
    let refused = start_plan(&world, &production).await;
    let detail = "test-1 is superseded; it must be done before gpu-1.";
    is_refused(&refused, detail);
    let next = start(&world, 2, &after("test-2")).await;
    settle(&mut world).await;
    assert_eq!(show(&world, &next).await["state"], "done");
}
