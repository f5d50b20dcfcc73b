//! Alerts of monitoring, shown on timelines. A rule may take nodes out of service, up to a limit.
//! Beyond the limit, the nodes are not the cause.

use muster_api::tokens::Role;
use serde_json::{Value, json};

use crate::simulated::World;

fn alert(node: &str, fingerprint: &str, more: Value) -> Value {
    let mut labels = json!({ "alertname": "GpuXid79", "instance": node });
    labels
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({
        "status": "firing", "labels": labels, "annotations": { "summary": "GPU 3 has fallen off the bus" },
        "startsAt": "2026-03-01T10:00:00Z", "endsAt": "0001-01-01T00:00:00Z", "fingerprint": fingerprint,
        "generatorURL": "http://prometheus/graph",
    })
}

pub(crate) fn group(alerts: Vec<Value>) -> Value {
    json!({ "version": "4", "status": "firing", "receiver": "muster", "groupLabels": {}, "commonLabels": {}, "alerts": alerts })
}

fn outcomes(answer: &Value) -> Vec<&str> {
    answer["alerts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|heard| heard["outcome"].as_str().unwrap())
        .collect()
}

async fn in_service(nodes: u8) -> World {
    World::serving(nodes, |_, body| body).await
}

async fn told(world: &World, kind: &str) -> i64 {
    let query = sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = $1").bind(kind);
    query.fetch_one(&world.server.app.pool).await.unwrap()
}

#[tokio::test]
async fn an_alert_is_told_once_and_its_end_too() {
    let world = in_service(1).await;
    let by_name = alert("n1:9400", "f1", json!({}));
    // The addresses of the lab's nodes begin at 10.77.0.11.
    let by_address = alert("10.77.0.11:9100", "f2", json!({}));
    let nobody = alert("somewhere-else:9100", "f3", json!({}));
    let all = group(vec![by_name.clone(), by_address, nobody]);
    let first = world.admin.post("/v1/alerts", &all).await.expect(200).body;
    assert_eq!(
        outcomes(&first),
        ["noted", "noted", "unknown_node"],
        "{first}"
    );
    assert_eq!(first["alerts"][1]["node"], "n1");
    let again = world.admin.post("/v1/alerts", &all).await.expect(200).body;
    assert_eq!(outcomes(&again), ["known", "known", "unknown_node"]);
    assert_eq!(told(&world, "alert.firing").await, 2);
    let timeline = world
        .admin
        .get("/v1/nodes/n1/timeline")
        .await
        .expect(200)
        .text;
    assert!(
        timeline.contains("alert GpuXid79: GPU 3 has fallen off the bus"),
        "{timeline}"
    );

    let mut over = by_name;
    over["status"] = json!("resolved");
    for outcome in ["noted", "known"] {
        let ended = world
            .admin
            .post("/v1/alerts", &group(vec![over.clone()]))
            .await
            .expect(200)
            .body;
        assert_eq!(outcomes(&ended), [outcome]);
    }
    assert_eq!(told(&world, "alert.resolved").await, 1);
    assert_eq!(world.state("n1").await, "in_service");
    for wrong in [
        json!({ "version": "3", "alerts": [] }),
        group(vec![alert("n1", "", json!({}))]),
    ] {
        assert_eq!(
            world.admin.post("/v1/alerts", &wrong).await.status,
            422,
            "{wrong}"
        );
    }
    world.check().await;
}

#[tokio::test]
async fn a_rule_may_take_out_a_node_but_not_the_fleet() {
    let mut world = in_service(6).await;
    let asks = |node: &str| alert(node, node, json!({ "muster": "quarantine" }));
    let five = group(["n1", "n2", "n3", "n4", "n5"].map(asks).to_vec());
    let heard = world.admin.post("/v1/alerts", &five).await.expect(200).body;
    assert_eq!(
        outcomes(&heard),
        [
            "quarantined",
            "quarantined",
            "held_back",
            "held_back",
            "held_back"
        ],
        "{heard}"
    );
    assert!(heard["alerts"][0]["operation"].is_string());
    assert!(
        heard["alerts"][2]["because"]
            .as_str()
            .unwrap()
            .contains("took out 2 nodes"),
        "{heard}"
    );
    world.settle().await;
    for (name, state) in [
        ("n1", "quarantined"),
        ("n2", "quarantined"),
        ("n3", "in_service"),
        ("n5", "in_service"),
    ] {
        assert_eq!(world.state(name).await, state, "{name}");
    }
    assert_eq!(told(&world, "alert.held_back").await, 3);
    let reason = world.value("n1", "reason").await.unwrap();
    assert!(reason.contains("GpuXid79: GPU 3"), "{reason}");
    // The same alerts again take out no further node. An alert with another name has a separate
    // count.
    assert_eq!(
        outcomes(&world.admin.post("/v1/alerts", &five).await.expect(200).body),
        ["known", "known", "known", "known", "known"]
    );
    let other = alert(
        "n6",
        "o",
        json!({ "muster": "quarantine", "alertname": "DiskFailing" }),
    );
    assert_eq!(
        outcomes(
            &world
                .admin
                .post("/v1/alerts", &group(vec![other]))
                .await
                .expect(200)
                .body
        ),
        ["quarantined"]
    );
    // After an hour, a new alert of the first kind counts from zero.
    world.advance(3601);
    let later = alert("n3", "later", json!({ "muster": "quarantine" }));
    assert_eq!(
        outcomes(
            &world
                .admin
                .post("/v1/alerts", &group(vec![later]))
                .await
                .expect(200)
                .body
        ),
        ["quarantined"]
    );
    world.settle().await;
    world.check().await;
}

#[tokio::test]
async fn an_alerts_breaker_holds_until_its_end() {
    let mut world = in_service(5).await;
    let asks = |node: &str| group(vec![alert(node, node, json!({ "muster": "quarantine" }))]);
    for (after_s, node, became) in [
        (0, "n1", "quarantined"),
        (0, "n2", "quarantined"),
        (50 * 60, "n3", "held_back"),
        (11 * 60, "n4", "held_back"),
        (50 * 60, "n5", "quarantined"),
    ] {
        world.advance(after_s);
        let heard = world
            .admin
            .post("/v1/alerts", &asks(node))
            .await
            .expect(200)
            .body;
        assert_eq!(outcomes(&heard), [became], "{node}: {heard}");
    }
    world.settle().await;
    world.check().await;
}

#[tokio::test]
async fn a_node_that_is_worked_on_is_not_interrupted_by_an_alert() {
    let mut world = in_service(1).await;
    // The recovery ladder reboots the node, and monitoring sends alerts of the reboot.
    world.ask("n1", "recover").await.expect(202);
    world.until("n1", "repairing").await;
    let asks = group(vec![alert("n1", "f", json!({ "muster": "quarantine" }))]);
    let heard = world.admin.post("/v1/alerts", &asks).await.expect(200).body;
    assert_eq!(outcomes(&heard), ["refused"], "{heard}");
    assert!(
        heard["alerts"][0]["because"]
            .as_str()
            .unwrap()
            .contains("n1 is repairing"),
        "{heard}"
    );
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(
        outcomes(&world.admin.post("/v1/alerts", &asks).await.expect(200).body),
        ["quarantined"],
        "still firing"
    );
    world.settle().await;
    world.check().await;
}

#[tokio::test]
async fn what_may_not_be_taken_out_stays_and_is_tried_again() {
    let mut world = in_service(1).await;
    let asks = group(vec![alert("n1", "f", json!({ "muster": "quarantine" }))]);
    let viewer = world.server.caller(Role::Viewer).await;
    assert_eq!(viewer.post("/v1/alerts", &asks).await.status, 403);

    let release = world.release("n1").await.expect(202);
    let heard = world.admin.post("/v1/alerts", &asks).await.expect(200).body;
    assert_eq!(outcomes(&heard), ["refused"], "{heard}");
    assert!(
        heard["alerts"][0]["because"]
            .as_str()
            .unwrap()
            .contains("n1"),
        "{heard}"
    );
    assert_eq!(
        outcomes(&world.admin.post("/v1/alerts", &asks).await.expect(200).body),
        ["refused"]
    );
    assert_eq!(told(&world, "alert.firing").await, 1, "told once");
    world.advance(16 * 60);
    world.settle().await;
    assert_eq!(world.operation(&release).await, "succeeded");
    // The node is available again, and the alert still fires.
    assert_eq!(
        outcomes(&world.admin.post("/v1/alerts", &asks).await.expect(200).body),
        ["quarantined"]
    );
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    world.check().await;
}

/// Monitoring was away, and the same alerts end and fire again. A person may have decided in between.
#[tokio::test]
async fn an_alert_that_fires_again_judges_no_node_again() {
    let mut world = in_service(4).await;
    let asks = |node: &str| alert(node, node, json!({ "muster": "quarantine" }));
    let three = group(["n1", "n2", "n3"].map(asks).to_vec());
    let heard = world.admin.post("/v1/alerts", &three).await.expect(200);
    assert_eq!(
        outcomes(&heard.body),
        ["quarantined", "quarantined", "held_back"]
    );
    world.settle().await;
    world.advance(3601);
    let mut ended = three.clone();
    for alert in ended["alerts"].as_array_mut().unwrap() {
        alert["status"] = json!("resolved");
    }
    world.admin.post("/v1/alerts", &ended).await.expect(200);
    let before = told(&world, "alert.firing").await;
    let again = world.admin.post("/v1/alerts", &three).await.expect(200);
    assert_eq!(outcomes(&again.body), ["known"; 3]);
    assert_eq!(told(&world, "alert.firing").await, before + 3);
    world.settle().await;
    assert_eq!(world.state("n3").await, "in_service");
    world.check().await;
}
