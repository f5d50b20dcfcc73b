//! A machine that discovered itself, because the node that waits for it was declared with other MACs, becomes that node.

use muster_api::tokens::Role;
use muster_core::wire::calls::{Seen, Sighting, Sightings};
use serde_json::json;

use crate::simulated::World;
use crate::support::server::{Caller, Reply};

const MACHINE: &str = "unknown-0200000000aa";
const MAC: &str = "02:00:00:00:00:aa";

async fn seen(world: &World) {
    let sighting = Sighting {
        at: world.server.app.clock.now(),
        mac: MAC.parse().unwrap(),
        what: Seen::Dhcp,
        uuid: None,
        serial: None,
        detail: String::new(),
    };
    let report = Sightings {
        epoch: world.agent.epoch,
        sightings: vec![sighting],
    };
    world
        .agent
        .call::<()>("/agent/v1/sightings", &report)
        .await
        .unwrap();
}

/// `n1` waits in quarantine for a machine that shows itself with another MAC and another serial, and was looked at; `n2` serves.
async fn waiting() -> World {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n2").await.expect(201);
    world.settle().await;
    world.ask("n1", "quarantine").await.expect(202);
    world.settle().await;
    assert_eq!(
        (world.state("n1").await, world.state("n2").await),
        ("quarantined".into(), "in_service".into())
    );
    let mistyped = json!({ "spec": { "serial": "MISTYPED" } });
    world
        .admin
        .patch("/v1/nodes/n1", &mistyped)
        .await
        .expect(200);
    seen(&world).await;
    for statement in [
        "DELETE FROM facts WHERE node_id = (SELECT id FROM nodes WHERE name = 'n1')",
        "INSERT INTO facts (node_id, source, observed_at, facts)
         SELECT m.id, 'live', now(), jsonb_set(f.facts, '{smbios,serial}', '\"REAL\"')
         FROM nodes m, nodes n JOIN facts f ON f.node_id = n.id WHERE m.name LIKE 'unknown-%' AND n.name = 'n2' LIMIT 1",
        "INSERT INTO components (node_id, kind, serial, first_seen, last_seen) SELECT id, 'gpu', 'G-1', now(), now() FROM nodes WHERE name LIKE 'unknown-%'",
        "UPDATE nodes SET unsanitised = true, epoch = 7 WHERE name LIKE 'unknown-%'",
    ] {
        assert!(sqlx::query(statement).execute(&world.server.app.pool).await.unwrap().rows_affected() > 0, "{statement}");
    }
    world
}

async fn bind(caller: &Caller, to: &str, query: &str) -> Reply {
    let path = format!("/v1/nodes/{MACHINE}/actions/match{query}");
    caller
        .post(
            &path,
            &json!({ "to": to, "reason": "the MAC on the label is another one" }),
        )
        .await
}

#[tokio::test]
async fn a_discovered_machine_becomes_the_node_that_waits_for_it() {
    let world = waiting().await;
    let admin = &world.admin;
    let before = admin.get("/v1/nodes/n1").await.expect(200).body;
    let machine = admin
        .get(&format!("/v1/nodes/{MACHINE}"))
        .await
        .expect(200)
        .body["id"]
        .clone();
    let plan = bind(admin, "n1", "?dry_run=true").await.expect(200).body;
    let old = before["spec"]["macs"][0]["mac"].as_str().unwrap();
    assert_eq!(
        (&plan["effect"], &plan["blockers"]),
        (&json!("none"), &json!([])),
        "{plan}"
    );
    assert_eq!(plan["changes"][0], "serial: MISTYPED → REAL");
    assert_eq!(plan["changes"][1], format!("macs: {old} → {MAC}"));
    assert_eq!(
        admin.get("/v1/nodes/n1").await.body,
        before,
        "a dry run leaves nothing"
    );
    assert_eq!(bind(admin, "n1", "").await.status, 428);
    assert_eq!(bind(&admin.expecting(9), "n1", "").await.status, 412);

    let done = bind(&admin.expecting(1), "n1", "").await.expect(202);
    assert_eq!(
        (
            done.body["kind"].as_str(),
            done.body["target"]["name"].as_str()
        ),
        (Some("match"), Some("n1"))
    );
    assert_eq!(world.operation(&done).await, "succeeded");
    let after = admin.get("/v1/nodes/n1").await.expect(200).body;
    assert_eq!(after["id"], before["id"]);
    assert_eq!(
        after["spec"]["macs"][0],
        json!({
            "mac": MAC, "subnet": before["spec"]["macs"][0]["subnet"], "address": before["spec"]["macs"][0]["address"]
        })
    );
    assert_eq!(
        (&after["spec"]["serial"], &after["status"]["state"]),
        (&json!("REAL"), &json!("quarantined"))
    );
    assert_eq!(admin.get(&format!("/v1/nodes/{MACHINE}")).await.status, 404);
    assert_eq!(
        admin.get("/v1/nodes/n1/facts").await.expect(200).body["facts"]["smbios"]["serial"],
        "REAL"
    );
    let parts = admin.get("/v1/nodes/n1/components").await.expect(200).text;
    assert!(parts.contains("G-1"), "{parts}");
    assert_eq!(
        world.value("n1", "unsanitised").await.as_deref(),
        Some("true"),
        "its disks hold what they held"
    );
    assert_eq!(world.value("n1", "epoch").await.as_deref(), Some("7"));

    // Both records tell it, and the machine is not discovered again.
    for (node, kind) in [
        (&after["id"], "node.matched"),
        (&machine, "node.unregistered"),
    ] {
        let events = admin
            .get(&format!(
                "/v1/events?limit=1000&node={}",
                node.as_str().unwrap()
            ))
            .await
            .expect(200)
            .body;
        let told = events["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|event| event["kind"] == kind);
        let told = told.unwrap_or_else(|| panic!("{kind}: {events}"));
        assert_eq!(
            (&told["detail"]["from"], &told["detail"]["to"]),
            (&machine, &after["id"])
        );
        assert!(
            told["summary"]
                .as_str()
                .unwrap()
                .contains("the MAC on the label is another one"),
            "{told}"
        );
    }
    seen(&world).await;
    assert_eq!(admin.get(&format!("/v1/nodes/{MACHINE}")).await.status, 404);
    assert_eq!(
        bind(&admin.expecting(1), "n1", "").await.status,
        404,
        "it is done"
    );
    world.check().await;
}

#[tokio::test]
async fn nothing_that_is_held_is_matched() {
    let world = waiting().await;
    let admin = world.admin.expecting(1);
    let refused = async |to: &str, why: &str| {
        let reply = bind(&admin, to, "").await;
        assert_eq!(
            reply.problem(),
            (409, "blocked", ""),
            "{to}: {}",
            reply.text
        );
        assert!(
            reply.body["detail"].as_str().unwrap().contains(why),
            "{to}: {}",
            reply.text
        );
        let plan = bind(&admin, to, "?dry_run=true").await.expect(200).body;
        assert!(plan["blockers"].to_string().contains(why), "{plan}");
    };
    refused("n2", "n2 is claimed").await;
    world.ask("n1", "inspect").await.expect(409);
    for (change, why) in [
        (
            "UPDATE nodes SET wish = 'recover' WHERE name = 'n1'",
            "n1 is quarantined and was asked to recover",
        ),
        (
            "UPDATE nodes SET wish = NULL, state = 'inspecting' WHERE name = 'n1'",
            "n1 is inspecting; wait",
        ),
        (
            "UPDATE nodes SET state = 'available', reason = NULL WHERE name = 'n1'",
            "does not wait for a machine",
        ),
        (
            "UPDATE nodes SET state = 'failed', failed_phase = 'inspecting', protected = true WHERE name = 'n1'",
            "n1 is protected",
        ),
        (
            "UPDATE nodes SET protected = name LIKE 'unknown-%'",
            "unknown-0200000000aa is protected",
        ),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(change))
            .execute(&world.server.app.pool)
            .await
            .unwrap();
        refused("n1", why).await;
    }
    // The other way round: a node that was declared is no discovered machine.
    let generation = world.admin.get("/v1/nodes/n1").await.body["generation"]
        .as_i64()
        .unwrap();
    let path = "/v1/nodes/n1/actions/match";
    let reply = world
        .admin
        .expecting(generation)
        .post(path, &json!({ "to": MACHINE }))
        .await;
    assert!(
        reply.expect(409).text.contains("n1 is a declared node"),
        "it has a BMC"
    );
    sqlx::query("UPDATE nodes SET protected = false")
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    for (body, pointer) in [
        (json!({ "to": "n9" }), "/to"),
        (json!({ "to": MACHINE }), "/to"),
        (
            json!({ "to": "n1", "replaces": ["02:00:00:00:00:bb"] }),
            "/replaces/0",
        ),
    ] {
        let path = format!("/v1/nodes/{MACHINE}/actions/match");
        assert_eq!(
            admin.post(&path, &body).await.problem(),
            (422, "unprocessable", pointer),
            "{body}"
        );
    }
    assert_eq!(
        bind(&world.server.caller(Role::Automation).await, "n1", "")
            .await
            .status,
        403
    );
    let machine = admin
        .get(&format!("/v1/nodes/{MACHINE}"))
        .await
        .expect(200)
        .body;
    assert_eq!(machine["status"]["state"], json!("discovered"));
}
