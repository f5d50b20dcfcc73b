//! The edges that people ask for: reject, retire, quarantine of an idle node, maintenance with an end, a look in service, power by hand.

use muster_core::wire::PROTOCOL;
use muster_core::wire::bmc::Power;
use muster_core::wire::calls::{Seen, Sighting, Sightings};
use muster_core::wire::job::JobSpec;
use serde_json::json;

use crate::simulated::World;

#[tokio::test]
async fn what_was_rejected_is_remembered_and_can_be_taken_back() {
    let mut world = World::start(0).await;
    let seen = |world: &World| Sightings {
        epoch: world.agent.epoch,
        sightings: vec![Sighting {
            at: world.server.app.clock.now(),
            mac: "52:54:00:aa:00:01".parse().unwrap(),
            what: Seen::Dhcp,
            uuid: None,
            serial: None,
            detail: String::new(),
        }],
    };
    let report = seen(&world);
    let _nothing: Result<serde_json::Value, _> =
        world.agent.call("/agent/v1/sightings", &report).await;
    let nodes = world.admin.get("/v1/nodes").await.expect(200).body;
    let name = nodes["items"][0]["name"].as_str().unwrap().to_owned();
    assert_eq!(world.state(&name).await, "discovered");
    assert_eq!(
        world
            .admin
            .post(&format!("/v1/nodes/{name}/actions/reject"), &json!({}))
            .await
            .problem()
            .0,
        422
    );
    let rejected = world.ask(&name, "reject").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state(&name).await.as_str(),
            world.operation(&rejected).await.as_str()
        ),
        ("retired", "succeeded")
    );
    let _nothing: Result<serde_json::Value, _> =
        world.agent.call("/agent/v1/sightings", &seen(&world)).await;
    world.settle().await;
    let nodes = world.admin.get("/v1/nodes").await.expect(200).body;
    assert_eq!(
        nodes["items"].as_array().unwrap().len(),
        1,
        "the same machine is not discovered again"
    );
    assert_eq!(world.state(&name).await, "retired");
    assert_eq!(PROTOCOL, 1);
    world.ask(&name, "reinstate").await.expect(202);
    world.engine().await;
    assert_eq!(world.state(&name).await, "inspecting");
}

#[tokio::test]
async fn an_idle_node_is_retired_and_reinstated() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.ask("n1", "retire").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "retired");
    assert_eq!(
        world.claim("n1").await.problem(),
        (409, "node_not_available", "")
    );
    assert_eq!(
        world.ask("n1", "inspect").await.problem(),
        (409, "state", "")
    );
    world.ask("n1", "reinstate").await.expect(202);
    world.settle().await;
    assert_eq!(
        world.states("n1").await[2..],
        ["retired", "inspecting", "available"]
    );
    world.check().await;
}

#[tokio::test]
async fn an_idle_node_is_quarantined_and_recovered_or_retired() {
    let mut world = World::start(2).await;
    world.settle().await;
    for name in ["n1", "n2"] {
        world.ask(name, "quarantine").await.expect(202);
    }
    world.settle().await;
    assert_eq!(world.value("n1", "reason").await.as_deref(), Some("a test"));
    assert_eq!(
        world.claim("n1").await.problem(),
        (409, "node_not_available", "")
    );
    world.ask("n1", "recover").await.expect(202);
    world.ask("n2", "retire").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.state("n2").await.as_str()
        ),
        ("available", "retired")
    );
    assert_eq!(
        world.states("n1").await[2..],
        ["quarantined", "inspecting", "available"]
    );
    world.check().await;
}

#[tokio::test]
async fn a_draining_node_can_still_be_wanted_for_something_else() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.claim("n2").await.expect(201);
    world.settle().await;
    for (name, first, then, end) in [
        ("n1", "drain", "quarantine", "quarantined"),
        ("n2", "quarantine", "maintain", "maintenance"),
    ] {
        world.ask(name, first).await.expect(202);
        let job = world.until_leased(name, "drain").await;
        let asked = world.ask(name, then).await.expect(202);
        world.engine().await;
        assert!(!world.agent.renew(&job).await.unwrap(), "the drain goes on");
        world.agent.work(&job).await.unwrap();
        world.settle().await;
        assert_eq!(
            (
                world.state(name).await.as_str(),
                world.operation(&asked).await.as_str()
            ),
            (end, "succeeded")
        );
        assert!(!world.rack().scheduler.members.contains(name));
    }
    world.check().await;
}

#[tokio::test]
async fn a_maintenance_with_an_end_ends_by_itself() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n2").await.expect(201);
    world.settle().await;
    let start = world.server.app.clock.now();
    let hours = |hours: i64| start + jiff::SignedDuration::from_hours(hours);
    let until = |hours: i64| json!({ "reason": "a fan", "until": hours_text(start, hours) });
    let path = |name: &str, action: &str| format!("/v1/nodes/{name}/actions/{action}");
    let past = world.admin.post(&path("n1", "maintain"), &until(-1)).await;
    assert_eq!(past.problem(), (422, "unprocessable", "/until"));
    let other = world.admin.post(&path("n1", "inspect"), &until(4)).await;
    assert_eq!(other.problem(), (422, "unprocessable", "/until"));
    for name in ["n1", "n2"] {
        world
            .admin
            .post(&path(name, "maintain"), &until(4))
            .await
            .expect(202);
    }
    world.settle().await;
    for name in ["n1", "n2"] {
        assert_eq!(world.state(name).await, "maintenance");
        let node = world
            .admin
            .get(&format!("/v1/nodes/{name}"))
            .await
            .expect(200)
            .body;
        assert_eq!(
            node["status"]["deadline_at"],
            json!(hours(4)),
            "its end is what counts, not the default"
        );
        assert_eq!(node["status"]["why"]["next_action"], "resume automatically");
    }
    // Asked again, it is the new end.
    world
        .admin
        .post(&path("n1", "maintain"), &until(8))
        .await
        .expect(202);
    world.engine().await;
    world
        .server
        .app
        .clock
        .advance(hours(5).duration_since(world.server.app.clock.now()));
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.state("n2").await.as_str()
        ),
        ("maintenance", "in_service")
    );
    let n1 = world.admin.get("/v1/nodes/n1").await.expect(200).body;
    assert_eq!(n1["status"]["deadline_at"], json!(hours(8)));
    world
        .server
        .app
        .clock
        .advance(hours(9).duration_since(world.server.app.clock.now()));
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    assert_eq!(world.value("n1", "maintenance_until").await, None);
    world.check().await;
}

fn hours_text(start: jiff::Timestamp, hours: i64) -> String {
    (start + jiff::SignedDuration::from_hours(hours)).to_string()
}

#[tokio::test]
async fn a_node_in_service_is_inspected_where_it_is() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    let before = world.machine("n1", |machine| machine.log.len());
    for _ in 0..2 {
        let asked = world.ask("n1", "inspect").await.expect(202);
        let job = world.until_leased("n1", "inventory").await;
        let JobSpec::Inventory { login, .. } = &job.spec else {
            panic!("{job:?}")
        };
        assert_eq!(
            Some(&login.host_key),
            world.value("n1", "os_host_key").await.as_ref(),
            "the installed system"
        );
        world.agent.work(&job).await.unwrap();
        world.settle().await;
        assert_eq!(
            (
                world.state("n1").await.as_str(),
                world.operation(&asked).await.as_str()
            ),
            ("in_service", "succeeded")
        );
    }
    assert_eq!(
        world.machine("n1", |machine| machine.log.len()),
        before,
        "nothing was done to it"
    );
    let facts = world.admin.get("/v1/nodes/n1/facts").await.expect(200).body;
    assert_eq!(facts["source"], "installed");
    // It keeps nobody from taking the node out, and a look that fails is told and over.
    world.ask("n1", "inspect").await.expect(202);
    let job = world.until_leased("n1", "inventory").await;
    let drain = world.ask("n1", "drain").await.expect(202);
    world.engine().await;
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&drain).await.as_str()
        ),
        ("maintenance", "succeeded")
    );
    world.ask("n1", "resume").await.expect(202);
    world.settle().await;
    world.fail("n1", "inventory", false, 1);
    let failed = world.ask("n1", "inspect").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&failed).await.as_str()
        ),
        ("in_service", "failed")
    );
    world.check().await;
}

#[tokio::test]
async fn a_machine_without_a_bmc_waits_for_its_person_by_name() {
    let mut world = World::declare(1, |path, mut body| {
        if path == "/v1/nodes/n1" {
            body["spec"]["power"] = json!({ "manual": { "person": "the night shift" } });
        }
        body
    })
    .await;
    let job = world.until_leased("n1", "boot_live").await;
    let JobSpec::BootLive(boot) = &job.spec else {
        panic!("{job:?}")
    };
    assert_eq!(
        boot.power,
        Power::Manual {
            person: "the night shift".into()
        }
    );
    world.agent.renew(&job).await.unwrap();
    world.advance(61);
    world.engine().await;
    let why = world.admin.get("/v1/nodes/n1/why").await.expect(200).body;
    assert_eq!(why["owner"], "the night shift", "{why}");
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.check().await;
}
