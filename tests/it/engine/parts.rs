//! Parts by serial: what was seen where, what replaced it, and what becomes of what was known before.

use muster_core::gates::Verdict;
use muster_core::ids::NodeId;
use muster_core::parts::{Part, PartKind};
use muster_server::db;
use serde_json::{Value, json};

use crate::simulated::World;
use muster_lab::simulated::machine::Disk;

async fn components(world: &World) -> Vec<Value> {
    let page = world
        .admin
        .get("/v1/nodes/n1/components")
        .await
        .expect(200)
        .body;
    page["items"].as_array().unwrap().clone()
}

fn find<'all>(all: &'all [Value], serial: &str) -> &'all Value {
    all.iter()
        .find(|part| part["serial"] == serial)
        .unwrap_or_else(|| panic!("no {serial} in {all:?}"))
}

async fn replaced(world: &World, parts: Value) -> crate::support::server::Reply {
    let body = json!({ "reason": "media errors", "parts": parts });
    // People take their time before, and machines after.
    world.advance(60);
    let reply = world
        .admin
        .post("/v1/nodes/n1/actions/replace-parts", &body)
        .await;
    world.advance(60);
    reply
}

fn swap(world: &World, old: &str, new: &str) {
    world.machine("n1", |machine| {
        machine.disks.remove(old);
        machine.disks.insert(new.into(), Disk::default());
    });
}

#[tokio::test]
async fn a_replaced_disk_is_looked_for_and_what_passed_before_is_void() {
    let mut world = World::start(1).await;
    world.settle().await;
    assert_eq!(
        components(&world).await.len(),
        4,
        "three disks and the interface"
    );
    world.gates("n1", &[Verdict::Fail]);
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    let wrong = replaced(
        &world,
        json!([{ "kind": "disk", "old": "S0", "new": "S1" }]),
    )
    .await;
    assert_eq!(wrong.problem(), (422, "unprocessable", "/parts/0/old"));
    assert_eq!(
        world.value("n1", "wish").await,
        None,
        "nothing is half asked"
    );
    let same = replaced(
        &world,
        json!([{ "kind": "disk", "old": "DATA-n1", "new": "DATA-n1" }]),
    )
    .await;
    assert_eq!(same.problem(), (422, "unprocessable", "/parts/0/new"));
    swap(&world, "DATA-n1", "NEW-n1");
    let id = world.value("n1", "id").await;
    let asked = replaced(
        &world,
        json!([{ "kind": "disk", "old": "DATA-n1", "new": "NEW-n1" }]),
    )
    .await
    .expect(202);
    world.until("n1", "imaging").await;
    assert_eq!(world.operation(&asked).await, "succeeded");
    let node = world.admin.get("/v1/nodes/n1").await.expect(200).body;
    assert_eq!(
        node["status"]["last_gate_run"],
        Value::Null,
        "what passed or failed before says nothing now"
    );
    let runs = world
        .admin
        .get("/v1/nodes/n1/gate-runs")
        .await
        .expect(200)
        .body;
    assert!(runs["items"][0]["voided_at"].is_string(), "{runs}");
    let void = format!("/nodes/n1?run={}", runs["items"][0]["id"].as_str().unwrap());
    let page = world.admin.get(&void).await.expect(200).text;
    assert!(page.contains("Void since"), "{page}");
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.value("n1", "id").await
        ),
        ("in_service", id)
    );
    let all = components(&world).await;
    let old = find(&all, "DATA-n1");
    assert_eq!(
        (old["replaced_by"].as_str(), old["replaced_reason"].as_str()),
        (Some("NEW-n1"), Some("media errors"))
    );
    assert_eq!(find(&all, "NEW-n1")["replaced_at"], Value::Null);
    let found = world
        .admin
        .get("/v1/components?serial=DATA-n1")
        .await
        .expect(200)
        .body;
    assert_eq!(found["items"][0]["node"], "n1");
    world.check().await;
}

#[tokio::test]
async fn what_was_said_and_what_is_seen_must_fit() {
    let mut world = World::start(1).await;
    world.settle().await;
    // Said and not done.
    replaced(
        &world,
        json!([{ "kind": "disk", "old": "DATA-n1", "new": "NEW-n1" }]),
    )
    .await
    .expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    let reason = world.value("n1", "reason").await.unwrap();
    assert_eq!(
        reason,
        "the parts differ from the recorded ones: disk DATA-n1 was replaced by NEW-n1 and is still there"
    );
    let next = world.value("n1", "next_action").await.unwrap();
    assert!(
        next.starts_with("muster node parts n1 shows the parts"),
        "{next}"
    );
    // Done with another disk than the one that was said.
    swap(&world, "DATA-n1", "OTHER-n1");
    world.ask("n1", "recover").await.expect(202);
    world.settle().await;
    let reason = world.value("n1", "reason").await.unwrap();
    assert!(reason.contains("DATA-n1"), "{reason}");
    let right = json!([{ "kind": "disk", "old": "DATA-n1", "new": "OTHER-n1" }]);
    replaced(&world, right).await.expect(202);
    world.settle().await;
    assert_eq!(
        world.state("n1").await,
        "available",
        "{:?}",
        world.value("n1", "reason").await
    );
    world.check().await;
}

#[tokio::test]
async fn disks_that_were_destroyed_need_no_wipe() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.fail("n1", "wipe", false, 1);
    world.release("n1").await.expect(202);
    world.settle().await;
    // One of three: what is left may hold data.
    swap(&world, "DATA-n1", "DATA2-n1");
    replaced(
        &world,
        json!([{ "kind": "disk", "old": "DATA-n1", "new": "DATA2-n1" }]),
    )
    .await
    .expect(202);
    world.settle().await;
    assert_eq!(
        world.value("n1", "unsanitised").await.as_deref(),
        Some("true")
    );
    assert_eq!(world.state("n1").await, "quarantined");
    for kind in ["DATA2", "DECOY", "ROOT"] {
        swap(&world, &format!("{kind}-n1"), &format!("{kind}9-n1"));
    }
    let part = |kind: &str| json!({ "kind": "disk", "old": format!("{kind}-n1"), "new": format!("{kind}9-n1") });
    replaced(&world, json!([part("DATA2"), part("DECOY"), part("ROOT")]))
        .await
        .expect(202);
    world.settle().await;
    assert_eq!(
        world.value("n1", "unsanitised").await.as_deref(),
        Some("false")
    );
    assert_eq!(
        world.state("n1").await,
        "available",
        "{:?}",
        world.value("n1", "reason").await
    );
    assert!(
        world
            .history("n1")
            .await
            .contains(&"node.disks_removed".to_owned()),
        "the destruction is recorded"
    );
}

#[tokio::test]
async fn another_serial_in_a_slot_tells_that_the_one_before_was_replaced() {
    let mut world = World::start(1).await;
    world.settle().await;
    let node: NodeId = world.value("n1", "id").await.unwrap().parse().unwrap();
    let dimm = |serial: &str| Part {
        kind: PartKind::Dimm,
        serial: serial.into(),
        slot: Some("A1".into()),
        model: None,
    };
    for serial in ["D1", "D2", "D1"] {
        world.advance(60);
        let now = world.server.app.clock.now();
        let mut conn = world.server.app.pool.acquire().await.unwrap();
        db::components::record_parts(&mut conn, node, &[dimm(serial)], now)
            .await
            .unwrap();
        drop(conn);
        let all = components(&world).await;
        assert_eq!(
            find(&all, serial)["replaced_at"],
            Value::Null,
            "what is seen is in"
        );
        if serial == "D2" {
            assert_eq!(find(&all, "D1")["replaced_by"], "D2");
        }
    }
    assert_eq!(
        find(&components(&world).await, "D2")["replaced_by"],
        "D1",
        "it was put back"
    );
}

#[tokio::test]
async fn a_replaced_chassis_takes_its_pins_along() {
    let mut world = World::declare(1, |path, mut body| {
        if path == "/v1/nodes/n1" {
            body["spec"]["serial"] = json!("CH-1");
            body["spec"]["smbios_uuid"] = json!("4c4c4544-0043-4810-8052-b4c04f4e3132");
        }
        body
    })
    .await;
    world.settle().await;
    let node: NodeId = world.value("n1", "id").await.unwrap().parse().unwrap();
    let chassis = Part {
        kind: PartKind::Chassis,
        serial: "CH-1".into(),
        slot: None,
        model: None,
    };
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    db::components::record_parts(&mut conn, node, &[chassis], world.server.app.clock.now())
        .await
        .unwrap();
    drop(conn);
    sqlx::query("UPDATE nodes SET bmc_certificate = 'sha256:old'")
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    replaced(
        &world,
        json!([{ "kind": "chassis", "old": "CH-1", "new": "CH-2" }]),
    )
    .await
    .expect(202);
    assert_eq!(world.value("n1", "bmc_certificate").await, None);
    assert_eq!(world.value("n1", "serial").await.as_deref(), Some("CH-2"));
    let node = world.admin.get("/v1/nodes/n1").await.expect(200).body;
    assert_eq!(
        (node["spec"]["serial"].as_str(), node["generation"].as_i64()),
        (Some("CH-2"), Some(2))
    );
    assert_eq!(
        node["spec"].get("smbios_uuid"),
        None,
        "it was the former board's"
    );
    assert_eq!(world.value("n1", "smbios_uuid::text").await, None);
}

#[tokio::test]
async fn a_node_is_renamed_unless_somebody_holds_it() {
    let mut world = World::start(2).await;
    world.settle().await;
    let path = "/v1/nodes/n1/actions/rename";
    let id = world.value("n1", "id").await.unwrap();
    let plan = world
        .admin
        .post(&format!("{path}?dry_run=true"), &json!({ "name": "n2" }))
        .await
        .expect(200)
        .body;
    assert_eq!(
        (plan["effect"].as_str(), plan["blockers"][0].as_str()),
        (Some("in_place"), Some("The name n2 is taken."))
    );
    let taken = world.admin.post(path, &json!({ "name": "n2" })).await;
    assert_eq!(taken.problem(), (409, "name_taken", ""));
    assert_eq!(taken.body["existing"]["name"], "n2", "{}", taken.text);
    assert_eq!(
        world
            .admin
            .post(path, &json!({ "name": "No" }))
            .await
            .problem()
            .0,
        400
    );
    let done = world
        .admin
        .post(path, &json!({ "name": "gpu-7" }))
        .await
        .expect(202);
    assert_eq!(
        (done.body["state"].as_str(), done.body["kind"].as_str()),
        (Some("succeeded"), Some("rename"))
    );
    assert_eq!(world.admin.get("/v1/nodes/n1").await.status, 404);
    let node = world.admin.get("/v1/nodes/gpu-7").await.expect(200).body;
    assert_eq!(
        (node["id"].as_str(), node["generation"].as_i64()),
        (Some(id.as_str()), Some(2))
    );
    world.claim("n2").await.expect(201);
    let held = world
        .admin
        .post("/v1/nodes/n2/actions/rename", &json!({ "name": "gpu-8" }))
        .await;
    assert_eq!(held.problem(), (409, "blocked", ""));
}

#[tokio::test]
async fn a_node_is_moved_with_its_power() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    let rack =
        |watts: u32| json!({ "spec": { "site": "lab", "units": 20, "power_budget_w": watts } });
    world
        .admin
        .put("/v1/racks/r2", &rack(299))
        .await
        .expect(201);
    let path = "/v1/nodes/n1/actions/move";
    let there = json!({ "rack": "r2", "rack_unit": 7 });
    let plan = world
        .admin
        .post(&format!("{path}?dry_run=true"), &there)
        .await
        .expect(200)
        .body;
    assert_eq!(
        plan["changes"],
        json!(["rack: r1 → r2", "rack_unit: 1 → 7"])
    );
    assert_eq!(
        plan["blockers"],
        json!(["r2's power budget: 0 of 299 W are committed, n1 holds 300 W."])
    );
    assert_eq!(
        world.admin.post(path, &there).await.problem(),
        (409, "blocked", "")
    );
    world
        .admin
        .put("/v1/racks/r2", &rack(300))
        .await
        .expect(200);
    let away = json!({ "rack": "r2", "rack_unit": 99 });
    assert_eq!(
        world.admin.post(path, &away).await.problem(),
        (422, "unprocessable", "/spec/rack_unit")
    );
    world.admin.post(path, &there).await.expect(202);
    let node = world.admin.get("/v1/nodes/n1").await.expect(200).body;
    assert_eq!(
        (
            node["spec"]["rack"].as_str(),
            node["spec"]["rack_unit"].as_i64()
        ),
        (Some("r2"), Some(7))
    );
    // Another node that is on does not fit beside it; one that is off holds no power.
    world
        .admin
        .post("/v1/nodes/n2/actions/move", &json!({ "rack": "r2" }))
        .await
        .expect(202);
    assert_eq!(world.state("n1").await, "in_service");
    world.check().await;
}
