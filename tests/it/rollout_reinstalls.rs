//! Reinstalls by rollouts: only nodes of the plan, and beyond an hourly limit a start by a second
//! person.

use muster_api::tokens::Role;
use muster_core::gates::Verdict;
use serde_json::{Value, json};

use crate::rollouts::{marked, marks, plan, policy, running, settle, show, start, steer};
use crate::simulated::World;
use crate::support::fleet;

/// Nodes in service on revision 1, and revision 2 with another image.
async fn serving(nodes: u8, limit: Value) -> World {
    let world = World::serving(nodes, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["max_unavailable"] = json!("100%");
            body["spec"]["releases_per_hour"] = limit.clone();
        }
        body
    })
    .await;
    let mut image = fleet::image();
    image["spec"]["digest"] = json!(fleet::digest("image 2"));
    image["spec"]["raw_digest"] = json!(fleet::digest("raw 2"));
    let mut stack = fleet::stack();
    stack["spec"]["bundle"] = json!(fleet::digest("bundle"));
    stack["spec"]["version"] = json!("2");
    stack["spec"]["lock"]["image_digest"] = image["spec"]["digest"].clone();
    for (path, body) in [("images/debian-12", image), ("stacks/base", stack)] {
        let path = format!("/v1/{path}");
        world.admin.put(&path, &body).await.expect(200);
    }
    world
}

/// The newest revision of the pool.
async fn newest(world: &World) -> i64 {
    let pool = world.admin.get("/v1/pools/gpu").await.expect(200).body;
    pool["status"]["newest_revision"].as_i64().unwrap()
}

fn reinstalling() -> Value {
    let mut policy = policy();
    policy["allow"] = json!("reinstall");
    policy
}

/// The number of image writes on a node after the first way into service.
async fn imaged(world: &World, node: &str) -> usize {
    let states = world.states(node).await;
    states.iter().filter(|state| *state == "imaging").count() - 1
}

#[tokio::test]
async fn a_rollout_reinstalls_nodes_behind_a_canary_and_back() {
    let mut world = serving(3, Value::Null).await;
    let target = newest(&world).await;
    let mild = start(&world, target, &policy()).await;
    settle(&mut world).await;
    let seen = show(&world, &mild).await;
    assert_eq!(marks(&seen), ["skipped"; 3], "{seen:#}");

    let name = start(&world, target, &reinstalling()).await;
    let planned = show(&world, &name).await;
    assert_eq!(planned["nodes"][0]["effect"], "reinstall", "{planned:#}");
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(
        (&done["state"], marks(&done)),
        (&json!("done"), vec!["done"; 3])
    );
    for node in ["n1", "n2", "n3"] {
        assert_eq!(running(&world, node).await, Some(target), "{node}");
        assert_eq!(
            (imaged(&world, node).await, world.state(node).await),
            (1, "in_service".to_owned())
        );
    }
    world.check().await;

    // The image is bad on n2: the way back writes the former image, out of quarantine too.
    world.gates("n2", &[Verdict::Fail]);
    let mut at_once = reinstalling();
    at_once["canary"] = Value::Null;
    at_once["waves"] = json!({ "sizes": ["100%"] });
    let back = start(&world, 1, &at_once).await;
    settle(&mut world).await;
    let halted = show(&world, &back).await;
    assert_eq!(marked(&halted, "failed"), "n2", "{halted:#}");
    assert_eq!(world.state("n2").await, "quarantined");
    let again = plan(&world, target, &at_once).await.expect(201).body;
    let body = json!({ "plan": again["plan"], "supersede": true });
    let name = again["name"].as_str().unwrap();
    steer(&world, name, "start", body).await.expect(200);
    settle(&mut world).await;
    let done = show(&world, name).await;
    assert_eq!(done["state"], "done", "{done:#}");
    assert_eq!(running(&world, "n2").await, Some(target));
    assert_eq!(imaged(&world, "n2").await, 3);
    world.check().await;
}

#[tokio::test]
async fn a_failed_reinstall_is_written_again_after_a_retry() {
    let mut world = serving(1, json!(1)).await;
    let target = newest(&world).await;
    world.fail("n1", "write_image", false, 2);
    let name = start(&world, target, &reinstalling()).await;
    settle(&mut world).await;
    assert_eq!(
        world.state("n1").await,
        "failed",
        "{:#}",
        show(&world, &name).await
    );
    let retry = json!({ "node": "n1", "reason": "a new disk" });
    steer(&world, &name, "retry", retry).await.expect(200);
    let more = json!({ "policy": { "failure_budget": { "count": 1 } }, "reason": "a disk" });
    steer(&world, &name, "adjust", more).await.expect(200);
    let reason = json!({ "reason": "a new disk" });
    steer(&world, &name, "resume", reason).await.expect(200);
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(done["state"], "done", "{done:#}");
    assert_eq!(running(&world, "n1").await, Some(target));
    // Each attempt is of the rollout, and the hour of the pool is untouched.
    world.ask("n1", "reinstall").await.expect(202);
}

#[tokio::test]
async fn a_node_that_the_plan_does_not_list_is_not_reinstalled() {
    let mut world = serving(2, Value::Null).await;
    let target = newest(&world).await;
    let forget = "WITH former AS (SELECT id, running_id FROM claims WHERE name = 'c-n2')
                  UPDATE claims SET running_id = NULL FROM former WHERE claims.id = former.id RETURNING former.running_id";
    let pool = world.server.app.pool.clone();
    let former: Option<sqlx::types::Uuid> =
        sqlx::query_scalar(forget).fetch_one(&pool).await.unwrap();
    let name = start(&world, target, &reinstalling()).await;
    let known = "UPDATE claims SET running_id = $1 WHERE name = 'c-n2'";
    sqlx::query(known)
        .bind(former)
        .execute(&pool)
        .await
        .unwrap();
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(marks(&seen), ["done", "skipped"], "{seen:#}");
    assert_eq!(seen["nodes"][1]["last"]["code"], "reinstall_not_planned");
    assert_eq!(imaged(&world, "n2").await, 0);
}

#[tokio::test]
async fn beyond_the_hourly_limit_another_person_starts() {
    let mut world = serving(2, json!(1)).await;
    let target = newest(&world).await;
    let planned = plan(&world, target, &reinstalling()).await.expect(201).body;
    let name = planned["name"].as_str().unwrap();
    let path = format!("/v1/rollouts/{name}/actions/start");
    let body = json!({ "plan": planned["plan"] });
    let alone = world.admin.post(&path, &body).await;
    assert_eq!(alone.problem().1, "second_person", "{}", alone.text);
    assert!(alone.text.contains("pool gpu has 1 left"), "{}", alone.text);
    let operator = world.server.caller(Role::Operator).await;
    operator.post(&path, &body).await.expect(200);
    settle(&mut world).await;
    let done = show(&world, name).await;
    assert_eq!(marks(&done), ["done"; 2], "{done:#}");

    // Single reinstalls have the hour of the pool. The next rollout counts the former rollout.
    world.ask("n1", "reinstall").await.expect(202);
    world.settle().await;
    let back = plan(&world, 1, &reinstalling()).await.expect(201).body;
    let again = steer(
        &world,
        back["name"].as_str().unwrap(),
        "start",
        json!({ "plan": back["plan"] }),
    );
    let again = again.await;
    assert_eq!(again.problem().1, "second_person", "{}", again.text);
    assert!(again.text.contains("has 0 left"), "{}", again.text);

    // A plan of reinstalls needs the right to reinstall.
    let automation = world.server.caller(Role::Automation).await;
    let wanted = json!({ "pool": "gpu", "revision": 1, "policy": reinstalling() });
    automation.post("/v1/rollouts", &wanted).await.expect(403);
}

/// The limit is of a person, with all tokens of the person.
#[tokio::test]
async fn a_person_does_not_start_as_somebody_else() {
    let world = serving(2, Value::Null).await;
    let target = newest(&world).await;
    let planned = plan(&world, target, &reinstalling()).await.expect(201).body;
    let wanted = json!({ "name": "also-me", "role": "operator", "expires_in_s": 600, "releases_per_hour": 1 });
    let made = world
        .admin
        .post("/v1/tokens", &wanted)
        .await
        .expect(201)
        .body;
    let secret = made["secret"].as_str().unwrap().to_owned();
    let path = format!(
        "/v1/rollouts/{}/actions/start",
        planned["name"].as_str().unwrap()
    );
    let body = json!({ "plan": planned["plan"] });
    let also_me = world.server.with(Some(secret));
    let alone = also_me.post(&path, &body).await;
    assert_eq!(alone.problem().1, "second_person", "{}", alone.text);
    // A plan of a version before names no person.
    let forget = "UPDATE rollouts SET person = NULL";
    sqlx::query(forget)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    let unknown = also_me.post(&path, &body).await;
    assert_eq!(unknown.problem().1, "second_person", "{}", unknown.text);
}

/// A node whose image write failed has no system. A rollout without reinstalls neither converges it
/// nor repeats the write.
#[tokio::test]
async fn a_failed_write_is_not_repeated_by_a_rollout_without_reinstalls() {
    let mut world = serving(1, Value::Null).await;
    let target = newest(&world).await;
    world.fail("n1", "write_image", false, 2);
    start(&world, target, &reinstalling()).await;
    settle(&mut world).await;
    assert_eq!(world.state("n1").await, "failed");
    let before = world.states("n1").await;

    let mut stack = world.admin.get("/v1/stacks/base").await.expect(200).body;
    stack["spec"]["version"] = json!("3");
    stack["spec"]["kernel_args"] = json!(["v=3"]);
    let body = json!({ "spec": stack["spec"] });
    world.admin.put("/v1/stacks/base", &body).await.expect(200);
    let next = plan(&world, newest(&world).await, &policy()).await;
    let next = next.expect(201).body;
    assert_eq!(next["nodes"][0]["effect"], "reinstall", "{next:#}");
    let body = json!({ "plan": next["plan"], "supersede": true });
    let name = next["name"].as_str().unwrap();
    steer(&world, name, "start", body).await.expect(200);
    settle(&mut world).await;
    let seen = show(&world, name).await;
    assert_eq!(marks(&seen), ["skipped"], "{seen:#}");
    assert_eq!(world.states("n1").await, before);
}
