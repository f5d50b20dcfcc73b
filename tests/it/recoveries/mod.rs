//! Nodes that fail in service: swept, drained, recovered rung by rung, verified by gates.

mod breakers; // Too many nodes with the same fault
mod hourly; // Root disks within the hourly limit of a pool
mod maker; // The download for the maker of a node

use muster_core::gates::Verdict;
use muster_core::ids::NodeId;
use muster_core::wire::node::{Failure, FailureCode};
use muster_lab::simulated::machine::{Running, Turn};
use muster_server::tasks::sweeps;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::simulated::World;

const LADDER: [&str; 4] = ["collect", "restart_services", "reboot", "power_cycle"];

/// Nodes in service, in a pool with the given health settings.
async fn serving(nodes: u8, health: Value) -> World {
    World::serving(nodes, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] = health.clone();
        }
        body
    })
    .await
}

fn watched(rungs: &[&str]) -> Value {
    json!({ "sweep": "smoke", "recovery": { "rungs": rungs } })
}

async fn recoveries(world: &World, name: &str) -> Vec<Value> {
    let page = world
        .admin
        .get(&format!("/v1/nodes/{name}/recoveries"))
        .await
        .expect(200)
        .body;
    page["items"].as_array().unwrap().clone()
}

fn outcomes(recovery: &Value) -> Vec<&str> {
    recovery["tried"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tried| tried["outcome"].as_str().unwrap())
        .collect()
}

async fn told(world: &World, kind: &str) -> i64 {
    let query = sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = $1").bind(kind);
    query.fetch_one(&world.server.app.pool).await.unwrap()
}

/// A round of the sweep task, from the first node.
async fn sweep(world: &World) {
    sweeps::round(&world.server.app, NodeId(Uuid::nil()))
        .await
        .unwrap();
}

fn silent(world: &World, name: &str, kind: &'static str, times: usize) {
    let failure = Failure {
        code: FailureCode::Timeout,
        message: "no answer in 1800 s".into(),
        retryable: true,
    };
    let turns = std::iter::repeat_n(Turn::Fails(failure), times);
    world.machine(name, |machine| {
        machine.turns.entry(kind).or_default().extend(turns)
    });
}

#[tokio::test]
async fn a_node_that_fails_its_sweep_is_drained_recovered_and_serves_again() {
    let mut world = serving(1, watched(&LADDER)).await;
    // The sweep fails, and so do the gates after the first rung with an effect.
    world.gates("n1", &[Verdict::Fail, Verdict::Fail]);
    sweep(&world).await;
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    let all = recoveries(&world, "n1").await;
    assert_eq!(all.len(), 1);
    assert_eq!(
        (all[0]["ended"].as_str(), all[0]["signature"].as_str()),
        (Some("recovered"), Some("gate:node.profile"))
    );
    assert_eq!(
        outcomes(&all[0]),
        ["done", "done", "done"],
        "the power cycle was not needed"
    );
    let looked = "step.succeeded firmware_look".to_owned();
    assert!(
        world.history("n1").await.contains(&looked),
        "what its BMC says is for whoever reads the bundle"
    );
    let way = world.states("n1").await;
    let way: Vec<&str> = way
        .iter()
        .map(String::as_str)
        .skip_while(|state| *state != "draining")
        .collect();
    assert_eq!(
        way,
        [
            "draining",
            "repairing",
            "validating",
            "repairing",
            "validating",
            "admitting",
            "in_service"
        ]
    );
    for (kind, times) in [
        ("recovery.started", 1),
        ("recovery.rung", 3),
        ("recovery.ended", 1),
    ] {
        assert_eq!(told(&world, kind).await, times, "{kind}");
    }
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    assert!(
        page.contains("id=\"recovery\"") && page.contains("restart failed services"),
        "{page}"
    );
    // The next sweep is not due yet.
    sweep(&world).await;
    assert_eq!(world.value("n1", "wish").await, None);
    world.check().await;
}

#[tokio::test]
async fn a_ladder_that_does_not_help_ends_in_quarantine_with_what_was_tried() {
    let mut world = serving(1, watched(&["reboot", "rma"])).await;
    world.gates("n1", &[Verdict::Fail, Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    let reason = world.value("n1", "reason").await.unwrap();
    assert!(
        reason.contains("its parts go back to their maker"),
        "{reason}"
    );
    let next = world.value("n1", "next_action").await.unwrap();
    assert!(next.contains("muster node rma n1"), "{next}");
    let all = recoveries(&world, "n1").await;
    assert_eq!(
        (all[0]["ended"].as_str(), outcomes(&all[0])),
        (Some("spent"), vec!["done", "done"])
    );
    // The gate runs keep the failure with the evidence.
    let runs = world
        .admin
        .get("/v1/nodes/n1/gate-runs")
        .await
        .expect(200)
        .body;
    assert_eq!(runs["items"][0]["verdict"], "fail");
    // The node's page links to every gate run, and names the run behind the state.
    let path = |run: &Value| format!("/nodes/n1?run={}", run["id"].as_str().unwrap());
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    assert!(
        page.contains(&format!(
            "href=\"{}#gates\">Gate run behind this state",
            path(&runs["items"][0])
        )),
        "{page}"
    );
    for run in runs["items"].as_array().unwrap() {
        assert!(page.contains(&path(run)), "{page}");
        world.admin.get(&path(run)).await.expect(200);
    }
    assert_eq!(
        world
            .admin
            .get(&format!("/nodes/n1?run={}", uuid::Uuid::nil()))
            .await
            .status,
        404
    );
    world.check().await;
}

#[tokio::test]
async fn a_pool_without_a_ladder_has_what_fails_quarantined() {
    let mut world = serving(1, json!({ "sweep": "smoke" })).await;
    world.gates("n1", &[Verdict::Error, Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(
        world.state("n1").await,
        "in_service",
        "a tool that crashed condemns nothing"
    );
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    assert_eq!(recoveries(&world, "n1").await[0]["rungs"], json!([]));
    world.check().await;
}

#[tokio::test]
async fn a_machine_that_hangs_is_power_cycled() {
    let mut world = serving(1, watched(&LADDER)).await;
    let before = world.machine("n1", |machine| machine.boot_id());
    silent(&world, "n1", "gates", 2);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    let all = recoveries(&world, "n1").await;
    assert_eq!(all[0]["signature"], "unreachable");
    assert_eq!(outcomes(&all[0]), ["skipped", "skipped", "skipped", "done"]);
    assert_ne!(world.machine("n1", |machine| machine.boot_id()), before);
    let acts = world.machine("n1", |machine| {
        machine
            .log
            .iter()
            .map(|done| done.act.to_string())
            .collect::<Vec<_>>()
    });
    assert!(
        acts.ends_with(&["power_off".into(), "reset".into(), "reboot".into()]),
        "{acts:?}"
    );
    world.check().await;
}

#[tokio::test]
async fn a_machine_lost_in_a_reboot_before_service_is_recovered() {
    let mut world = World::declare(1, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] = json!({ "recovery": { "rungs": ["reboot", "power_cycle"] } });
        }
        body
    })
    .await;
    world.settle().await;
    // The first reboot belongs to the stack. The reboot for the gates fails three times.
    world.claim("n1").await.expect(201);
    world.until("n1", "validating").await;
    silent(&world, "n1", "reboot", 3);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(
        outcomes(&recoveries(&world, "n1").await[0]),
        ["skipped", "done"]
    );
    world.check().await;
}

#[tokio::test]
async fn an_order_that_cannot_be_built_is_a_persons_and_no_fault_of_the_machine() {
    let mut world = World::declare(1, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] = watched(&["reboot", "reimage"]);
        }
        body
    })
    .await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.until("n1", "validating").await;
    let acts = |world: &World| world.machine("n1", |machine| machine.log.len());
    let before = acts(&world);
    // The stack of the revision is locked against another image. SQL writes the lock, because the
    // server assigns no such revision.
    for stale in [
        "ALTER TABLE pool_revisions DISABLE TRIGGER pool_revisions_immutable",
        "UPDATE pool_revisions SET stack = jsonb_set(stack, '{lock,image_digest}', to_jsonb('sha256:' || repeat('0', 64)))",
    ] {
        sqlx::query(stale)
            .execute(&world.server.app.pool)
            .await
            .unwrap();
    }
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), acts(&world)),
        ("failed", before),
        "nothing was powered or written"
    );
    let reason = world.value("n1", "reason").await.unwrap();
    assert!(reason.contains("lock"), "it says what to declare: {reason}");
    assert_eq!(recoveries(&world, "n1").await, [] as [Value; 0]);
    world.check().await;
}

#[tokio::test]
async fn a_ladder_may_write_the_image_anew() {
    let mut world = serving(1, watched(&["reimage"])).await;
    let images = |world: &World| {
        world.machine("n1", |machine| {
            machine
                .log
                .iter()
                .filter(|done| done.act == "image")
                .count()
        })
    };
    assert_eq!(images(&world), 1);
    world.gates("n1", &[Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), images(&world)),
        ("in_service", 2)
    );
    assert_eq!(recoveries(&world, "n1").await[0]["ended"], "recovered");
    world.check().await;
}

/// The gate that found the fault must pass, even in a pool with another suite for admission.
#[tokio::test]
async fn a_node_comes_back_only_past_the_gate_that_took_it_out() {
    let mut world = serving(1, Value::Null).await;
    let mut nightly = world.admin.get("/v1/suites/smoke").await.expect(200).body["spec"].clone();
    nightly["name"] = json!("nightly");
    nightly["gates"][0]["id"] = json!("night.watch");
    // The suite before a job has the same gate in another form. The sweep's form found the fault.
    let mut brief = nightly.clone();
    (brief["name"], brief["gates"][0]["title"]) = (json!("brief"), json!("A glance"));
    world
        .admin
        .put("/v1/suites/brief", &json!({ "spec": brief }))
        .await
        .expect(201);
    // A member with the value null counts as absent.
    (nightly["gates"][0]["peer"], nightly["gates"][0]["during"]) = (Value::Null, Value::Null);
    world
        .admin
        .put("/v1/suites/nightly", &json!({ "spec": nightly }))
        .await
        .expect(201);
    let health =
        json!({ "smoke": "brief", "sweep": "nightly", "recovery": { "rungs": ["reboot"] } });
    world
        .admin
        .patch("/v1/pools/gpu", &json!({ "spec": { "health": health } }))
        .await
        .expect(200);
    world.gates("n1", &[Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    let recovery = &recoveries(&world, "n1").await[0];
    assert_eq!(
        (&recovery["signature"], &recovery["ended"]),
        (&json!("gate:night.watch"), &json!("recovered"))
    );
    let runs = world
        .admin
        .get("/v1/nodes/n1/gate-runs")
        .await
        .expect(200)
        .body;
    let gates = |run: &Value| -> Vec<String> {
        run["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| result["gate"].as_str().unwrap().to_owned())
            .collect()
    };
    let after = runs["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|run| gates(run).len() == 2)
        .expect("both were run");
    assert_eq!(gates(after), ["node.profile", "night.watch"], "{runs:#}");
    assert_eq!(after["results"][1]["title"], nightly["gates"][0]["title"]);
    world.check().await;
}

#[tokio::test]
async fn a_person_stops_a_ladder_between_its_rungs() {
    let mut world = serving(1, watched(&LADDER)).await;
    let asked = world.ask("n1", "recover").await.expect(202);
    world.until("n1", "repairing").await;
    let open = recoveries(&world, "n1").await;
    assert_eq!(open[0]["operation"], asked.body["id"], "{open:?}");
    world.cancel(&asked).await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    assert_eq!(recoveries(&world, "n1").await[0]["ended"], "stopped");
    assert_eq!(world.operation(&asked).await, "cancelled");
    // A request does not take a protected node out of service.
    world.ask("n1", "recover").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.protect("n1", true).await;
    assert_eq!(world.ask("n1", "recover").await.status, 409);
    world.gates("n1", &[Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.check().await;
}

#[tokio::test]
async fn a_ladder_that_is_stopped_in_a_power_cycle_leaves_its_machine_on() {
    let mut world = serving(1, watched(&["power_cycle"])).await;
    let asked = world.ask("n1", "recover").await.expect(202);
    let job = world.until_leased("n1", "power_off").await;
    world.cancel(&asked).await.expect(202);
    world.engine().await;
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&asked).await.as_str()
        ),
        ("quarantined", "cancelled")
    );
    let all = recoveries(&world, "n1").await;
    assert_eq!(
        (all[0]["ended"].as_str(), outcomes(&all[0])),
        (Some("stopped"), vec!["done"])
    );
    assert!(
        world
            .history("n1")
            .await
            .contains(&"step.succeeded boot_disk".to_owned())
    );
    assert!(
        world.machine("n1", |machine| machine.running != Running::Off),
        "as it was found"
    );
    world.check().await;
}

#[tokio::test]
async fn what_a_pool_asks_for_is_refused_where_it_has_no_bounds() {
    let world = World::start(1).await;
    for (health, pointer) in [
        (
            json!({ "recovery": { "rungs": ["reboot", "collect"] } }),
            "/spec/health/recovery/rungs",
        ),
        (
            json!({ "recovery": { "rungs": [], "per_node": 0 } }),
            "/spec/health/recovery/per_node",
        ),
        (json!({ "sweep_every_h": 0 }), "/spec/health/sweep_every_h"),
    ] {
        let patch = json!({ "spec": { "health": health } });
        let refused = world.admin.patch("/v1/pools/gpu", &patch).await.expect(422);
        assert!(refused.text.contains(pointer), "{}", refused.text);
    }
    let patch = json!({ "spec": { "health": { "sweep": "nothing" } } });
    assert_eq!(
        world.admin.patch("/v1/pools/gpu", &patch).await.status / 100,
        4,
        "there is no such suite"
    );
    assert_eq!(
        world.ask("n1", "sweep").await.status,
        409,
        "it does not serve"
    );
}
