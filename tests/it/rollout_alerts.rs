//! Rollouts and alerts: an alert of the policy on a node that the rollout has taken halts the rollout.

use jiff::{SignedDuration, Timestamp};
use muster_server::tasks::rollouts;
use serde_json::{Value, json};

use crate::alerts::group;
use crate::rollout_jobs::run_job;
use crate::rollouts::{
    marks, plan, policy, serving, settle, show, start, steer, taken, until_one_changes,
};
use crate::simulated::World;

/// Posts an alert of a node as Alertmanager does.
async fn post(world: &World, name: &str, node: &str, began: Timestamp, status: &str) {
    post_labelled(
        world,
        json!({ "alertname": name, "node": node }),
        began,
        status,
    )
    .await;
}

async fn post_labelled(world: &World, labels: Value, began: Timestamp, status: &str) -> Value {
    let alert = json!({
        "status": status, "labels": labels, "annotations": {},
        "startsAt": began, "endsAt": "0001-01-01T00:00:00Z", "fingerprint": labels.to_string(),
        "generatorURL": "http://prometheus/graph",
    });
    let body = group(vec![alert]);
    world.admin.post("/v1/alerts", &body).await.expect(200).body
}

/// The policy, halted by an alert of the name.
fn watched(alert: &str) -> Value {
    let mut policy = policy();
    policy["halt_when"] = json!([{ "alert": alert }]);
    policy
}

async fn tick(world: &World, name: &str) -> Value {
    rollouts::round(&world.server.app).await.unwrap();
    show(world, name).await
}

async fn until_one_is_done(world: &mut World, name: &str) {
    for _ in 0..100 {
        if marks(&show(world, name).await).contains(&"done") {
            return;
        }
        world.agent.report_jobs().await.unwrap();
        rollouts::round(&world.server.app).await.unwrap();
        world.pass().await;
    }
    panic!("no node is done");
}

#[tokio::test]
async fn an_alert_on_a_taken_node_halts_the_rollout() {
    let mut world = serving(3, json!("100%")).await;
    let name = start(&world, 2, &watched("FabricErrors")).await;
    let before = world.server.app.clock.now();
    world.advance(60);
    until_one_is_done(&mut world, &name).await;
    let canary = taken(&world).await[0].clone();
    let nodes = ["n1", "n2", "n3"];
    let other = *nodes.iter().find(|node| **node != canary).unwrap();
    let now = world.server.app.clock.now() + SignedDuration::from_secs(1);
    world.advance(2);
    // A node not taken, another alert, and an alert older than the change.
    post(&world, "FabricErrors", other, now, "firing").await;
    post(&world, "DiskFull", &canary, now, "firing").await;
    post(&world, "FabricErrors", &canary, before, "firing").await;
    assert_eq!(tick(&world, &name).await["state"], "running");
    post(&world, "FabricErrors", &canary, now, "firing").await;
    let halted = tick(&world, &name).await;
    assert_eq!(
        (&halted["state"], &halted["halt"]["code"]),
        (&json!("halted"), &json!("signal"))
    );
    let sentence = halted["halt"]["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("alert FabricErrors fires on 1 node since "),
        "{sentence}"
    );
    // A standing alert halts again.
    let reason = json!({ "reason": "the switch was replaced" });
    steer(&world, &name, "resume", reason.clone())
        .await
        .expect(200);
    assert_eq!(tick(&world, &name).await["state"], "halted");
    post(&world, "FabricErrors", &canary, now, "resolved").await;
    steer(&world, &name, "resume", reason.clone())
        .await
        .expect(200);
    // Monitoring was away, and sends the same alert once more.
    post(&world, "FabricErrors", &canary, now, "firing").await;
    assert_eq!(tick(&world, &name).await["state"], "halted");
    post(&world, "FabricErrors", &canary, now, "resolved").await;
    steer(&world, &name, "resume", reason).await.expect(200);
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
    world.check().await;
}

#[tokio::test]
async fn an_alert_without_a_name_is_refused() {
    let world = serving(1, json!("100%")).await;
    for (signals, pointer) in [
        (json!([{ "alert": "" }]), "/policy/halt_when/0/alert"),
        (
            json!([{ "alert": "A".repeat(200) }, { "alert": "A".repeat(201) }]),
            "/policy/halt_when/1/alert",
        ),
        (
            json!(vec![json!({ "alert": "A" }); 21]),
            "/policy/halt_when",
        ),
    ] {
        let mut wrong = policy();
        wrong["halt_when"] = signals;
        let refused = plan(&world, 2, &wrong).await.expect(422);
        assert_eq!(
            refused.body["errors"][0]["pointer"], pointer,
            "{}",
            refused.text
        );
    }
}

/// Monitoring groups alerts for minutes, and meanwhile the rollout tries the failed phase again.
#[tokio::test]
async fn an_alert_that_arrives_after_a_retry_halts_the_rollout() {
    let mut world = serving(2, json!("100%")).await;
    for node in ["n1", "n2"] {
        world.fail(node, "converge", false, 1);
    }
    let name = start(&world, 2, &watched("FabricErrors")).await;
    until_one_changes(&mut world, &name).await;
    let canary = taken(&world).await[0].clone();
    world.advance(2);
    let began = world.server.app.clock.now();
    world.advance(60);
    until_one_is_done(&mut world, &name).await;
    let retries = "SELECT count(*) FROM operations WHERE kind LIKE '%retry%'";
    let retries: i64 = sqlx::query_scalar(retries)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    assert!(retries > 0);
    post(&world, "FabricErrors", &canary, began, "firing").await;
    assert_eq!(tick(&world, &name).await["state"], "halted");
}

/// The halt gives back the node, which still drains. The alert is no more an alert of the rollout.
#[tokio::test]
async fn an_alert_on_a_node_given_back_does_not_count() {
    let mut world = serving(1, json!("100%")).await;
    let name = start(&world, 2, &watched("FabricErrors")).await;
    until_one_changes(&mut world, &name).await;
    world.advance(2);
    let now = world.server.app.clock.now();
    post(&world, "FabricErrors", "n1", now, "firing").await;
    assert_eq!(tick(&world, &name).await["state"], "halted");
    assert_eq!(marks(&show(&world, &name).await), ["not_begun"]);
    let reason = json!({ "reason": "looked at" });
    steer(&world, &name, "resume", reason).await.expect(200);
    assert_eq!(tick(&world, &name).await["state"], "running");
}

/// A node under work cannot be taken out, so the alert is refused. Its end counts, and so does its return.
#[tokio::test]
async fn a_refused_alert_that_fires_again_halts_the_rollout() {
    let mut world = serving(1, json!("100%")).await;
    let name = start(&world, 2, &watched("GpuXid79")).await;
    until_one_changes(&mut world, &name).await;
    for _ in 0..100 {
        if world.state("n1").await == "installing" {
            break;
        }
        world.pass().await;
    }
    let now = world.server.app.clock.now();
    let alert = json!({ "alertname": "GpuXid79", "node": "n1", "muster": "quarantine" });
    for round in ["first", "again"] {
        let answer = post_labelled(&world, alert.clone(), now, "firing").await;
        assert_eq!(answer["alerts"][0]["outcome"], "refused", "{round}");
        assert_eq!(tick(&world, &name).await["state"], "halted", "{round}");
        post_labelled(&world, alert.clone(), now, "resolved").await;
        let reason = json!({ "reason": "looked at" });
        steer(&world, &name, "resume", reason).await.expect(200);
        assert_eq!(tick(&world, &name).await["state"], "running", "{round}");
    }
}

/// A person's retry keeps the time of the first change: the alert stands since then.
#[tokio::test]
async fn an_alert_stands_over_a_persons_retry() {
    let mut world = serving(2, json!("100%")).await;
    let mut watched = watched("FabricErrors");
    watched["failure_budget"] = json!({ "count": 2 });
    watched["canary"] = Value::Null;
    // The rollout goes on: a job without an end keeps the other node.
    run_job(&world, "17", None, &["n2"]);
    world.fail("n1", "converge", false, 2);
    let name = start(&world, 2, &watched).await;
    until_one_changes(&mut world, &name).await;
    world.advance(2);
    let began = world.server.app.clock.now();
    world.advance(60);
    settle(&mut world).await;
    let shown = show(&world, &name).await;
    assert!(marks(&shown).contains(&"failed"), "{shown:#}");
    let retry = json!({ "node": "n1", "reason": "a cable was reseated" });
    steer(&world, &name, "retry", retry).await.expect(200);
    post(&world, "FabricErrors", "n1", began, "firing").await;
    assert_eq!(tick(&world, &name).await["state"], "halted");
}

/// The signal comes by `adjust`: the plan has none.
#[tokio::test]
async fn an_alert_on_a_done_node_halts_the_rollout() {
    let mut world = serving(2, json!("100%")).await;
    let name = start(&world, 2, &policy()).await;
    until_one_changes(&mut world, &name).await;
    let canary = taken(&world).await[0].clone();
    until_one_is_done(&mut world, &name).await;
    let began = world.server.app.clock.now();
    post(&world, "FabricErrors", &canary, began, "firing").await;
    assert_eq!(tick(&world, &name).await["state"], "running");
    let adjusted =
        json!({ "policy": { "halt_when": [{ "alert": "FabricErrors" }] }, "reason": "watch" });
    steer(&world, &name, "adjust", adjusted).await.expect(200);
    assert_eq!(tick(&world, &name).await["state"], "halted");
}
