//! Rollouts that start by themselves, and pools on hold: the field `on_change` of a pool.

use muster_api::tokens::Role;
use muster_core::gates::Verdict;
use muster_server::tasks::rollouts;
use serde_json::{Value, json};

use crate::rollout_pages::summaries;
use crate::rollouts::{marks, plan, policy, publish, running, settle, show, start};
use crate::simulated::World;
use crate::support::fleet;

/// Nodes in service on revision 1 of a pool.
async fn serving(nodes: u8, on_change: &'static str) -> World {
    World::serving(nodes, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["max_unavailable"] = json!("100%");
            body["spec"]["on_change"] = json!(on_change);
        }
        body
    })
    .await
}

async fn set_on_change(world: &World, on_change: &str) {
    let body = json!({ "spec": { "on_change": on_change } });
    world.admin.patch("/v1/pools/gpu", &body).await.expect(200);
}

async fn status(world: &World) -> Value {
    let pool = world.admin.get("/v1/pools/gpu").await.expect(200).body;
    pool["status"].clone()
}

/// The effect of a write, and whether the write begins it.
async fn foresee(world: &World, kind: &str, name: &str, body: &Value) -> (Value, Value) {
    let object = json!({ "kind": kind, "name": name, "spec": body["spec"] });
    let body = json!({ "objects": [object] });
    let told = world.admin.post("/v1/plan", &body).await.expect(200).body;
    let told = &told["objects"][0];
    (told["effect"].clone(), told["begins"].clone())
}

async fn count_rollouts(world: &World) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM rollouts")
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap()
}

async fn tick(world: &World) {
    world.agent.report_jobs().await.unwrap();
    rollouts::round(&world.server.app).await.unwrap();
}

#[tokio::test]
async fn a_change_is_rolled_out_a_minute_after_the_last_one() {
    let mut world = serving(2, "start").await;
    let mut stack = fleet::stack();
    stack["spec"]["version"] = json!("2");
    stack["spec"]["kernel_args"] = json!(["v=2"]);
    let told = foresee(&world, "stack", "base", &stack).await;
    assert_eq!(told, (json!("reboot"), json!(true)));
    publish(&world, "2").await;
    world.advance(50);
    publish(&world, "3").await;
    world.advance(50);
    tick(&world).await;
    assert_eq!(
        count_rollouts(&world).await,
        0,
        "50 s after the last change"
    );
    let due = status(&world).await["due_rollout"].clone();
    assert_eq!((&due["revision"], &due["code"]), (&json!(3), &Value::Null));

    world.advance(11);
    tick(&world).await;
    let rollout = show(&world, "gpu-1").await;
    assert_eq!(
        (&rollout["state"], &rollout["revision"], &rollout["actor"]),
        (&json!("running"), &json!(3), &json!("muster"))
    );
    assert_eq!(
        rollout["policy"]["canary"]["count"], 1,
        "the default policy"
    );
    assert_eq!(status(&world).await["due_rollout"], Value::Null);
    settle(&mut world).await;
    world.advance(3600);
    settle(&mut world).await;
    let rollout = show(&world, "gpu-1").await;
    assert_eq!(marks(&rollout), ["done", "done"], "{rollout:#}");
    assert_eq!(running(&world, "n2").await, Some(3));
    world.advance(3600);
    tick(&world).await;
    assert_eq!(count_rollouts(&world).await, 1, "once");
    world.check().await;
}

/// The rollout of a broken revision stays halted: the next revision waits for a person.
#[tokio::test]
async fn a_halted_rollout_is_not_superseded_by_the_next_change() {
    let mut world = serving(2, "start").await;
    world.gates("n1", &[Verdict::Fail]);
    world.gates("n2", &[Verdict::Fail]);
    publish(&world, "2").await;
    world.advance(61);
    settle(&mut world).await;
    assert_eq!(show(&world, "gpu-1").await["state"], "halted");
    publish(&world, "3").await;
    let attempts = "SELECT tried_at::text FROM due_rollouts";
    let mut tried = Vec::new();
    for seconds in [61, 61, 30, 31] {
        world.advance(seconds);
        tick(&world).await;
        let at: String = sqlx::query_scalar(attempts)
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap();
        tried.push(at);
    }
    tried.dedup();
    assert_eq!(tried.len(), 3, "once a minute: {tried:?}");
    assert_eq!(show(&world, "gpu-1").await["state"], "halted");
    assert_eq!(count_rollouts(&world).await, 1);
    let due = status(&world).await["due_rollout"].clone();
    assert_eq!(
        (&due["revision"], &due["code"]),
        (&json!(3), &json!("rollout_open"))
    );
    let refused = summaries(&world, "pool.rollout_refused").await;
    let sentence = "revision 3 of pool gpu cannot be rolled out now: gpu-1 is halted; the next one starts after its end.";
    assert!(refused[0].ends_with(sentence), "{refused:?}");
    assert_eq!(refused.len(), 1, "once for each code: {refused:?}");
    let page = world.admin.get("/pools/gpu").await.expect(200).text;
    assert!(
        page.contains("Revision <span class=\"num\">3</span> starts by itself"),
        "{page}"
    );
    assert!(page.contains("gpu-1 is halted"), "{page}");

    // The way back by a person: revision 3 does not follow afterwards.
    let planned = plan(&world, 1, &policy()).await.expect(201).body;
    let body = json!({ "plan": planned["plan"], "supersede": true });
    let path = format!(
        "/v1/rollouts/{}/actions/start",
        planned["name"].as_str().unwrap()
    );
    world.admin.post(&path, &body).await.expect(200);
    settle(&mut world).await;
    world.advance(3600);
    settle(&mut world).await;
    assert_eq!(status(&world).await["due_rollout"], Value::Null);
    assert_eq!(count_rollouts(&world).await, 2);
}

#[tokio::test]
async fn a_reinstall_never_starts_by_itself() {
    let world = serving(2, "start").await;
    let mut image = fleet::image();
    image["spec"]["digest"] = json!(fleet::digest("image 2"));
    image["spec"]["raw_digest"] = json!(fleet::digest("raw 2"));
    let mut stack = fleet::stack();
    stack["spec"]["version"] = json!("2");
    stack["spec"]["lock"]["image_digest"] = image["spec"]["digest"].clone();
    let told = foresee(&world, "image", "debian-12", &image).await;
    assert_eq!(told, (json!("reinstall"), json!(false)));
    world
        .admin
        .put("/v1/images/debian-12", &image)
        .await
        .expect(200);
    // The stack is still locked against the former image.
    world.advance(61);
    tick(&world).await;
    assert_eq!(status(&world).await["due_rollout"]["code"], "other_image");
    world.admin.put("/v1/stacks/base", &stack).await.expect(200);
    world.advance(61);
    tick(&world).await;
    assert_eq!(status(&world).await["due_rollout"]["code"], "not_allowed");
    assert_eq!(count_rollouts(&world).await, 0);
    // The refused plan leaves no trace.
    assert!(summaries(&world, "rollout.planned").await.is_empty());
    let mut with_reinstalls = policy();
    with_reinstalls["allow"] = json!("reinstall");
    let planned = plan(&world, 3, &with_reinstalls).await.expect(201).body;
    assert_eq!(planned["name"], "gpu-1");
}

/// A start by a person, and a promotion of another revision, take the place of the automatic start.
#[tokio::test]
async fn a_person_takes_over() {
    let mut world = serving(2, "start").await;
    publish(&world, "2").await;
    start(&world, 2, &policy()).await;
    assert_eq!(status(&world).await["due_rollout"], Value::Null);
    world.advance(61);
    settle(&mut world).await;
    assert_eq!(running(&world, "n1").await, Some(2));
    assert_eq!(count_rollouts(&world).await, 1);

    let promote = async |revision: i64| {
        let path = "/v1/pools/gpu/actions/promote-revision";
        let body = json!({ "revision": revision });
        world.admin.post(path, &body).await.expect(200);
        status(&world).await["due_rollout"]["revision"].clone()
    };
    publish(&world, "3").await;
    assert_eq!(
        promote(3).await,
        3,
        "new claims take revision 3, and its rollout starts"
    );
    assert_eq!(promote(2).await, Value::Null);
    world.advance(3600);
    tick(&world).await;
    assert_eq!(count_rollouts(&world).await, 1);
}

/// Without claims a new revision is the present one at once, and an earlier one is not due any more.
#[tokio::test]
async fn a_pool_without_claims_has_no_due_rollout() {
    let mut world = serving(1, "start").await;
    publish(&world, "2").await;
    assert_eq!(status(&world).await["due_rollout"]["revision"], 2);
    world.release("n1").await.expect(202);
    world.settle().await;
    publish(&world, "3").await;
    world.advance(61);
    tick(&world).await;
    let pool = status(&world).await;
    assert_eq!(
        (&pool["present_revision"], &pool["due_rollout"]),
        (&json!(3), &Value::Null)
    );
}

#[tokio::test]
async fn a_change_without_an_effect_is_promoted() {
    let world = serving(1, "start").await;
    let path = "/v1/stacks/base";
    let stack = world.admin.get(path).await.expect(200).body;
    let mut spec = stack["spec"].clone();
    spec["version"] = json!("the same software");
    world
        .admin
        .put(path, &json!({ "spec": spec }))
        .await
        .expect(200);
    assert_eq!(status(&world).await["newest_revision"], 2);
    world.advance(61);
    tick(&world).await;
    let pool = status(&world).await;
    assert_eq!(
        (&pool["present_revision"], &pool["due_rollout"]),
        (&json!(2), &Value::Null)
    );
    assert_eq!(count_rollouts(&world).await, 0);
    let promoted = summaries(&world, "pool.revision_promoted").await;
    let sentence = "new claims of pool gpu are assigned revision 2: no node needs a change";
    assert!(promoted[0].ends_with(sentence), "{promoted:?}");
    assert_eq!(promoted.len(), 1);
}

#[tokio::test]
async fn a_pool_on_hold_gets_its_change_with_the_end_of_the_hold() {
    let mut world = serving(1, "hold").await;
    publish(&world, "2").await;
    publish(&world, "3").await;
    let pool = status(&world).await;
    assert_eq!(
        (&pool["newest_revision"], &pool["change_held"]),
        (&json!(1), &json!(true))
    );
    muster_server::intents::revisions::catch_up(&world.server.app)
        .await
        .unwrap();
    assert_eq!(status(&world).await["newest_revision"], 1);
    let page = world.admin.get("/pools/gpu").await.expect(200).text;
    assert!(page.contains("A change is held"), "{page}");

    set_on_change(&world, "start").await;
    let pool = status(&world).await;
    assert_eq!(
        (&pool["newest_revision"], &pool["change_held"]),
        (&json!(2), &json!(false))
    );
    assert_eq!(pool["due_rollout"]["revision"], 2);
    // Back to a person's start before the minute is over.
    set_on_change(&world, "propose").await;
    world.advance(3600);
    settle(&mut world).await;
    assert_eq!(count_rollouts(&world).await, 0);
    assert_eq!(status(&world).await["due_rollout"], Value::Null);
    start(&world, 2, &policy()).await;
    settle(&mut world).await;
    assert_eq!(running(&world, "n1").await, Some(2));
}

#[tokio::test]
async fn automatic_starts_need_the_permission_to_start_rollouts() {
    let world = serving(1, "propose").await;
    let automation = world.server.caller(Role::Automation).await;
    let on_change = |value: &str| json!({ "spec": { "on_change": value } });
    let path = "/v1/pools/gpu";
    automation
        .patch(path, &on_change("start"))
        .await
        .expect(403);
    automation.patch(path, &on_change("hold")).await.expect(200);
    set_on_change(&world, "start").await;
    // Every later write by others leaves the value as it is.
    let more = json!({ "spec": { "undo_window_s": 1000 } });
    automation.patch(path, &more).await.expect(200);
    let mut pool = fleet::pool();
    pool["spec"]["on_change"] = json!("start");
    let owner = world.server.caller(Role::ReleaseOwner).await;
    owner.put("/v1/pools/other", &pool).await.expect(403);
    pool["spec"]["on_change"] = json!("propose");
    owner.put("/v1/pools/other", &pool).await.expect(201);
    let none = json!({ "spec": { "on_change": null } });
    automation.patch(path, &none).await.expect(200);
    assert_eq!(status(&world).await["effective_on_change"], "propose");
}
