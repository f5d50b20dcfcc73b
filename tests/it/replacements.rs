//! Claims that get another node: it comes first, and the one that is there goes only once it serves. And what of a claim is changed without touching either.

use std::time::{Duration, Instant};

use muster_api::tokens::Role;
use muster_core::gates::Verdict;
use serde_json::{Value, json};

use crate::simulated::{Fuel, World};
use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

/// So many nodes, the first of them in service under the claim `c-n1`.
async fn serving(nodes: u8) -> World {
    let mut world = World::start(nodes).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world
}

async fn claim(world: &World, key: &str) -> Value {
    world
        .admin
        .get(&format!("/v1/claims/{key}"))
        .await
        .expect(200)
        .body
}

async fn message(world: &World, reply: &Reply) -> String {
    let id = reply.body["id"].as_str().unwrap();
    let operation = world
        .admin
        .get(&format!("/v1/operations/{id}"))
        .await
        .expect(200)
        .body;
    operation["progress"]["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn wiped(world: &World, name: &str) -> usize {
    world.machine(name, |machine| {
        machine.log.iter().filter(|done| done.act == "wipe").count()
    })
}

#[tokio::test]
async fn the_node_that_comes_serves_before_the_other_goes() {
    let mut world = serving(2).await;
    let before = claim(&world, "c-n1").await;
    let replace = world.replace("n1").await.expect(202);
    assert_eq!(
        (&replace.body["kind"], &replace.body["target"]["name"]),
        (&json!("replace"), &json!("n2"))
    );
    assert_eq!(
        world.replace("n1").await.expect(202).body["id"],
        replace.body["id"],
        "asked again, it is the same"
    );
    world.until("n2", "validating").await;
    let meanwhile = claim(&world, "c-n1").await;
    assert_eq!(
        (
            &meanwhile["status"]["node"],
            &meanwhile["status"]["replacement"]["node"],
            &meanwhile["status"]["ready"]
        ),
        (&json!("n1"), &json!("n2"), &json!(true)),
        "both are shown, and it serves"
    );
    assert_eq!(
        meanwhile["status"]["replacement"]["operation"],
        replace.body["id"]
    );
    let coming = claim(
        &world,
        meanwhile["status"]["replacement"]["claim"]
            .as_str()
            .unwrap(),
    )
    .await;
    assert_eq!(
        (&coming["status"]["replaces"], &coming["status"]["ready"]),
        (&json!("c-n1"), &json!(false))
    );
    assert!(
        world
            .admin
            .get("/claims")
            .await
            .expect(200)
            .text
            .contains("→ <a href=\"/nodes/n2\"")
    );
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(&world, "n1")),
        ("in_service", 0)
    );

    world.until("n1", "draining").await;
    let after = claim(&world, "c-n1").await;
    assert_eq!(
        (&after["status"]["node"], &after["status"]["node_state"]),
        (&json!("n2"), &json!("in_service"))
    );
    assert_eq!(
        (&after["id"], &after["spec"], &after["generation"]),
        (&before["id"], &before["spec"], &json!(1))
    );
    assert_eq!(after["status"]["leaving"][0]["node"], "n1");
    assert!(
        after["status"]["leaving"][0]["undo_until"].is_string(),
        "{after}"
    );
    assert_eq!(world.operation(&replace).await, "succeeded");
    world.check().await;
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(&world, "n1")),
        ("available", 1)
    );
    assert_eq!(
        (world.state("n2").await.as_str(), wiped(&world, "n2")),
        ("in_service", 0)
    );
    assert_eq!(claim(&world, "c-n1").await["status"]["leaving"], json!([]));
    world.check().await;

    // The disks are marked with the claim that the node came with, and are still this one's to write and to wipe.
    world.ask("n2", "reinstall").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        (world.state("n2").await.as_str(), wiped(&world, "n2")),
        ("available", 1)
    );
    world.check().await;
}

#[tokio::test]
async fn the_node_that_was_replaced_can_be_taken_back_while_its_disks_are_kept() {
    let mut world = serving(2).await;
    world.replace("n1").await.expect(202);
    world.until("n1", "wiping").await;
    let leaving = claim(&world, "c-n1").await["status"]["leaving"][0]["claim"]
        .as_str()
        .unwrap()
        .to_owned();
    world
        .admin
        .post(&format!("/v1/claims/{leaving}/undo"), &json!({}))
        .await
        .expect(202);
    world.settle().await;
    for name in ["n1", "n2"] {
        assert_eq!(
            (world.state(name).await.as_str(), wiped(&world, name)),
            ("in_service", 0),
            "{name}"
        );
    }
    let own = claim(&world, &leaving).await;
    assert_eq!(
        (&own["status"]["node"], &own["spec"]["node"]),
        (&json!("n1"), &json!("n1"))
    );
    assert_eq!(
        own["status"]["replaces"],
        Value::Null,
        "it is one of its own now"
    );
    world.check().await;
}

#[tokio::test]
async fn cancelled_the_claim_keeps_its_node_and_the_other_goes_back() {
    let mut world = serving(2).await;
    let replace = world.replace("n1").await.expect(202);
    world.until("n2", "installing").await;
    world.cancel(&replace).await.expect(202);
    world.settle().await;
    assert_eq!(world.operation(&replace).await, "cancelled");
    let told = message(&world, &replace).await;
    assert!(told.contains("c-n1 keeps n1"), "{told}");
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(&world, "n1")),
        ("in_service", 0)
    );
    assert_eq!(
        (world.state("n2").await.as_str(), wiped(&world, "n2")),
        ("available", 1)
    );
    let kept = claim(&world, "c-n1").await;
    assert_eq!(
        (&kept["status"]["node"], &kept["status"]["replacement"]),
        (&json!("n1"), &Value::Null)
    );
    world.check().await;
    // And asked again, it comes.
    world.replace("n1").await.expect(202);
    world.settle().await;
    assert_eq!(claim(&world, "c-n1").await["status"]["node"], "n2");
    world.check().await;
}

#[tokio::test]
async fn a_node_that_does_not_get_to_service_takes_nothing_over() {
    let mut world = serving(3).await;
    world.gates("n2", &[Verdict::Fail]);
    let replace = world.replace("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.state("n2").await.as_str()
        ),
        ("in_service", "quarantined")
    );
    assert_eq!(world.operation(&replace).await, "failed");
    let told = message(&world, &replace).await;
    assert!(told.contains("c-n1 keeps n1"), "{told}");
    let kept = claim(&world, "c-n1").await;
    assert_eq!(
        (&kept["status"]["node"], &kept["status"]["replacement"]),
        (&json!("n1"), &Value::Null)
    );
    // It is for a person to look at, under a claim that is like any other.
    let holder = world.admin.get("/v1/nodes/n2").await.expect(200).body["status"]["claim"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        claim(&world, &holder).await["status"]["replaces"],
        Value::Null
    );
    assert_eq!(wiped(&world, "n2"), 0, "what it failed at can be looked at");
    let told: i64 =
        sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = 'claim.replacement_failed'")
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap();
    assert_eq!(told, 2, "once at each node");
    world.check().await;
    let again = world.replace("n1").await.expect(202);
    assert_eq!(again.body["target"]["name"], "n3");
    world.settle().await;
    assert_eq!(claim(&world, "c-n1").await["status"]["node"], "n3");
    world.check().await;
}

#[tokio::test]
async fn one_of_two_replacements_gets_the_last_spare() {
    let mut world = World::start(3).await;
    world.settle().await;
    for name in ["n1", "n2"] {
        world.claim(name).await.expect(201);
    }
    world.settle().await;
    let (one, other) = tokio::join!(world.replace("n1"), world.replace("n2"));
    let (won, lost) = if one.status == 202 {
        (one, other)
    } else {
        (other, one)
    };
    assert_eq!(
        (won.status, lost.problem().1),
        (202, "no_spare"),
        "{} {}",
        won.text,
        lost.text
    );
    for word in ["No node is to spare", "state=available", "--node"] {
        assert!(lost.text.contains(word), "{}", lost.text);
    }
    world.settle().await;
    let nodes = [claim(&world, "c-n1").await, claim(&world, "c-n2").await]
        .map(|one| one["status"]["node"].clone());
    assert_eq!(
        nodes.iter().filter(|node| **node == json!("n3")).count(),
        1,
        "{nodes:?}"
    );
    world.check().await;
}

#[tokio::test]
async fn a_claim_that_is_deleted_meanwhile_gives_both_nodes_back() {
    let mut world = serving(2).await;
    let replace = world.replace("n1").await.expect(202);
    world.until("n2", "installing").await;
    let plan = json!({ "objects": [{ "kind": "claim", "name": "c-n1", "absent": true }] });
    let plan = world.admin.post("/v1/plan", &plan).await.expect(200).body;
    assert_eq!(
        plan["objects"][0]["nodes"],
        json!(["n1", "n2"]),
        "both are named"
    );
    world.release("n1").await.expect(202);
    assert_eq!(world.operation(&replace).await, "cancelled");
    assert_eq!(world.replace("n1").await.problem().1, "releasing");
    world.settle().await;
    for name in ["n1", "n2"] {
        assert_eq!(
            (world.state(name).await.as_str(), wiped(&world, name)),
            ("available", 1),
            "{name}"
        );
    }
    world.check().await;
}

#[tokio::test]
async fn replaced_and_deleted_at_once_no_node_is_left_behind() {
    for round in 0..6 {
        let mut world = serving(2).await;
        if round % 2 == 0 {
            world.replace("n1").await.expect(202);
            world.until("n2", "admitting").await;
        }
        let app = world.server.app.clone();
        let engine =
            tokio::spawn(async move { muster_server::engine::run_until_idle(&app).await.unwrap() });
        let (replaced, deleted) = tokio::join!(world.replace("n1"), world.release("n1"));
        engine.await.unwrap();
        assert_eq!(deleted.status, 202, "{}", deleted.text);
        assert!(
            [202, 404, 409].contains(&replaced.status),
            "{}",
            replaced.text
        );
        world.settle().await;
        for name in ["n1", "n2"] {
            assert_eq!(
                world.state(name).await,
                "available",
                "{name} in round {round}"
            );
        }
        world.check().await;
    }
}

#[tokio::test]
async fn killed_at_every_step_it_comes_to_the_same_end() {
    let mut world = serving(2).await;
    world.fuel = Fuel::OneMore(1);
    let replace = world.replace("n1").await.expect(202);
    let mut passes = 0;
    while claim(&world, "c-n1").await["status"]["node"] == "n1" {
        passes += 1;
        assert!(passes < 2000, "it does not get there");
        assert!(world.state("n1").await == "in_service" || world.state("n2").await == "in_service");
        if !world.pass().await {
            world.advance(31);
            world.expire_leases().await;
        }
        world.restart_server().await;
    }
    assert_eq!(world.operation(&replace).await, "succeeded");
    world.fuel = Fuel::Forever;
    world.expire_leases().await;
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(&world, "n1")),
        ("available", 1)
    );
    assert_eq!(
        (world.state("n2").await.as_str(), wiped(&world, "n2")),
        ("in_service", 0)
    );
    world.check().await;
}

#[tokio::test]
async fn a_change_after_service_survives_a_crash_of_the_server() {
    let mut world = serving(2).await;
    let replace = world.replace("n1").await.expect(202);
    let admit = world.until_leased("n2", "admit").await;
    // The answer brings it to service in the transaction of the report; the change is another one.
    world.agent.work(&admit).await.unwrap();
    assert_eq!(
        (
            world.state("n2").await.as_str(),
            world.state("n1").await.as_str()
        ),
        ("in_service", "in_service")
    );
    assert_eq!(
        world.operation(&replace).await,
        "running",
        "not over before the claim has it"
    );
    assert_eq!(claim(&world, "c-n1").await["status"]["node"], "n1");
    world.restart_server().await;
    world.engine().await;
    assert_eq!(claim(&world, "c-n1").await["status"]["node"], "n2");
    assert_eq!(world.operation(&replace).await, "succeeded");

    // Stopped in that moment, it is stopped.
    world.settle().await;
    let back = world.replace("n1").await.expect(202);
    let admit = world.until_leased("n1", "admit").await;
    world.agent.work(&admit).await.unwrap();
    world.cancel(&back).await.expect(202);
    world.settle().await;
    assert_eq!(world.operation(&back).await, "cancelled");
    let told = message(&world, &back).await;
    assert!(told.contains("c-n1 keeps n2"), "{told}");
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.state("n2").await.as_str()
        ),
        ("available", "in_service")
    );
    world.check().await;
}

/// Nodes that are claimed, and one to spare; nothing moves.
async fn claimed(count: u8) -> (Server, Caller) {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, count + 2).await;
    for number in 1..=count {
        let claim = json!({ "name": format!("c{number}"), "spec": { "pool": "gpu", "node": format!("n{number}") } });
        admin.post("/v1/claims", &claim).await.expect(201);
    }
    (server, admin)
}

async fn replace(caller: &Caller, number: u8, body: Value) -> Reply {
    caller
        .expecting(1)
        .post(&format!("/v1/claims/c{number}/actions/replace"), &body)
        .await
}

#[tokio::test]
async fn it_counts_as_the_release_that_it_will_be() {
    let (server, admin) = claimed(3).await;
    let body =
        json!({ "name": "ci", "role": "operator", "expires_in_s": 86400, "releases_per_hour": 1 });
    let made = admin.post("/v1/tokens", &body).await.expect(201).body;
    let ci = server.with(Some(made["secret"].as_str().unwrap().to_owned()));
    replace(&ci, 1, json!({})).await.expect(202);
    let told = ci
        .expecting(1)
        .post("/v1/claims/c2/actions/replace?dry_run=true", &json!({}))
        .await;
    assert_eq!(told.problem().1, "second_person");
    let keyed = ci.header("idempotency-key", "k");
    let wanted = json!({ "node": "n5", "reason": "its fan rattles" });
    let held = replace(&keyed, 2, wanted.clone()).await.expect(409);
    assert_eq!(held.problem().1, "second_person");
    assert_eq!(
        ci.expecting(1).delete("/v1/claims/c3").await.problem().1,
        "second_person",
        "a release beside it too"
    );
    let release = ci.expecting(1).delete("/v1/claims/c2").await;
    assert_eq!(
        release.problem().1,
        "approval_open",
        "what waits for a claim is one thing: {}",
        release.text
    );
    let open = admin.get("/v1/approvals").await.expect(200).body;
    let asked = open["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["claim"] == "c2")
        .unwrap()
        .clone();
    assert_eq!(
        (&asked["replaces"], &asked["reason"]),
        (&json!(true), &json!("its fan rattles"))
    );
    let other = server.caller(Role::Operator).await;
    assert!(
        other
            .get("/claims")
            .await
            .expect(200)
            .text
            .contains("Approve the replacement")
    );
    let path = format!("/v1/approvals/{}/approve", asked["id"].as_str().unwrap());
    other.post(&path, &json!({})).await.expect(200);
    let claim = admin.get("/v1/claims/c2").await.expect(200).body;
    assert_eq!(
        (
            &claim["status"]["state"],
            &claim["status"]["node"],
            &claim["status"]["replacement"]["node"]
        ),
        (&json!("bound"), &json!("n2"), &json!("n5")),
        "the node that was named, and nothing is released yet"
    );
    let begun = replace(&keyed, 2, wanted).await.expect(202);
    let told = begun.body["progress"]["message"].as_str().unwrap();
    assert!(
        told.ends_with("as the replacement for n2: its fan rattles"),
        "the reason is kept: {told}"
    );
}

#[tokio::test]
async fn what_cannot_be_replaced_says_why() {
    let (server, admin) = claimed(2).await;
    assert_eq!(
        admin
            .post("/v1/claims/c1/actions/replace", &json!({}))
            .await
            .status,
        428
    );
    assert_eq!(
        admin
            .expecting(7)
            .post("/v1/claims/c1/actions/replace", &json!({}))
            .await
            .status,
        412
    );
    for (body, problem) in [
        (json!({ "node": "n9" }), (422, "unprocessable", "/node")),
        (json!({ "node": "n1" }), (422, "unprocessable", "/node")),
        (json!({ "node": "n2" }), (409, "node_claimed", "")),
        (
            json!({ "message": "x" }),
            (400, "invalid_request", "/message"),
        ),
    ] {
        assert_eq!(
            replace(&admin, 1, body.clone()).await.problem(),
            problem,
            "{body}"
        );
    }
    let protect = |protected: bool| {
        let update =
            sqlx::query("UPDATE nodes SET protected = $1 WHERE name = 'n1'").bind(protected);
        update.execute(&server.app.pool)
    };
    protect(true).await.unwrap();
    assert_eq!(replace(&admin, 1, json!({})).await.problem().1, "protected");
    protect(false).await.unwrap();
    assert_eq!(
        server
            .caller(Role::Viewer)
            .await
            .expecting(1)
            .post("/v1/claims/c1/actions/replace", &json!({}))
            .await
            .status,
        403
    );

    let plan = admin
        .expecting(1)
        .post("/v1/claims/c1/actions/replace?dry_run=true", &json!({}))
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&plan["effect"], plan["changes"].as_array().unwrap().len()),
        (&json!("wipe"), 3)
    );
    assert!(
        plan["changes"][2]
            .as_str()
            .unwrap()
            .starts_with("n1: is then drained"),
        "{plan}"
    );
    replace(&admin, 1, json!({ "node": "n4" }))
        .await
        .expect(202);
    assert_eq!(
        replace(&admin, 1, json!({ "node": "n3" }))
            .await
            .problem()
            .1,
        "replacing"
    );
    let coming = admin.get("/v1/claims/c1").await.body["status"]["replacement"]["claim"]
        .as_str()
        .unwrap()
        .to_owned();
    let own = admin
        .expecting(1)
        .post(&format!("/v1/claims/{coming}/actions/replace"), &json!({}))
        .await;
    assert_eq!(own.problem().1, "replacing");

    // By labels: only a node that has them.
    let claim =
        json!({ "name": "odd", "spec": { "pool": "gpu", "selector": { "parity": "odd" } } });
    assert_eq!(
        admin.post("/v1/claims", &claim).await.expect(201).body["status"]["node"],
        "n3"
    );
    let lost = admin
        .expecting(1)
        .post("/v1/claims/odd/actions/replace", &json!({}))
        .await;
    assert_eq!(
        (lost.problem().1, lost.text.contains("parity")),
        ("no_spare", true),
        "{}",
        lost.text
    );
}

#[tokio::test]
async fn the_console_shows_the_plan_before_it_replaces() {
    let (_server, admin) = claimed(1).await;
    let form = admin.header("content-type", "application/x-www-form-urlencoded");
    let post = async |body: &str| {
        form.send(reqwest::Method::POST, "/ui/claims/c1/replace", body.into())
            .await
    };
    assert!(
        admin
            .get("/claims")
            .await
            .expect(200)
            .text
            .contains("action=\"/ui/claims/c1/replace\"")
    );
    let shown = post("").await.expect(200).text;
    for word in [
        "n2: its root disk is written",
        "n1: is then drained",
        "Replace n1",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert_eq!(
        admin.get("/v1/claims/c1").await.body["status"]["replacement"],
        Value::Null,
        "only shown"
    );
    assert_eq!(post("step=replace&generation=1&typed=n7").await.status, 422);
    assert_eq!(post("step=replace&generation=9&typed=n1").await.status, 412);
    let refused = post("node=n9").await;
    assert_eq!(
        (
            refused.status,
            refused.text.contains("There is no node called")
        ),
        (422, true),
        "{}",
        refused.text
    );
    assert_eq!(
        post("step=replace&generation=1&typed=n1&node=n3")
            .await
            .status,
        303
    );
    assert_eq!(
        admin.get("/v1/claims/c1").await.body["status"]["replacement"]["node"],
        "n3"
    );
}

#[tokio::test]
async fn a_hold_touches_no_node_and_is_seen_everywhere() {
    let world = serving(1).await;
    let look = async || -> (i64, Option<String>, i64) {
        let row = sqlx::query_as(
            "SELECT version, due_at::text, (SELECT count(*) FROM operations) FROM nodes",
        );
        row.fetch_one(&world.server.app.pool).await.unwrap()
    };
    let before = look().await;
    let hold = json!({ "spec": { "hold": true } });
    let desired = json!({ "kind": "claim", "name": "c-n1", "spec": { "pool": "gpu", "node": "n1", "hold": true } });
    let plan = world
        .admin
        .post("/v1/plan", &json!({ "objects": [desired] }))
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&plan["effect"], &plan["objects"][0]["change"]),
        (&json!("none"), &json!("change")),
        "{plan}"
    );
    assert_eq!(plan["objects"][0]["diff"][0]["pointer"], "/spec/hold");
    assert_eq!(
        claim(&world, "c-n1").await["status"]["effective_hold"],
        false,
        "only planned"
    );
    assert_eq!(
        world
            .admin
            .expecting(2)
            .patch("/v1/claims/c-n1", &hold)
            .await
            .status,
        412
    );
    let held = world
        .admin
        .expecting(1)
        .patch("/v1/claims/c-n1", &hold)
        .await
        .expect(200);
    assert_eq!(
        (held.header("etag"), &held.body["spec"]["hold"]),
        ("\"2\"", &json!(true))
    );
    assert_eq!(held.body["status"]["effective_hold"], true);
    world
        .admin
        .patch("/v1/claims/c-n1", &hold)
        .await
        .expect(200);
    assert_eq!(claim(&world, "c-n1").await["generation"], 2, "as it was");
    assert!(
        world
            .admin
            .get("/claims")
            .await
            .expect(200)
            .text
            .contains("</svg>held</span>")
    );
    world.engine().await;
    assert_eq!(look().await, before, "its node did not notice");
    for patch in [
        json!({ "spec": { "node": "n2" } }),
        json!({ "spec": { "pool": "cpu" } }),
    ] {
        assert_eq!(
            world
                .admin
                .patch("/v1/claims/c-n1", &patch)
                .await
                .problem()
                .1,
            "immutable",
            "{patch}"
        );
    }
    let desired =
        json!({ "kind": "claim", "name": "c-n1", "spec": { "pool": "gpu", "node": "n2" } });
    let plan = world
        .admin
        .post("/v1/plan", &json!({ "objects": [desired] }))
        .await
        .expect(200)
        .body;
    assert_eq!(plan["objects"][0]["blockers"][0]["code"], "immutable");
    assert_eq!(
        world
            .admin
            .patch("/v1/claims/c-n1", &json!({ "labels": {} }))
            .await
            .problem()
            .2,
        "/labels"
    );
    let free = json!({ "spec": { "hold": null } });
    let free = world
        .admin
        .patch("/v1/claims/c-n1", &free)
        .await
        .expect(200)
        .body;
    assert_eq!(
        (free["spec"].get("hold"), &free["status"]["effective_hold"]),
        (None, &json!(false))
    );
}

#[tokio::test]
async fn a_held_node_that_fails_is_recovered_without_installing_anything() {
    let mut world = World::declare(1, |path, mut body| {
        if path == "/v1/pools/gpu" {
            let rungs = ["collect", "restart_services", "reboot", "reimage"];
            body["spec"]["health"] = json!({ "sweep": "smoke", "recovery": { "rungs": rungs } });
        }
        body
    })
    .await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world
        .admin
        .patch("/v1/claims/c-n1", &json!({ "spec": { "hold": true } }))
        .await
        .expect(200);
    let images = |world: &World| {
        world.machine("n1", |m| {
            m.log.iter().filter(|done| done.act == "image").count()
        })
    };
    let before = images(&world);
    // The sweep, and the gates after the reboot.
    world.gates("n1", &[Verdict::Fail, Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), images(&world)),
        ("quarantined", before)
    );
    let tried = world
        .admin
        .get("/v1/nodes/n1/recoveries")
        .await
        .expect(200)
        .body["items"][0]["tried"]
        .clone();
    let outcomes: Vec<&str> = tried
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["done", "skipped", "done", "skipped"], "{tried}");
    assert!(
        tried[3]["why"].as_str().unwrap().contains("on hold"),
        "{tried}"
    );
    world.check().await;
}

#[tokio::test]
async fn a_claim_says_what_it_is_waited_for_and_whether_that_is_so() {
    let mut world = World::start(2).await;
    world.settle().await;
    let made = world.claim("n1").await.expect(201).body;
    assert_eq!(
        (
            &made["status"]["effective_wait_for"],
            &made["status"]["ready"],
            &made["status"]["stuck"]
        ),
        (&json!("in_service"), &json!(false), &json!(false))
    );
    assert_eq!(
        (
            &made["status"]["effective_image"],
            &made["status"]["effective_suite"]
        ),
        (&json!("debian-12"), &json!("smoke"))
    );
    let spec = json!({ "pool": "gpu", "node": "n2", "wait_for": "bound" });
    let bound = world
        .admin
        .post("/v1/claims", &json!({ "name": "b", "spec": spec }))
        .await
        .expect(201)
        .body;
    assert_eq!(
        (&bound["status"]["ready"], &bound["spec"]["wait_for"]),
        (&json!(true), &json!("bound"))
    );
    let spec = json!({ "pool": "gpu", "node": "n2", "wait_for": "lunch" });
    assert_eq!(
        world
            .admin
            .post("/v1/claims", &json!({ "spec": spec }))
            .await
            .problem()
            .2,
        "/spec/wait_for"
    );
    assert_eq!(
        world.admin.get("/v1/claims/b?wait=1h").await.problem().2,
        "wait"
    );
    // What is so already is not waited for; what is not is, and answered as it is when it comes.
    answer_at_once(&world, "b").await;
    let waiting = tokio::spawn({
        let admin = world.admin.clone();
        async move { admin.get("/v1/claims/c-n1?wait=55s").await.expect(200).body }
    });
    world.fail("n2", "write_image", false, 1);
    world.settle().await;
    assert_eq!(waiting.await.unwrap()["status"]["ready"], true);
    // Nor is what will not come by itself.
    world
        .admin
        .patch(
            "/v1/claims/b",
            &json!({ "spec": { "wait_for": "in_service" } }),
        )
        .await
        .expect(200);
    let stuck = answer_at_once(&world, "b").await;
    assert_eq!(
        (&stuck["status"]["ready"], &stuck["status"]["stuck"]),
        (&json!(false), &json!(true)),
        "{stuck}"
    );
}

/// Reads a claim with the longest wait. Fails if the answer comes at the end of the wait.
async fn answer_at_once(world: &World, claim: &str) -> Value {
    let wait = Duration::from_secs(55);
    let path = format!("/v1/claims/{claim}?wait={}s", wait.as_secs());
    let begun = Instant::now();
    let claim = world.admin.get(&path).await.expect(200).body;
    assert!(begun.elapsed() < wait, "{claim}");
    claim
}
