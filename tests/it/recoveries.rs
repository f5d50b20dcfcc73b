//! Nodes that fail once they serve: swept, drained, recovered rung by rung, verified by gates; and the fleet's breaker.

use jiff_sqlx::ToSqlx as _;
use muster_core::gates::Verdict;
use muster_core::ids::NodeId;
use muster_core::wire::node::Failure;
use muster_lab::simulated::machine::Turn;
use muster_server::db;
use muster_server::tasks::sweeps;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::simulated::World;

const LADDER: [&str; 4] = ["collect", "restart_services", "reboot", "power_cycle"];

/// Nodes in service, in a pool that has this to say of their health.
async fn serving(nodes: u8, health: Value) -> World {
    let mut world = World::declare(nodes, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] = health.clone();
        }
        body
    })
    .await;
    world.settle().await;
    for number in 1..=nodes {
        world.claim(&format!("n{number}")).await.expect(201);
    }
    world.settle().await;
    for number in 1..=nodes {
        assert_eq!(world.state(&format!("n{number}")).await, "in_service");
    }
    world
}

fn watched(rungs: &[&str]) -> Value {
    json!({ "sweep": "smoke", "recovery": { "rungs": rungs } })
}

async fn recoveries(world: &World, name: &str) -> Vec<Value> {
    let page = world.admin.get(&format!("/v1/nodes/{name}/recoveries")).await.expect(200).body;
    page["items"].as_array().unwrap().clone()
}

fn outcomes(recovery: &Value) -> Vec<&str> {
    recovery["tried"].as_array().unwrap().iter().map(|tried| tried["outcome"].as_str().unwrap()).collect()
}

async fn told(world: &World, kind: &str) -> i64 {
    let query = sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = $1").bind(kind);
    query.fetch_one(&world.server.app.pool).await.unwrap()
}

/// The task's round, from the beginning.
async fn sweep(world: &World) {
    sweeps::round(&world.server.app, NodeId(Uuid::nil())).await.unwrap();
}

fn silent(world: &World, name: &str, kind: &'static str, times: usize) {
    let failure = Failure { code: "timeout".into(), message: "no answer in 1800 s".into(), retryable: true };
    let turns = std::iter::repeat_n(Turn::Fails(failure), times);
    world.machine(name, |machine| machine.turns.entry(kind).or_default().extend(turns));
}

#[tokio::test]
async fn a_node_that_fails_its_sweep_is_drained_recovered_and_serves_again() {
    let mut world = serving(1, watched(&LADDER)).await;
    // The sweep, and the gates after the first rung that heals.
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
    assert_eq!(outcomes(&all[0]), ["done", "done", "done"], "the power cycle was not needed");
    let looked = "step.succeeded firmware_look".to_owned();
    assert!(world.history("n1").await.contains(&looked), "what its BMC says is for whoever reads the bundle");
    let way = world.states("n1").await;
    let way: Vec<&str> = way.iter().map(String::as_str).skip_while(|state| *state != "draining").collect();
    assert_eq!(way, ["draining", "repairing", "validating", "repairing", "validating", "admitting", "in_service"]);
    for (kind, times) in [("recovery.begun", 1), ("recovery.rung", 3), ("recovery.ended", 1)] {
        assert_eq!(told(&world, kind).await, times, "{kind}");
    }
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    assert!(page.contains("id=\"recovery\"") && page.contains("restart what is dead"), "{page}");
    // Not again before its time.
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
    assert!(reason.contains("its parts go back to their maker"), "{reason}");
    let all = recoveries(&world, "n1").await;
    assert_eq!((all[0]["ended"].as_str(), outcomes(&all[0])), (Some("spent"), vec!["done", "done"]));
    // What failed stands with its evidence in the runs.
    let runs = world.admin.get("/v1/nodes/n1/gate-runs").await.expect(200).body;
    assert_eq!(runs["items"][0]["verdict"], "fail");
    // Its page leads there, and to the run that began it.
    let path = |run: &Value| format!("/nodes/n1?run={}", run["id"].as_str().unwrap());
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    assert!(page.contains(&format!("href=\"{}#gates\">The gate run that led here", path(&runs["items"][0]))), "{page}");
    for run in runs["items"].as_array().unwrap() {
        assert!(page.contains(&path(run)), "{page}");
        world.admin.get(&path(run)).await.expect(200);
    }
    assert_eq!(world.admin.get(&format!("/nodes/n1?run={}", uuid::Uuid::nil())).await.status, 404);
    world.check().await;
}

#[tokio::test]
async fn a_pool_without_a_ladder_has_what_fails_quarantined() {
    let mut world = serving(1, json!({ "sweep": "smoke" })).await;
    world.gates("n1", &[Verdict::Error, Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service", "a tool that crashed condemns nothing");
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
    let acts = world.machine("n1", |machine| machine.log.iter().map(|done| done.act.to_string()).collect::<Vec<_>>());
    assert!(acts.ends_with(&["power_off".into(), "reset".into(), "reboot".into()]), "{acts:?}");
    world.check().await;
}

#[tokio::test]
async fn a_machine_that_does_not_come_back_from_a_reboot_is_recovered_on_its_way_into_service() {
    let mut world = World::declare(1, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] = json!({ "recovery": { "rungs": ["reboot", "power_cycle"] } });
        }
        body
    })
    .await;
    world.settle().await;
    // The reboot of the stack is the first; that of the test fails three times.
    world.claim("n1").await.expect(201);
    world.until("n1", "validating").await;
    silent(&world, "n1", "reboot", 3);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(outcomes(&recoveries(&world, "n1").await[0]), ["skipped", "done"]);
    world.check().await;
}

#[tokio::test]
async fn a_ladder_may_write_the_image_anew() {
    let mut world = serving(1, watched(&["reimage"])).await;
    let images =
        |world: &World| world.machine("n1", |machine| machine.log.iter().filter(|done| done.act == "image").count());
    assert_eq!(images(&world), 1);
    world.gates("n1", &[Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!((world.state("n1").await.as_str(), images(&world)), ("in_service", 2));
    assert_eq!(recoveries(&world, "n1").await[0]["ended"], "recovered");
    world.check().await;
}

#[tokio::test]
async fn when_five_of_six_fail_the_same_way_it_is_the_fleet() {
    let mut world = serving(6, watched(&LADDER)).await;
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        // Whatever is tried, the gate fails.
        world.gates(name, &[Verdict::Fail; 20]);
        world.ask(name, "sweep").await.expect(202);
    }
    world.settle().await;
    let mut states = Vec::new();
    for name in ["n1", "n2", "n3", "n4", "n5", "n6"] {
        states.push(world.state(name).await);
    }
    let count = |state: &str| states.iter().filter(|one| *one == state).count();
    assert_eq!((count("quarantined"), count("in_service")), (2, 4), "{states:?}");
    assert_eq!(told(&world, "recovery.begun").await, 2);
    assert_eq!(told(&world, "breaker.opened").await, 1);
    // Those that had begun were stopped where they were, before anything was tried.
    let query = "SELECT count(*) FROM recoveries WHERE ended = 'held_back' AND tried < cardinality(rungs)";
    let stopped: i64 = sqlx::query_scalar(query).fetch_one(&world.server.app.pool).await.unwrap();
    assert_eq!(stopped, 2);

    let breakers = world.admin.get("/v1/breakers").await.expect(200).body;
    let breaker = &breakers["items"][0];
    assert_eq!((breaker["signature"].as_str(), breaker["state"].as_str()), (Some("gate:node.profile"), Some("open")));
    // Whoever opens the console sees it, with what closes it; and so does whoever opens a node that it holds.
    let command = format!("muster breaker reset {}", breaker["id"].as_str().unwrap());
    assert!(world.admin.get("/").await.expect(200).text.contains(&command));
    let held = states.iter().position(|state| state == "quarantined").unwrap() + 1;
    let page = world.admin.get(&format!("/nodes/n{held}")).await.expect(200).text;
    assert!(page.contains("held back") && page.contains("muster breaker list --filter state=open"), "{page}");
    // It stays open until somebody has looked, however long that takes.
    world.advance(12 * 3600);
    let serving = states.iter().position(|state| state == "in_service").unwrap() + 1;
    let name = format!("n{serving}");
    world.ask(&name, "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state(&name).await, "in_service");
    let reset = format!("/v1/breakers/{}/reset", breaker["id"].as_str().unwrap());
    let closed = world.admin.post(&reset, &json!({})).await.expect(200).body;
    assert_eq!((closed["state"].as_str(), told(&world, "breaker.reset").await), (Some("closed"), 1));
    assert!(!world.admin.get("/").await.expect(200).text.contains(&command));
    world.admin.post(&reset, &json!({})).await.expect(200);
    assert_eq!(told(&world, "breaker.reset").await, 1, "once");
    world.ask(&name, "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state(&name).await, "quarantined", "its ladder is climbed again, in vain");
    world.check().await;
}

#[tokio::test]
async fn a_node_that_fails_again_and_again_is_left_to_a_person() {
    let mut world = serving(1, watched(&["reboot"])).await;
    for _ in 0..2 {
        world.gates("n1", &[Verdict::Fail]);
        world.ask("n1", "sweep").await.expect(202);
        world.settle().await;
        assert_eq!(world.state("n1").await, "in_service");
    }
    world.gates("n1", &[Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    // No third ladder: what that would cost is a person's to weigh. But what was measured is not given to jobs meanwhile.
    assert_eq!(world.state("n1").await, "quarantined");
    let all = recoveries(&world, "n1").await;
    assert_eq!((all.len(), &all[0]["rungs"], &all[0]["ended"]), (3, &json!([]), &json!("held_back")));
    let timeline = world.admin.get("/v1/nodes/n1/timeline").await.expect(200).text;
    assert!(timeline.contains("it was recovered 2 times within 168 hours"), "{timeline}");
    // Through its gates it comes back, and a person is not bound by what went before.
    for _ in 0..2 {
        world.ask("n1", "recover").await.expect(202);
        world.settle().await;
        assert_eq!(world.state("n1").await, "in_service");
    }
    let all = recoveries(&world, "n1").await;
    assert_eq!((all.len(), &all[0]["asked"], &all[0]["ended"]), (4, &json!(true), &json!("recovered")));
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    let (node, now) = (world.value("n1", "id").await.unwrap().parse().unwrap(), world.server.app.clock.now());
    let (seen, _) = db::recoveries::seen(&mut conn, node, "gate:node.profile", 168, now).await.unwrap();
    assert_eq!(seen.on_node, 2, "where nothing was tried, nothing brings it nearer to its bound");
    world.check().await;
}

/// What takes one node out again and again, a link that flaps, may do so with all of them.
#[tokio::test]
async fn many_nodes_that_are_left_to_a_person_are_the_fleet_too() {
    let mut world = serving(4, watched(&["reboot"])).await;
    // Each had what may be tried on it within a week, for something else.
    let before = "INSERT INTO recoveries (id, node_id, signature, what, answers, asked, rungs, begun_at, ended_at, ended)
                  SELECT gen_random_uuid(), id, 'gate:x', 'it failed', true, false, '{reboot}', $1, $1, 'recovered' FROM nodes";
    for hours in [47, 48] {
        let at = (world.server.app.clock.now() - jiff::SignedDuration::from_hours(hours)).to_sqlx();
        sqlx::query(before).bind(at).execute(&world.server.app.pool).await.unwrap();
    }
    for (name, state) in [("n1", "quarantined"), ("n2", "quarantined"), ("n3", "in_service"), ("n4", "in_service")] {
        world.gates(name, &[Verdict::Fail]);
        world.ask(name, "sweep").await.expect(202);
        world.settle().await;
        assert_eq!(world.state(name).await, state, "{name}");
    }
    let breakers = world.admin.get("/v1/breakers").await.expect(200).body;
    let because = breakers["items"][0]["because"].as_str().unwrap();
    assert!(because.contains("2 other nodes failed the same way within the hour"), "{because}");
    world.check().await;
}

/// Sweeps are a day apart: a bad driver is found by one node after the other, and each alone looks like that node.
#[tokio::test]
async fn nodes_that_fail_alike_days_apart_are_the_fleet_too() {
    let mut world = serving(6, watched(&["collect"])).await;
    for (name, state) in [
        ("n1", "quarantined"),
        ("n2", "quarantined"),
        ("n3", "quarantined"),
        ("n4", "in_service"),
        ("n5", "in_service"),
    ] {
        // The sweep, and the look after the only rung.
        world.gates(name, &[Verdict::Fail, Verdict::Fail]);
        world.ask(name, "sweep").await.expect(202);
        world.settle().await;
        assert_eq!(world.state(name).await, state, "{name}");
        world.advance(24 * 3600);
    }
    let breakers = world.admin.get("/v1/breakers").await.expect(200).body;
    let because = breakers["items"][0]["because"].as_str().unwrap();
    assert!(because.contains("3 other nodes failed the same way within the week, and are not mended"), "{because}");
    // A person who has looked begins the count anew.
    let reset = format!("/v1/breakers/{}/reset", breakers["items"][0]["id"].as_str().unwrap());
    world.admin.post(&reset, &json!({})).await.expect(200);
    world.gates("n5", &[Verdict::Fail, Verdict::Fail]);
    world.ask("n5", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n5").await, "quarantined");
    world.check().await;
}

/// Parts take weeks to come. What is wrong with those that wait for them is known, and says nothing of others.
#[tokio::test]
async fn nodes_that_wait_for_their_maker_keep_no_other_in_service() {
    let mut world = serving(6, watched(&["rma"])).await;
    for name in ["n1", "n2", "n3", "n4"] {
        world.advance(24 * 3600);
        world.gates(name, &[Verdict::Fail]);
        world.ask(name, "sweep").await.expect(202);
        world.settle().await;
        assert_eq!(world.state(name).await, "quarantined", "{name}");
    }
    assert_eq!(told(&world, "breaker.opened").await, 0);
    // Those of the same hour may be the fleet all the same.
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    let (node, now) = (world.value("n5", "id").await.unwrap().parse().unwrap(), world.server.app.clock.now());
    let (seen, _) = db::recoveries::seen(&mut conn, node, "gate:node.profile", 168, now).await.unwrap();
    assert_eq!((seen.fleet.same_way, seen.fleet.unmended, seen.pool.same_way, seen.pool.unmended), (1, 0, 1, 0));
    world.check().await;
}

/// Few nodes of a large fleet may be all of a small pool; and one pool's failures are not another's.
#[tokio::test]
async fn failures_are_counted_over_the_fleet_and_over_the_pool() {
    let mut world = serving(4, watched(&["collect"])).await;
    world.ask("n3", "quarantine").await.expect(202);
    world.settle().await;
    let pool = world.admin.get("/v1/pools/gpu").await.expect(200).body["spec"].clone();
    let other = world.admin.put("/v1/pools/other", &json!({ "spec": pool })).await.expect(201).body;
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    let id = |name: &'static str| sqlx::query_scalar::<_, Uuid>("SELECT id FROM nodes WHERE name = $1").bind(name);
    let (n1, n2, n3, n4) = (
        id("n1").fetch_one(&mut *conn).await.unwrap(),
        id("n2").fetch_one(&mut *conn).await.unwrap(),
        id("n3").fetch_one(&mut *conn).await.unwrap(),
        id("n4").fetch_one(&mut *conn).await.unwrap(),
    );
    let moved = "UPDATE claims SET pool_id = $1 WHERE node_id = $2";
    let other: Uuid = other["id"].as_str().unwrap().parse().unwrap();
    sqlx::query(moved).bind(other).bind(n4).execute(&mut *conn).await.unwrap();
    let now = world.server.app.clock.now();
    // One just now in each pool; one two days ago that is out still, and one that serves again.
    let failed =
        "INSERT INTO recoveries (id, node_id, signature, what, answers, asked, rungs, begun_at, ended_at, ended)
                  SELECT gen_random_uuid(), $1, 'gate:x', 'it failed', true, false, '{}', $2, $2, 'spent'";
    for (node, hours) in [(n2, 0), (n4, 0), (n3, 48)] {
        let at = (now - jiff::SignedDuration::from_hours(hours)).to_sqlx();
        sqlx::query(failed).bind(node).bind(at).execute(&mut *conn).await.unwrap();
    }
    let of = |node| NodeId(node);
    let (seen, name) = db::recoveries::seen(&mut conn, of(n1), "gate:x", 168, now).await.unwrap();
    assert_eq!(name.as_deref(), Some("gpu"));
    assert_eq!((seen.fleet.same_way, seen.fleet.unmended, seen.fleet.held), (2, 1, 4));
    // Its share is of all that it holds, or nodes that are brought up together would be few of none.
    assert_eq!((seen.pool.same_way, seen.pool.unmended, seen.pool.held), (1, 1, 3));
    assert!(!seen.fleet.open && !seen.pool.open);
    // The pool's own breaker holds the pool's nodes, and no others.
    let breaker = db::recoveries::breaker_of_pool("gate:x", "gpu");
    assert!(db::breakers::open(&mut conn, &breaker, "two", None, now).await.unwrap());
    let (seen, _) = db::recoveries::seen(&mut conn, of(n1), "gate:x", 168, now).await.unwrap();
    assert!(seen.pool.open && !seen.fleet.open);
    let (seen, _) = db::recoveries::seen(&mut conn, of(n4), "gate:x", 168, now).await.unwrap();
    assert!(!seen.pool.open && !seen.fleet.open && seen.pool.same_way == 0);
    // What it gives back is not held any more.
    sqlx::query("UPDATE claims SET state = 'releasing' WHERE node_id = $1").bind(n2).execute(&mut *conn).await.unwrap();
    let (seen, _) = db::recoveries::seen(&mut conn, of(n1), "gate:x", 168, now).await.unwrap();
    assert_eq!(seen.pool.held, 2);
}

/// What found the fault has the last word, also where the pool admits its nodes by another suite.
#[tokio::test]
async fn a_node_comes_back_only_past_the_gate_that_took_it_out() {
    let mut world = serving(1, Value::Null).await;
    let mut nightly = world.admin.get("/v1/suites/smoke").await.expect(200).body["spec"].clone();
    nightly["name"] = json!("nightly");
    nightly["gates"][0]["id"] = json!("night.watch");
    // Before a job the same is asked in another way; the sweep's way is the one that found it.
    let mut brief = nightly.clone();
    (brief["name"], brief["gates"][0]["title"]) = (json!("brief"), json!("A glance"));
    world.admin.put("/v1/suites/brief", &json!({ "spec": brief })).await.expect(201);
    // A member that says null says nothing.
    (nightly["gates"][0]["peer"], nightly["gates"][0]["during"]) = (Value::Null, Value::Null);
    world.admin.put("/v1/suites/nightly", &json!({ "spec": nightly })).await.expect(201);
    let health = json!({ "smoke": "brief", "sweep": "nightly", "recovery": { "rungs": ["reboot"] } });
    world.admin.patch("/v1/pools/gpu", &json!({ "spec": { "health": health } })).await.expect(200);
    world.gates("n1", &[Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    let recovery = &recoveries(&world, "n1").await[0];
    assert_eq!((&recovery["signature"], &recovery["ended"]), (&json!("gate:night.watch"), &json!("recovered")));
    let runs = world.admin.get("/v1/nodes/n1/gate-runs").await.expect(200).body;
    let gates = |run: &Value| -> Vec<String> {
        run["results"].as_array().unwrap().iter().map(|result| result["gate"].as_str().unwrap().to_owned()).collect()
    };
    let after = runs["items"].as_array().unwrap().iter().find(|run| gates(run).len() == 2).expect("both were run");
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
    // And a protected node is not taken out by asking.
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
async fn what_a_pool_asks_for_is_refused_where_it_has_no_bounds() {
    let world = World::start(1).await;
    for (health, pointer) in [
        (json!({ "recovery": { "rungs": ["reboot", "collect"] } }), "/spec/health/recovery/rungs"),
        (json!({ "recovery": { "rungs": [], "per_node": 0 } }), "/spec/health/recovery/per_node"),
        (json!({ "sweep_every_h": 0 }), "/spec/health/sweep_every_h"),
    ] {
        let patch = json!({ "spec": { "health": health } });
        let refused = world.admin.patch("/v1/pools/gpu", &patch).await.expect(422);
        assert!(refused.text.contains(pointer), "{}", refused.text);
    }
    let patch = json!({ "spec": { "health": { "sweep": "nothing" } } });
    assert_eq!(world.admin.patch("/v1/pools/gpu", &patch).await.status / 100, 4, "there is no such suite");
    assert_eq!(world.ask("n1", "sweep").await.status, 409, "it does not serve");
}

/// What an agent read of the node's BMC, and what it brought of it when a job failed.
async fn its_bmc_says(world: &World) {
    let inventory = json!({ "firmware": [{ "id": "bmc", "name": "Manager.FirmwareVersion", "version": "1.74" }],
        "bios": { "NumaNodesPerSocket": 4 }, "unread": ["the firmware inventory: it lists none"] });
    sqlx::query("INSERT INTO bmc_inventories (node_id, first_seen, last_seen, inventory) SELECT id, now(), now(), $1 FROM nodes")
        .bind(inventory)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    for (minute, text) in [
        "BMC event log, 2026-01-05T07:59:30Z: Critical: PSU 2 lost its input",
        "BMC event log, without a time: OK: root logged in from 10.78.0.1, password=calvin",
        "BMC sensors: 40 read, 1 not OK; 312 W drawn",
        "BMC sensor Fan 3: 0 RPM, Critical",
        "the BMC's event log cannot be read: 10.78.0.1 did not answer",
    ]
    .iter()
    .enumerate()
    {
        sqlx::query("INSERT INTO job_logs (job_id, attempt, at, text) SELECT max(id::text)::uuid, 1, now() + make_interval(mins => $2), $1 FROM jobs")
            .bind(text)
            .bind(i32::try_from(minute).unwrap())
            .execute(&world.server.app.pool)
            .await
            .unwrap();
    }
}

fn holds_what_its_bmc_said(bmc: &str, log: &str) {
    let bmc: Value = serde_json::from_str(bmc).unwrap();
    assert_eq!(
        (&bmc["firmware"][0]["version"], &bmc["bios_attributes"]["NumaNodesPerSocket"]),
        (&json!("1.74"), &json!(4))
    );
    assert_eq!(
        (&bmc["could_not_be_read"][0], &bmc["log_lines"]),
        (&json!("the firmware inventory: it lists none"), &json!(4))
    );
    let said =
        ["PSU 2 lost", "root logged in from [address], password=[removed]", "312 W drawn", "Fan 3: 0 RPM, Critical"];
    let places: Vec<_> = said.iter().map(|word| log.find(word)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "oldest first: {log}");
    assert_eq!(log.lines().count(), 4, "{log}");
}

#[tokio::test]
async fn one_download_says_what_its_maker_asks() {
    let mut world = serving(1, watched(&["reboot", "rma"])).await;
    world.machine("n1", |machine| machine.turns.clear());
    world.gates("n1", &[Verdict::Fail, Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    let said = "kernel: NVRM: Xid 79\nBMC login password=calvin\n";
    sqlx::query("INSERT INTO console_chunks (node_id, id, at, text) SELECT id, 1, now(), $1 FROM nodes")
        .bind(said)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    its_bmc_says(&world).await;
    let url = world.server.listen().await;
    let token = world.admin.token.clone().map(muster_core::values::Secret::new);
    let client = muster_api::client::Client::new(&url, token).unwrap();
    let packed = client.node_rma("n1").await.unwrap();
    let archive = zstd::decode_all(packed.as_slice()).unwrap();

    // Any tar opens it.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rma.tar"), &archive).unwrap();
    let opened =
        std::process::Command::new("tar").args(["-xf", "rma.tar"]).current_dir(folder.path()).output().unwrap();
    assert!(opened.status.success(), "{opened:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let manifest = read("MANIFEST");
    let mut files = 0;
    for line in manifest.lines() {
        let (digest, name) = line.split_once("  ").unwrap();
        assert_eq!(muster_core::values::Digest::of(read(name).as_bytes()).to_string(), digest, "{name}");
        files += 1;
    }
    assert!(files >= 8, "{manifest}");
    let parts: Value = serde_json::from_str(&read("components.json")).unwrap();
    assert!(parts.as_array().unwrap().iter().any(|part| part["serial"] == "ROOT-n1"), "{parts}");
    assert!(read("recoveries.json").contains("\"spent\"") && read("timeline.txt").contains("recovery.begun"));
    let run = std::fs::read_dir(folder.path().join("gate-runs")).unwrap().flatten().map(|entry| entry.path());
    let newest = run.filter(|path| path.extension().is_some_and(|kind| kind == "json")).min().unwrap();
    let newest: Value = serde_json::from_str(&std::fs::read_to_string(newest).unwrap()).unwrap();
    assert_eq!(
        (newest["verdict"].as_str(), newest["results"][0]["gate"].as_str()),
        (Some("fail"), Some("node.profile"))
    );
    holds_what_its_bmc_said(&read("bmc.json"), &read("bmc-log.txt"));
    // Not what somebody typed, and not how to reach it.
    assert_eq!(read("console.txt"), "kernel: NVRM: Xid 79\nBMC login password=[removed]\n");
    let text = String::from_utf8_lossy(&archive);
    for secret in ["calvin", "10.78.0.1", "ssh-ed25519"] {
        assert!(!text.contains(secret), "{secret}");
    }
    assert_eq!(world.admin.get("/v1/nodes/nobody/rma").await.status, 404);
    world.check().await;
}
