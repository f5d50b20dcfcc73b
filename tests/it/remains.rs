//! Remains of deleted nodes: data on disks, the epoch and an adoption come back with the machine, by
//! any single identifier.

use muster_api::tokens::Role;
use muster_core::wire::calls::{Seen, Sighting, Sightings};
use muster_lab::simulated::machine::Disk;
use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

const UUID: &str = "4c4c4544-0043-4810-8052-b4c04f4e3132";
/// The same UUID in the byte order of SMBIOS before 2.6.
const OTHER_ORDER: &str = "44454c4c-4300-1048-8052-b4c04f4e3132";

/// `n1` was released, and the wipe failed. Its root disk carries the marker of the claim.
async fn unsanitised(nodes: u8) -> World {
    let mut world = World::start(nodes).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.fail("n1", "wipe", false, 1);
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    assert_eq!(marks(&world, "n1").await, ["true", "2"]);
    world
}

/// Whether the disks of a node may hold data, and the epoch.
async fn marks(world: &World, name: &str) -> [String; 2] {
    [
        world.value(name, "unsanitised").await.unwrap(),
        world.value(name, "epoch").await.unwrap(),
    ]
}

async fn count(world: &World, query: &'static str) -> i64 {
    sqlx::query_scalar(query)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap()
}

/// Deletes a node at the present generation.
async fn delete(caller: &Caller, name: &str) -> Reply {
    let path = format!("/v1/nodes/{name}");
    let node = caller.get(&path).await.expect(200);
    let generation = node.body["generation"].as_i64().unwrap();
    caller.expecting(generation).delete(&path).await
}

#[tokio::test]
async fn a_node_with_data_is_deleted_only_by_who_may_retire_nodes() {
    let mut world = unsanitised(2).await;
    let automation = world.server.caller(Role::Automation).await;
    let operator = world.server.caller(Role::Operator).await;
    // Allowed: a clean node by a pipeline.
    delete(&automation, "n2").await.expect(204);

    // Refused: a node with data by the same pipeline. The refusal names the ways on.
    let refused = delete(&automation, "n1").await;
    assert_eq!(refused.problem(), (403, "forbidden", ""));
    for named in [
        "muster node wipe n1",
        "`node.retire`",
        "the simulated wipe failed",
    ] {
        assert!(refused.text.contains(named), "{}", refused.text);
    }
    assert_eq!(world.state("n1").await, "quarantined");
    delete(&operator, "n1").await.expect(204);

    // The next record of the machine, by the pipeline again.
    automation
        .put("/v1/nodes/n1", &fleet::node(1))
        .await
        .expect(201);
    assert_eq!(marks(&world, "n1").await, ["true", "2"]);
    assert!(
        world
            .history("n1")
            .await
            .contains(&"node.remains_merged".to_owned())
    );
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    let reason = world.value("n1", "reason").await.unwrap();
    assert!(
        reason.starts_with("unsanitised: n1 left data on its disks on 2026-")
            && reason.contains("the simulated wipe failed"),
        "{reason}"
    );
    assert_eq!(world.claim("n1").await.status, 409);

    // The wipe knows the claim of the marker, and ends the memory.
    world.ask("n1", "wipe").await.expect(202);
    world.settle().await;
    assert_eq!(
        world.state("n1").await,
        "available",
        "{:?}",
        world.value("n1", "reason").await
    );
    assert!(world.machine("n1", |machine| machine.empty()));
    assert_eq!(marks(&world, "n1").await[0], "false");
    assert_eq!(
        count(&world, "SELECT count(*) FROM remains WHERE unsanitised").await,
        0
    );
    world.ask("n1", "inspect").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
}

/// Deletes `n1` with data at epoch 7, registers `n2` by a pipeline, and returns the marks of `n2`.
async fn remembered(first: &Value, second: &Value) -> (bool, i64) {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    admin.put("/v1/nodes/n1", first).await.expect(201);
    fleet::arrive(&server).await;
    sqlx::query("UPDATE nodes SET unsanitised = true, epoch = 7, state = 'quarantined', reason = 'unsanitised: a wipe failed'")
        .execute(&server.app.pool)
        .await
        .unwrap();
    delete(&admin, "n1").await.expect(204);
    let automation = server.caller(Role::Automation).await;
    automation.put("/v1/nodes/n2", second).await.expect(201);
    sqlx::query_as("SELECT unsanitised, epoch FROM nodes WHERE name = 'n2'")
        .fetch_one(&server.app.pool)
        .await
        .unwrap()
}

fn with(number: u8, member: &str, value: &str) -> Value {
    let mut node = fleet::node(number);
    node["spec"][member] = json!(value);
    node
}

#[tokio::test]
async fn any_single_identifier_shows_the_machine_again() {
    for (member, before, after) in [
        ("serial", "SN-0001", "sn-0001"),
        ("smbios_uuid", UUID, UUID),
        ("smbios_uuid", UUID, OTHER_ORDER),
    ] {
        let found = remembered(&with(1, member, before), &with(2, member, after)).await;
        assert_eq!(found, (true, 7), "{member} {after}");
    }
    let mut same_mac = fleet::node(2);
    same_mac["spec"]["macs"][0]["mac"] = fleet::node(1)["spec"]["macs"][0]["mac"].clone();
    assert_eq!(remembered(&fleet::node(1), &same_mac).await, (true, 7));
    // Another machine.
    assert_eq!(
        remembered(&fleet::node(1), &fleet::node(2)).await,
        (false, 0)
    );
    for (member, rubbish) in [
        ("serial", "To Be Filled By O.E.M."),
        ("serial", "Default string"),
        ("serial", "0000000000"),
        ("serial", "0123456789"),
        ("smbios_uuid", "03000200-0400-0500-0006-000700080009"),
    ] {
        let found = remembered(&with(1, member, rubbish), &with(2, member, rubbish)).await;
        assert_eq!(found, (false, 0), "{rubbish}");
    }
}

#[tokio::test]
async fn a_disk_with_data_marks_the_next_node_that_shows_the_disk() {
    let mut world = unsanitised(3).await;
    let admin = world.admin.clone();
    delete(&admin, "n1").await.expect(204);
    delete(&admin, "n3").await.expect(204);
    // A disk of a clean node changes no other node.
    world.machine("n2", |machine| {
        machine.disks.insert("DATA-n3".into(), Disk::default())
    });
    world.ask("n2", "inspect").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "available");
    assert_eq!(marks(&world, "n2").await, ["false", "0"]);

    let marker = world.machine("n1", |machine| machine.disks["ROOT-n1"].marker.clone());
    assert!(marker.is_some());
    let full = Disk {
        image: true,
        marker,
    };
    world.machine("n2", |machine| machine.disks.insert("DATA-n1".into(), full));
    world.ask("n2", "inspect").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "quarantined");
    let reason = world.value("n2", "reason").await.unwrap();
    assert!(reason.contains("n1 left data on its disks"), "{reason}");
    assert_eq!(marks(&world, "n2").await, ["true", "2"]);
    assert_eq!(world.claim("n2").await.status, 409);

    let disks = "SELECT count(*) FROM remains_identifiers WHERE kind = 'disk'";
    assert_eq!(count(&world, disks).await, 3);
    world.ask("n2", "wipe").await.expect(202);
    world.settle().await;
    assert_eq!(
        world.state("n2").await,
        "available",
        "{:?}",
        world.value("n2", "reason").await
    );
    assert!(world.machine("n2", |machine| machine.empty()));
    // The other two disks are elsewhere and still hold data.
    assert_eq!(count(&world, disks).await, 2);
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    assert_eq!(marks(&world, "n1").await, ["true", "2"]);
}

#[tokio::test]
async fn a_wiped_machine_is_not_marked_again_for_a_disk_elsewhere() {
    let mut world = unsanitised(1).await;
    let admin = world.admin.clone();
    delete(&admin, "n1").await.expect(204);
    let lost = world
        .machine("n1", |machine| machine.disks.remove("DATA-n1"))
        .unwrap();
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    assert_eq!(marks(&world, "n1").await, ["true", "2"]);
    world.settle().await;
    world.ask("n1", "wipe").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");

    // The machine is clean, and the disk is remembered.
    let automation = world.server.caller(Role::Automation).await;
    delete(&automation, "n1").await.expect(204);
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    assert_eq!(marks(&world, "n1").await, ["false", "2"]);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.machine("n1", |machine| machine.disks.insert("DATA-n1".into(), lost));
    world.ask("n1", "inspect").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    assert_eq!(marks(&world, "n1").await, ["true", "2"]);
}

#[tokio::test]
async fn a_deletion_marks_the_node_that_holds_a_disk_already() {
    let mut world = unsanitised(2).await;
    let moved = world
        .machine("n1", |machine| machine.disks.remove("DATA-n1"))
        .unwrap();
    world.machine("n2", |machine| {
        machine.disks.insert("DATA-n1".into(), moved)
    });
    world.advance(60);
    world.ask("n2", "inspect").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "available");
    let admin = world.admin.clone();
    delete(&admin, "n1").await.expect(204);
    assert_eq!(marks(&world, "n2").await, ["true", "2"]);
    assert_eq!(world.claim("n2").await.problem(), (409, "unsanitised", ""));
}

#[tokio::test]
async fn a_disk_taken_out_of_a_node_with_data_is_remembered() {
    let mut world = unsanitised(2).await;
    world.machine("n1", |machine| machine.disks.remove("DATA-n1"));
    world.machine("n1", |machine| {
        machine.disks.insert("NEW-n1".into(), Disk::default())
    });
    let part = json!({ "kind": "disk", "old": "DATA-n1", "new": "NEW-n1" });
    let body = json!({ "reason": "media errors", "parts": [part] });
    world.advance(60);
    world
        .admin
        .post("/v1/nodes/n1/actions/replace-parts", &body)
        .await
        .expect(202);
    world.settle().await;
    let full = Disk {
        image: true,
        marker: None,
    };
    world.machine("n2", |machine| machine.disks.insert("DATA-n1".into(), full));
    world.ask("n2", "inspect").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "quarantined");
    let reason = world.value("n2", "reason").await.unwrap();
    assert!(reason.contains("media errors"), "{reason}");
    world.ask("n2", "wipe").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "available");
    assert_eq!(
        count(&world, "SELECT count(*) FROM remains").await,
        0,
        "the only disk was wiped"
    );
}

#[tokio::test]
async fn a_discovered_machine_brings_the_memory_to_the_node_it_becomes() {
    let mut world = unsanitised(2).await;
    world.ask("n2", "quarantine").await.expect(202);
    world.settle().await;
    let admin = world.admin.clone();
    delete(&admin, "n1").await.expect(204);
    let mac = fleet::node(1)["spec"]["macs"][0]["mac"]
        .as_str()
        .unwrap()
        .to_owned();
    let report = Sightings {
        epoch: world.agent.epoch,
        sightings: vec![Sighting {
            at: world.server.app.clock.now(),
            mac: mac.parse().unwrap(),
            what: Seen::Dhcp,
            uuid: None,
            serial: None,
            detail: String::new(),
        }],
    };
    world
        .agent
        .call::<()>("/agent/v1/sightings", &report)
        .await
        .unwrap();
    let machine = format!("unknown-{}", mac.replace(':', ""));
    assert_eq!(marks(&world, &machine).await, ["true", "2"]);
    assert!(
        world
            .history(&machine)
            .await
            .contains(&"node.remains_merged".to_owned())
    );
    let path = format!("/v1/nodes/{machine}/actions/match");
    let body = json!({ "to": "n2", "reason": "the label names another MAC" });
    admin.expecting(1).post(&path, &body).await.expect(202);
    assert_eq!(marks(&world, "n2").await, ["true", "2"]);
    let heirs =
        "SELECT count(*) FROM remains_heirs h JOIN nodes n ON n.id = h.node_id WHERE n.name = 'n2'";
    assert_eq!(count(&world, heirs).await, 1);
    // The MAC replaced by the match belongs to a machine without data.
    let replaced = "SELECT count(*) FROM remains_identifiers WHERE value = '52:54:00:00:00:02'";
    assert_eq!(count(&world, replaced).await, 0);
}

#[tokio::test]
async fn a_node_declared_as_another_machine_does_not_clear_the_former() {
    let world = unsanitised(1).await;
    let automation = world.server.caller(Role::Automation).await;
    let mac = fleet::node(1)["spec"]["macs"][0]["mac"].clone();
    let other = json!({ "spec": { "macs": [{ "mac": "52:54:00:00:00:77", "subnet": "prov", "address": "10.77.0.11" }] } });
    automation.patch("/v1/nodes/n1", &other).await.expect(200);
    // Another machine stays clean, the former machine does not.
    automation
        .put("/v1/nodes/n8", &fleet::node(8))
        .await
        .expect(201);
    assert_eq!(marks(&world, "n8").await, ["false", "0"]);
    let mut former = fleet::node(9);
    former["spec"]["macs"][0]["mac"] = mac;
    automation.put("/v1/nodes/n9", &former).await.expect(201);
    assert_eq!(marks(&world, "n9").await, ["true", "2"]);
}

#[tokio::test]
async fn a_machine_destroyed_and_applied_again_continues_its_epoch() {
    let mut world = World::start(1).await;
    world.settle().await;
    let automation = world.server.caller(Role::Automation).await;
    for round in 1..=3 {
        world.claim("n1").await.expect(201);
        world.settle().await;
        assert_eq!(world.state("n1").await, "in_service", "round {round}");
        assert_eq!(
            world.value("n1", "adopted").await.as_deref(),
            Some("false"),
            "Muster wrote the system"
        );
        world.release("n1").await.expect(202);
        world.settle().await;
        assert_eq!(world.state("n1").await, "available", "round {round}");
        sqlx::query("UPDATE nodes SET adopted = true")
            .execute(&world.server.app.pool)
            .await
            .unwrap();
        delete(&automation, "n1").await.expect(204);
        automation
            .put("/v1/nodes/n1", &fleet::node(1))
            .await
            .expect(201);
        // Two assignments in each round: the claim and the release.
        let epoch = (2 * round).to_string();
        assert_eq!(marks(&world, "n1").await, ["false".to_owned(), epoch]);
        assert_eq!(world.value("n1", "adopted").await.as_deref(), Some("true"));
        assert_eq!(
            count(&world, "SELECT count(*) FROM remains").await,
            1,
            "the later remains contain the earlier"
        );
        world.settle().await;
        assert_eq!(world.state("n1").await, "available", "round {round}");
    }
}

#[tokio::test]
async fn a_node_that_was_never_used_leaves_no_remains() {
    let mut world = World::start(1).await;
    world.settle().await;
    let admin = world.admin.clone();
    delete(&admin, "n1").await.expect(204);
    assert_eq!(count(&world, "SELECT count(*) FROM remains").await, 0);
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
}
