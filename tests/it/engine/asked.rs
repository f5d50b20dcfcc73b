//! Power, gates and a new installation, because somebody asked: on the spot where no job runs, through the scheduler where one may.

use muster_core::gates::Verdict;
use muster_lab::simulated::agent::Stop;
use muster_lab::simulated::machine::Running;
use serde_json::json;

use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::Reply;

async fn serving() -> World {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world
}

async fn in_maintenance() -> World {
    let mut world = serving().await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    world
}

fn acts(world: &World) -> Vec<String> {
    world.machine("n1", |machine| {
        machine
            .log
            .iter()
            .map(|done| done.act.to_string())
            .collect()
    })
}

/// Asks, and works until it is over: how it ended.
async fn done(world: &mut World, action: &str) -> String {
    let asked = world.ask("n1", action).await.expect(202);
    world.settle().await;
    world.check().await;
    world.operation(&asked).await
}

async fn message(world: &World, reply: &Reply) -> String {
    let id = reply.body["id"].as_str().unwrap();
    let operation = world
        .admin
        .get(&format!("/v1/operations/{id}"))
        .await
        .expect(200);
    operation.body["progress"]["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn power_is_switched_in_maintenance_and_the_node_comes_back_by_itself() {
    let mut world = in_maintenance().await;
    let before = acts(&world).len();
    for (action, running, watts) in [
        ("power-off", Running::Off, "0"),
        ("power-on", Running::Installed, "300"),
        ("power-on", Running::Installed, "300"),
        ("power-cycle", Running::Installed, "300"),
        ("power-off", Running::Off, "0"),
    ] {
        assert_eq!(done(&mut world, action).await, "succeeded", "{action}");
        assert_eq!(world.state("n1").await, "maintenance");
        assert_eq!(
            world.machine("n1", |machine| machine.running.clone()),
            running,
            "{action}"
        );
        assert_eq!(
            world.value("n1", "power_reserved_w").await.unwrap(),
            watts,
            "{action}"
        );
        let node = world.admin.get("/v1/nodes/n1").await.expect(200);
        let on = node.body["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["condition"] == "powered_on");
        assert_eq!(
            on.unwrap()["value"],
            if running == Running::Off {
                "false"
            } else {
                "true"
            },
            "{action}"
        );
    }
    // What was on stayed as it was.
    assert_eq!(
        acts(&world)[before..],
        ["power_off", "power_on", "reset", "power_off"]
    );
    // Off, it cannot be gated: it is booted first.
    world.ask("n1", "resume").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.check().await;
}

#[tokio::test]
async fn nobodys_work_is_switched_off() {
    let mut world = serving().await;
    for action in ["power-on", "power-off", "power-cycle", "run-gates"] {
        let refused = world.ask("n1", action).await;
        assert_eq!(refused.problem(), (409, "state", ""), "{action}");
    }
    world.ask("n1", "quarantine").await.expect(202);
    world.settle().await;
    world.protect("n1", true).await;
    for action in ["power-on", "power-off", "power-cycle", "run-gates"] {
        assert_eq!(
            world.ask("n1", action).await.problem(),
            (409, "protected", ""),
            "{action}"
        );
    }
    world.protect("n1", false).await;
    let body = json!({ "reason": " " });
    for action in ["power-off", "power-cycle", "reinstall"] {
        let refused = world
            .admin
            .post(&format!("/v1/nodes/n1/actions/{action}"), &body)
            .await;
        assert_eq!(
            refused.problem(),
            (422, "unprocessable", "/reason"),
            "{action}"
        );
    }
}

/// Whether a reset happened cannot be seen: it is not done twice, and not called done.
#[tokio::test]
async fn a_power_cycle_that_nobody_heard_of_is_not_repeated() {
    let mut world = in_maintenance().await;
    let asked = world.ask("n1", "power-cycle").await.expect(202);
    let job = world.until_leased("n1", "power_cycle").await;
    // Permitted, committed, done, and dead before it could say so.
    world.agent.refuel(4);
    assert_eq!(world.agent.work(&job).await, Err(Stop::Dead));
    let resets = acts(&world).iter().filter(|act| *act == "reset").count();
    world
        .replace_agent(muster_lab::simulated::agent::IMMORTAL)
        .await;
    world.settle().await;
    assert_eq!(
        acts(&world).iter().filter(|act| *act == "reset").count(),
        resets,
        "once"
    );
    assert_eq!(world.operation(&asked).await, "failed");
    assert!(
        message(&world, &asked)
            .await
            .contains("it may have happened")
    );
    assert_eq!(world.state("n1").await, "maintenance");
    world.check().await;
}

#[tokio::test]
async fn a_rack_without_power_refuses_to_start_another_machine() {
    let mut world = World::declare(2, |path, mut body| {
        if path == "/v1/racks/r1" {
            body["spec"]["power_budget_w"] = json!(350);
        }
        body
    })
    .await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(done(&mut world, "power-off").await, "succeeded");
    world.claim("n2").await.expect(201);
    world.settle().await;
    assert_eq!(
        world.state("n2").await,
        "in_service",
        "what n1 freed is there to be had"
    );
    let asked = world.ask("n1", "power-on").await.expect(202);
    world.settle().await;
    assert_eq!(world.operation(&asked).await, "failed");
    assert!(
        message(&world, &asked).await.contains("r1's power budget"),
        "{}",
        message(&world, &asked).await
    );
    world.check().await;
}

#[tokio::test]
async fn each_run_of_gates_is_a_job_of_its_own_and_its_record_stays() {
    let mut world = in_maintenance().await;
    let mut night = fleet::suite();
    night["spec"]["name"] = json!("night");
    world
        .admin
        .put("/v1/suites/night", &night)
        .await
        .expect(201);
    let before = world
        .admin
        .get("/v1/nodes/n1/gate-runs")
        .await
        .expect(200)
        .body["items"]
        .as_array()
        .unwrap()
        .len();
    let mut operations = Vec::new();
    for (body, verdict) in [
        (json!({ "suite": "night" }), Verdict::Pass),
        (json!({ "suite": "night" }), Verdict::Fail),
        (json!({}), Verdict::Pass),
    ] {
        world.gates("n1", &[verdict]);
        let asked = world
            .admin
            .post("/v1/nodes/n1/actions/run-gates", &body)
            .await
            .expect(202);
        world.settle().await;
        assert_eq!(world.operation(&asked).await, "succeeded");
        assert_eq!(
            message(&world, &asked).await,
            format!("gates: 1 {}", verdict.as_str())
        );
        operations.push(asked.body["id"].as_str().unwrap().to_owned());
    }
    // Nothing is decided by them.
    assert_eq!(world.state("n1").await, "maintenance");
    let runs = world.admin.get("/v1/nodes/n1/gate-runs").await.expect(200);
    let told = |run: &serde_json::Value| (run["suite"].clone(), run["verdict"].clone());
    let runs: Vec<_> = runs.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(told)
        .collect();
    assert_eq!(runs.len(), before + 3, "{runs:?}");
    assert_eq!(
        runs[..3],
        [
            (json!("smoke 1"), json!("pass")),
            (json!("night 1"), json!("fail")),
            (json!("night 1"), json!("pass")),
        ]
    );
    // Who asked first keeps their steps.
    for id in operations {
        let operation = world
            .admin
            .get(&format!("/v1/operations/{id}"))
            .await
            .expect(200);
        assert_eq!(
            operation.body["steps"][0]["step"], "gates",
            "{}",
            operation.text
        );
    }
    for (body, code) in [
        (json!({ "suite": "morning" }), "not_found"),
        (json!({ "until": "2100-01-01T00:00:00Z" }), "out_of_range"),
    ] {
        let refused = world
            .admin
            .post("/v1/nodes/n1/actions/run-gates", &body)
            .await;
        assert_eq!(
            (refused.status, refused.body["errors"][0]["code"].as_str()),
            (422, Some(code))
        );
    }
    world.check().await;
}

/// An hour of burning in and three of DCGM's longest level are more than a step's usual time.
#[tokio::test]
async fn a_long_suite_has_the_time_that_its_gates_ask_for() {
    let mut world = in_maintenance().await;
    let mut deep = fleet::suite();
    deep["spec"]["name"] = json!("deep");
    let mut gates = deep["spec"]["gates"].as_array().unwrap().clone();
    gates[0]["timeout_s"] = json!(3 * 3600);
    gates[0]["retries"] = json!(1);
    deep["spec"]["gates"] = json!(gates);
    world.admin.put("/v1/suites/deep", &deep).await.expect(201);
    world
        .admin
        .post(
            "/v1/nodes/n1/actions/run-gates",
            &json!({ "suite": "deep" }),
        )
        .await
        .expect(202);
    let job = world.until_leased("n1", "gates").await;
    assert!(job.timeout_s > 6 * 3600, "{} s", job.timeout_s);
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    world
        .admin
        .post(
            "/v1/nodes/n1/actions/run-gates",
            &json!({ "suite": "smoke" }),
        )
        .await
        .expect(202);
    let job = world.until_leased("n1", "gates").await;
    assert_eq!(job.timeout_s, 2 * 3600, "a short one has its step's time");
    world.agent.work(&job).await.unwrap();
    world.settle().await;
}

#[tokio::test]
async fn gates_of_a_free_node_run_in_the_live_image_and_it_is_off_again() {
    for ends in ["well", "badly", "stopped"] {
        let mut world = World::start(1).await;
        world.settle().await;
        let unnamed = world
            .admin
            .post("/v1/nodes/n1/actions/run-gates", &json!({}))
            .await;
        assert_eq!(
            unnamed.problem(),
            (422, "unprocessable", "/suite"),
            "no pool names one"
        );
        if ends == "badly" {
            world.fail("n1", "gates", false, 1);
        }
        let asked = world
            .admin
            .post(
                "/v1/nodes/n1/actions/run-gates",
                &json!({ "suite": "smoke" }),
            )
            .await
            .expect(202);
        let claimed = world.claim("n1").await;
        assert_eq!(claimed.problem().0, 409, "not while it runs them");
        if ends == "stopped" {
            let job = world.until_leased("n1", "gates").await;
            world.cancel(&asked).await.expect(202);
            world.agent.work(&job).await.unwrap();
        }
        world.settle().await;
        let word = match ends {
            "well" => "succeeded",
            "badly" => "failed",
            _ => "cancelled",
        };
        assert_eq!(world.operation(&asked).await, word);
        assert_eq!(world.state("n1").await, "available");
        assert_eq!(
            world.machine("n1", |machine| machine.running.clone()),
            Running::Off,
            "{ends}"
        );
        assert_eq!(world.value("n1", "power_reserved_w").await.unwrap(), "0");
        assert_eq!(world.value("n1", "live_host_key").await, None);
        world.check().await;
        world.claim("n1").await.expect(201);
    }
}

#[tokio::test]
async fn a_new_installation_drains_first_and_is_admitted_through_its_gates() {
    let mut world = serving().await;
    let whole = ["installing", "validating", "admitting", "in_service"];
    let before = world.states("n1").await.len();
    assert_eq!(done(&mut world, "converge").await, "succeeded");
    let again = world.states("n1").await;
    assert_eq!(again[before..], [&["draining"], &whole[..]].concat());
    let images = |world: &World| acts(world).iter().filter(|act| *act == "image").count();
    assert_eq!(images(&world), 1);

    // What cannot be taken back is asked of the node as it was read.
    let because = json!({ "reason": "its root file system is damaged" });
    let path = "/v1/nodes/n1/actions/reinstall";
    assert_eq!(world.admin.post(path, &because).await.status, 428);
    assert_eq!(
        world.admin.expecting(99).post(path, &because).await.status,
        412
    );
    let plan = world
        .admin
        .post(&format!("{path}?dry_run=true"), &because)
        .await
        .expect(200);
    assert_eq!(plan.body["effect"], "reinstall");
    let asked = world
        .admin
        .expecting(1)
        .post(path, &because)
        .await
        .expect(202);
    world.settle().await;
    assert_eq!(world.operation(&asked).await, "succeeded");
    assert_eq!(
        world.states("n1").await[again.len()..],
        [&["draining", "imaging"], &whole[..]].concat()
    );
    assert_eq!(images(&world), 2);
    assert_eq!(
        world.value("n1", "epoch").await.unwrap(),
        "1",
        "it is its claim's as before"
    );
    world.check().await;
}

#[tokio::test]
async fn a_drain_for_a_new_installation_can_be_turned_round() {
    let mut world = serving().await;
    let asked = world.ask("n1", "reinstall").await.expect(202);
    let job = world.until_leased("n1", "drain").await;
    world.cancel(&asked).await.expect(202);
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&asked).await.as_str()
        ),
        ("in_service", "cancelled")
    );
    assert_eq!(acts(&world).iter().filter(|act| *act == "image").count(), 1);
    // A node that nobody holds has no stack to be brought back to.
    world.release("n1").await.expect(202);
    world.settle().await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    for action in ["converge", "reinstall"] {
        assert_eq!(
            world.ask("n1", action).await.problem(),
            (409, "node_not_claimed", ""),
            "{action}"
        );
    }
    world.check().await;
}

async fn kept(world: &World) -> (i64, i64) {
    sqlx::query_as("SELECT count(*), count(next_ciphertext) FROM bmc_passwords")
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap()
}

fn password(world: &World) -> Option<String> {
    world.machine("n1", |machine| machine.bmc_password.clone())
}

#[tokio::test]
async fn a_bmc_password_changes_beside_jobs_and_stays_secret() {
    let mut world = serving().await;
    assert_eq!(password(&world), None);
    assert_eq!(done(&mut world, "rotate-bmc").await, "succeeded");
    let first = password(&world).unwrap();
    assert_eq!(
        (world.state("n1").await.as_str(), kept(&world).await),
        ("in_service", (1, 0))
    );
    assert_eq!(done(&mut world, "rotate-bmc").await, "succeeded");
    let second = password(&world).unwrap();
    assert_ne!(first, second);
    // What powers the machine afterwards knows it.
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(done(&mut world, "power-cycle").await, "succeeded");
    let events = world
        .admin
        .get("/v1/nodes/n1/events")
        .await
        .expect(200)
        .text;
    assert!(
        events.contains("bmc.rotated") && !events.contains(&first) && !events.contains(&second),
        "{events}"
    );
    world.check().await;
}

/// Killed after it was changed and before anybody heard: both are known until one was taken.
#[tokio::test]
async fn a_password_whose_change_nobody_heard_of_is_not_lost() {
    let mut world = in_maintenance().await;
    let asked = world.ask("n1", "rotate-bmc").await.expect(202);
    let job = world.until_leased("n1", "rotate_bmc").await;
    assert_eq!(
        kept(&world).await,
        (1, 1),
        "it is stored before anybody is told it"
    );
    world.agent.refuel(2);
    assert_eq!(world.agent.work(&job).await, Err(Stop::Dead));
    let changed = password(&world).unwrap();
    world
        .replace_agent(muster_lab::simulated::agent::IMMORTAL)
        .await;
    world.settle().await;
    assert_eq!(
        (world.operation(&asked).await.as_str(), kept(&world).await),
        ("succeeded", (1, 0))
    );
    assert_eq!(password(&world).unwrap(), changed, "it is the same one");
    assert_eq!(done(&mut world, "power-cycle").await, "succeeded");
    world.check().await;
}

/// What a person writes into the credential has the last word, and what the BMC took before is not forgotten for it.
#[tokio::test]
async fn a_rewritten_credential_is_tried_before_the_stored_one() {
    let mut world = in_maintenance().await;
    assert_eq!(done(&mut world, "rotate-bmc").await, "succeeded");
    let credential = json!({ "spec": { "purpose": "bmc", "user": "root", "secret": "by hand" } });
    world
        .admin
        .put("/v1/credentials/bmc", &credential)
        .await
        .expect(200);
    assert_eq!(
        done(&mut world, "power-cycle").await,
        "succeeded",
        "the BMC has what it took"
    );
    world.machine("n1", |machine| {
        machine.bmc_password = Some("by hand".into())
    });
    assert_eq!(
        done(&mut world, "power-cycle").await,
        "succeeded",
        "somebody gave it another by hand"
    );
    assert_eq!(done(&mut world, "rotate-bmc").await, "succeeded");
    assert_eq!(done(&mut world, "power-cycle").await, "succeeded");
    world.check().await;
}
