//! A machine installed without Muster enters service unchanged. Changes need a request.

use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::server::Reply;

/// Declares a running node that waits for a decision, and a node built by Muster.
async fn found() -> World {
    let mut world = World::declare(2, |path, mut body| {
        if path == "/v1/nodes/n1" {
            body["spec"]["accept"] = json!(false);
        }
        body
    })
    .await;
    world.machine("n1", |machine| machine.install_by_somebody_else());
    world.rack().scheduler.others.insert("n1".into());
    let credential = json!({ "spec": { "purpose": "adopt", "secret": "one-time" } });
    world
        .admin
        .put("/v1/credentials/once", &credential)
        .await
        .expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "discovered");
    world
}

fn key() -> String {
    format!("SHA256:{}", "k".repeat(43))
}

async fn adopt(world: &World, host_key: Option<&str>) -> Reply {
    let body = json!({ "pool": "gpu", "credential": "once", "host_key": host_key, "reason": "it served before Muster" });
    world.admin.post("/v1/nodes/n1/actions/adopt", &body).await
}

#[tokio::test]
async fn the_plan_names_everything_that_is_written() {
    let world = found().await;
    let body = json!({ "pool": "gpu", "credential": "once" });
    let plan = world
        .admin
        .post("/v1/nodes/n1/actions/adopt?dry_run=true", &body)
        .await
        .expect(200)
        .body;
    assert_eq!(plan["effect"], "in_place");
    let changes: Vec<&str> = plan["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect();
    for written in [
        "/root/.ssh/authorized_keys",
        "/etc/muster/marker.json",
        "/usr/local/sbin/muster-node",
    ] {
        assert!(
            changes.iter().any(|line| line.starts_with(written)),
            "{changes:?}"
        );
    }
    assert!(
        plan["blockers"][0]
            .as_str()
            .unwrap()
            .starts_with("No host key was confirmed"),
        "{plan}"
    );
    assert_eq!(world.value("n1", "wish").await, None);
    let wrong = json!({ "pool": "none", "credential": "bmc", "host_key": "aa:bb", "claim": "No" });
    let refused = world
        .admin
        .post("/v1/nodes/n1/actions/adopt", &wrong)
        .await
        .expect(422)
        .body;
    let mut pointers: Vec<&str> = refused["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| fault["pointer"].as_str().unwrap())
        .collect();
    pointers.sort_unstable();
    assert_eq!(pointers, ["/claim", "/credential", "/host_key", "/pool"]);
}

#[tokio::test]
async fn a_host_key_is_confirmed_by_a_person_before_anything_is_sent() {
    let mut world = found().await;
    let first = adopt(&world, None).await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&first).await.as_str()
        ),
        ("discovered", "failed")
    );
    let path = format!("/v1/operations/{}", first.body["id"].as_str().unwrap());
    let told = world.admin.get(&path).await.expect(200).text;
    assert!(told.contains(&key()), "what it shows is told: {told}");
    let other = adopt(&world, Some(&format!("SHA256:{}", "x".repeat(43))))
        .await
        .expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&other).await.as_str()
        ),
        ("discovered", "failed")
    );
    assert_eq!(
        world.machine("n1", |machine| machine.disks[&machine.root()]
            .marker
            .clone()),
        None
    );
    let right = adopt(&world, Some(&key())).await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&right).await.as_str()
        ),
        ("in_service", "succeeded")
    );
    world.check().await;
}

#[tokio::test]
async fn an_adopted_node_serves_as_it_is_and_is_let_alone() {
    let mut world = found().await;
    adopt(&world, Some(&key())).await.expect(202);
    world.settle().await;
    assert_eq!(world.states("n1").await, ["in_service"]);
    let log = world.machine("n1", |machine| machine.log.clone());
    assert_eq!(log, [], "no power, no reboot, no image");
    let history = world.history("n1").await;
    assert!(
        !history.contains(&"step.queued converge".to_owned()),
        "{history:?}"
    );
    assert!(
        history.contains(&"step.succeeded drift".to_owned()),
        "{history:?}"
    );
    let node = world.admin.get("/v1/nodes/n1").await.expect(200).body;
    assert_eq!(
        (
            node["status"]["claim"].as_str(),
            node["status"]["pool"].as_str()
        ),
        (Some("n1"), Some("gpu"))
    );
    assert_eq!(node["spec"]["protected"], true);
    assert_eq!(
        node["status"]["last_gate_run"],
        Value::Null,
        "no load evidence is no pass"
    );
    let marker = world
        .machine("n1", |machine| {
            machine.disks[&machine.root()].marker.clone()
        })
        .unwrap();
    let claim = world.admin.get("/v1/claims/n1").await.expect(200).body;
    assert_eq!(
        (marker.claim.to_string(), marker.epoch),
        (claim["id"].as_str().unwrap().to_owned(), 1)
    );
    assert_eq!(
        world.value("n1", "unsanitised").await.as_deref(),
        Some("true")
    );
    assert_eq!(
        world.value("n1", "os_epoch").await.as_deref(),
        Some("1"),
        "logins use the epoch of the adoption, also after remains have raised the node's"
    );
    assert_eq!(
        world.value("n1", "power_reserved_w").await.as_deref(),
        Some("300")
    );
    assert_eq!(
        world.admin.get("/v1/nodes/n1/facts").await.expect(200).body["source"],
        "installed"
    );
    let credential = world
        .admin
        .get("/v1/credentials/once")
        .await
        .expect(200)
        .body;
    assert_eq!(credential["status"]["set"], false, "it was for once");
    // Another configuration lists the node, so Muster's configuration must not.
    world.claim("n2").await.expect(201);
    world.settle().await;
    assert_eq!(
        world
            .rack()
            .scheduler
            .members
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        ["n2"]
    );
    let protected = world.admin.expecting(1).delete("/v1/claims/n1").await;
    assert_eq!(protected.problem(), (409, "protected", ""));
    world.check().await;
}

/// Another configuration lists the node, so Muster might be unable to undo a drain.
#[tokio::test]
async fn an_adopted_node_is_swept_beside_its_jobs_and_not_drained_for_it() {
    let mut world = found().await;
    adopt(&world, Some(&key())).await.expect(202);
    world.settle().await;
    let mut nightly = world.admin.get("/v1/suites/smoke").await.expect(200).body["spec"].clone();
    nightly["name"] = json!("nightly");
    (nightly["gates"][0]["needs"], nightly["gates"][0]["effects"]) =
        (json!(["drained"]), json!(["cpu_load"]));
    world
        .admin
        .put("/v1/suites/nightly", &json!({ "spec": nightly }))
        .await
        .expect(201);
    let health = json!({ "spec": { "health": { "sweep": "nightly" } } });
    world
        .admin
        .patch("/v1/pools/gpu", &health)
        .await
        .expect(200);
    let swept = world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    let history = world.history("n1").await;
    assert!(
        !history.contains(&"step.queued hold".to_owned()),
        "{history:?}"
    );
    assert_eq!(
        (
            world.operation(&swept).await.as_str(),
            world.state("n1").await.as_str()
        ),
        ("succeeded", "in_service")
    );
    assert_eq!(
        world.value("n1", "held_back").await.as_deref(),
        Some("false")
    );
    world.check().await;
}

#[tokio::test]
async fn an_adopted_node_is_released_only_once_nobody_else_lists_it() {
    let mut world = found().await;
    adopt(&world, Some(&key())).await.expect(202);
    world.settle().await;
    world.protect("n1", false).await;
    world
        .admin
        .expecting(1)
        .delete("/v1/claims/n1")
        .await
        .expect(202);
    world.settle().await;
    assert_eq!(
        world.value("n1", "failed_phase").await.as_deref(),
        Some("draining")
    );
    assert!(
        !world.machine("n1", |machine| machine.empty()),
        "nothing was wiped under the scheduler"
    );
    world.rack().scheduler.others.clear();
    world.ask("n1", "retry").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    assert!(world.machine("n1", |machine| machine.empty()));
    world.machine("n1", |machine| machine.foreign = false);
    world.check().await;
}

#[tokio::test]
async fn an_adopted_node_missing_in_the_scheduler_is_returned() {
    let mut world = found().await;
    adopt(&world, Some(&key())).await.expect(202);
    world.settle().await;
    world.protect("n1", false).await;
    // The other configuration drops the node, and a converge installs the stack.
    world.rack().scheduler.others.clear();
    world.ask("n1", "converge").await.expect(202);
    world.settle().await;
    assert_eq!(
        world.state("n1").await,
        "in_service",
        "{:?}",
        world.value("n1", "reason").await
    );
    assert_eq!(
        world
            .rack()
            .scheduler
            .members
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        ["n1"]
    );
    world.check().await;
}

/// Facts of an installed system name no disk that a permit may list: the live image inspects first.
#[tokio::test]
async fn an_adopted_node_is_inspected_before_a_reinstall() {
    let mut world = found().await;
    adopt(&world, Some(&key())).await.expect(202);
    world.settle().await;
    world.protect("n1", false).await;
    world.rack().scheduler.others.clear();
    world.machine("n1", |machine| machine.foreign = false);
    let adopted = world.history("n1").await.len();
    let asked = world.ask("n1", "reinstall").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.operation(&asked).await.as_str(),
            world.state("n1").await.as_str()
        ),
        ("succeeded", "in_service"),
        "{:?}",
        world.value("n1", "reason").await
    );
    let history = &world.history("n1").await[adopted..];
    let steps: Vec<&str> = history
        .iter()
        .filter_map(|event| event.strip_prefix("step.succeeded "))
        .skip_while(|step| *step != "boot_live")
        .take(3)
        .collect();
    assert_eq!(
        steps,
        ["boot_live", "inventory", "write_image"],
        "{history:?}"
    );
    assert_eq!(
        world.admin.get("/v1/nodes/n1/facts").await.expect(200).body["source"],
        "live"
    );
    world.check().await;
}

#[tokio::test]
async fn a_stopped_adoption_allows_accept_and_reject() {
    let mut world = found().await;
    let asked = adopt(&world, Some(&key())).await.expect(202);
    let job = world.until_leased("n1", "adopt").await;
    assert_eq!(world.ask("n1", "accept").await.problem(), (409, "busy", ""));
    world.cancel(&asked).await.expect(202);
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&asked).await.as_str()
        ),
        ("discovered", "cancelled")
    );
    world.ask("n1", "reject").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "retired");
}
