//! The disruption budget: no act of Muster takes a serving node out of service beyond the budget of the
//! node's pool or failure domains. The simulated world has an outside observer of the same rule.

use muster_api::tokens::Role;
use muster_core::gates::Verdict;
use muster_core::ids::NodeId;
use muster_core::rollout::{Ledger, Member, build_budget};
use muster_server::db::disruption::MemberRow;
use muster_server::{db, engine};
use serde_json::{Value, json};

use crate::pairs;
use crate::schedulers::say;
use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::Reply;

/// Nodes in service in a pool with a budget, at a site with axes of failure domains.
async fn serving(nodes: u8, max_unavailable: Value, axes: Value) -> World {
    World::serving(nodes, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["max_unavailable"] = max_unavailable.clone();
        }
        if path == "/v1/sites/lab" {
            body["spec"]["failure_domains"] = axes.clone();
        }
        body
    })
    .await
}

async fn budget(world: &World) -> Value {
    let path = "/v1/pools/gpu/disruption";
    world.admin.get(path).await.expect(200).body
}

/// Nodes out, allowed and counted, of the pool's account.
async fn account(world: &World) -> (u64, u64, u64) {
    read_account(&budget(world).await["account"])
}

fn read_account(account: &Value) -> (u64, u64, u64) {
    let number = |name: &str| account[name].as_u64().unwrap();
    (number("out"), number("max"), number("counted"))
}

/// The code and the sentence of a node's wait.
async fn why(world: &World, node: &str) -> (String, String) {
    let path = format!("/v1/nodes/{node}/why");
    let why = world.admin.get(&path).await.expect(200).body;
    let text = |name: &str| why[name].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("waiting_for"))
}

async fn act(world: &World, node: &str, action: &str, body: &Value) -> Reply {
    let path = format!("/v1/nodes/{node}/actions/{action}");
    world.admin.post(&path, body).await
}

async fn write_off(world: &World, node: &str, body: &Value) -> Reply {
    let path = format!("/v1/claims/c-{node}/actions/write-off");
    world.admin.post(&path, body).await
}

/// The states of the nodes `n1`… in order.
async fn states(world: &World, nodes: u8) -> Vec<String> {
    let mut states = Vec::new();
    for number in 1..=nodes {
        states.push(world.state(&format!("n{number}")).await);
    }
    states
}

async fn events(world: &World, kind: &str) -> usize {
    let path = format!("/v1/events?limit=1000&topics={kind}");
    let page = world.admin.get(&path).await.expect(200).body;
    page["items"].as_array().unwrap().len()
}

/// Settles until no request waits for a slot. The time goes on to the next check of a waiting node.
async fn settle_all(world: &mut World) {
    for _ in 0..50 {
        world.settle().await;
        if budget(world).await["waiting"]
            .as_array()
            .unwrap()
            .is_empty()
        {
            return;
        }
        world.advance(60);
    }
    panic!("a request waits for ever: {:#}", budget(world).await);
}

#[tokio::test]
async fn a_drain_beyond_the_budget_waits_for_a_slot_and_goes_on_with_the_slot() {
    let mut world = serving(3, json!(1), json!([])).await;
    assert_eq!(account(&world).await, (0, 1, 3));
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    let waits = world.ask("n2", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(
        states(&world, 3).await,
        ["maintenance", "in_service", "in_service"]
    );
    assert_eq!(account(&world).await, (1, 1, 3));
    let (code, sentence) = why(&world, "n2").await;
    assert_eq!(code, "disruption_budget");
    assert_eq!(
        sentence,
        "a slot of the disruption budget: the pool has 1 of 3 nodes out, and 1 may be out at a time"
    );
    let id = waits.body["id"].as_str().unwrap().to_owned();
    let operation = world.admin.get(&format!("/v1/operations/{id}")).await;
    let blocked = &operation.expect(200).body["blocked_by"];
    assert_eq!(blocked["by"], "disruption_budget");
    assert_eq!(
        blocked["self"].as_str().or(blocked["link"].as_str()),
        Some("/v1/pools/gpu/disruption")
    );
    let seen = budget(&world).await;
    assert_eq!(seen["nodes_out"][0]["node"], "n1");
    assert_eq!(seen["nodes_out"][0]["service"], "out");
    assert_eq!(seen["waiting"][0]["node"], "n2");
    assert_eq!(seen["waiting"][0]["action"], "maintain");

    // The slot is free when n1 serves again. n2 is woken, without the time going on.
    world.ask("n1", "resume").await.expect(202);
    world.settle().await;
    assert_eq!(
        states(&world, 3).await,
        ["in_service", "maintenance", "in_service"]
    );
    world.check().await;
}

#[tokio::test]
async fn a_converge_of_the_whole_pool_takes_one_node_at_a_time() {
    let mut world = serving(4, json!("25%"), json!([])).await;
    for node in ["n1", "n2", "n3", "n4"] {
        world.ask(node, "converge").await.expect(202);
    }
    world.engine().await;
    let draining = states(&world, 4).await;
    let out = draining.iter().filter(|state| *state != "in_service");
    assert_eq!(out.count(), 1, "{draining:?}");
    settle_all(&mut world).await;
    for node in ["n1", "n2", "n3", "n4"] {
        let states = world.states(node).await;
        let drained = states.iter().filter(|state| *state == "draining");
        assert_eq!(
            (drained.count(), world.state(node).await.as_str()),
            (1, "in_service")
        );
    }
    world.check().await;
}

#[tokio::test]
async fn a_budget_of_zero_keeps_every_node_in_service() {
    let mut world = serving(1, json!(0), json!([])).await;
    let drain = world.ask("n1", "drain").await.expect(202);
    world.settle().await;
    world.advance(3600);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    // A person may stop the request while the request waits.
    world.cancel(&drain).await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&drain).await.as_str()
        ),
        ("in_service", "cancelled")
    );
    // A release needs no slot: the node leaves the pool.
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.check().await;
}

#[tokio::test]
async fn a_node_on_the_first_way_into_service_takes_no_slot() {
    let mut world = World::declare(2, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["max_unavailable"] = json!(1);
        }
        body
    })
    .await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.gates("n2", &[Verdict::Fail]);
    world.claim("n2").await.expect(201);
    world.settle().await;
    assert_eq!(states(&world, 2).await, ["in_service", "quarantined"]);
    assert_eq!(account(&world).await, (0, 1, 1), "n2 was never in service");
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "maintenance");
    world.check().await;
}

#[tokio::test]
async fn an_override_is_a_right_and_is_recorded() {
    let mut world = serving(2, json!(1), json!([])).await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    world.ask("n2", "drain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    // The same request again is refused, and the override of the same request replaces it.
    let again = act(&world, "n2", "drain", &json!({})).await;
    assert_eq!(again.status, 409, "{}", again.text);
    let beyond = json!({ "override_budget": "smoke from the rack" });
    let automation = world.server.caller(Role::Automation).await;
    let refused = automation.post("/v1/nodes/n2/actions/drain", &beyond).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    let operator = world.server.caller(Role::Operator).await;
    let empty = json!({ "override_budget": " " });
    let refused = operator.post("/v1/nodes/n2/actions/drain", &empty).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    let refused = operator.post("/v1/nodes/n2/actions/undrain", &beyond).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert_eq!(events(&world, "budget.overridden").await, 0);
    operator
        .post("/v1/nodes/n2/actions/drain", &beyond)
        .await
        .expect(202);
    world.settle().await;
    assert_eq!(states(&world, 2).await, ["maintenance", "maintenance"]);
    assert_eq!(events(&world, "budget.overridden").await, 1);
    assert_eq!(account(&world).await, (2, 1, 2));
    world.check().await;
}

#[tokio::test]
async fn another_act_takes_the_place_of_a_waiting_one() {
    let mut world = serving(2, json!(1), json!([])).await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    let drain = world.ask("n2", "drain").await.expect(202);
    world.settle().await;
    world.ask("n2", "converge").await.expect(202);
    assert_eq!(world.operation(&drain).await, "cancelled");
    // An act that leaves the node in service does not.
    assert_eq!(world.ask("n2", "inspect").await.status, 409);
    world.ask("n1", "resume").await.expect(202);
    settle_all(&mut world).await;
    assert_eq!(states(&world, 2).await, ["in_service", "in_service"]);
    world.check().await;
}

#[tokio::test]
async fn a_node_written_off_frees_the_slot_until_the_date() {
    let mut world = serving(3, json!(1), json!([])).await;
    let until = |hours: i64| {
        let at = world.server.app.clock.now() + jiff::SignedDuration::from_hours(hours);
        json!({ "until": at.to_string(), "reason": "RMA 4711" })
    };
    let (day, past, far) = (until(24), until(-1), until(366 * 24));
    let serves = write_off(&world, "n1", &day).await;
    assert_eq!(serves.problem().0, 409, "{}", serves.text);
    world.ask("n1", "quarantine").await.expect(202);
    world.settle().await;
    world.ask("n2", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    for wrong in [
        &past,
        &far,
        &json!({ "until": day["until"], "reason": " " }),
    ] {
        assert_eq!(write_off(&world, "n1", wrong).await.status, 422, "{wrong}");
    }
    let claim = write_off(&world, "n1", &day).await.expect(200).body;
    assert_eq!(claim["status"]["written_off"]["reason"], "RMA 4711");
    assert_eq!(events(&world, "claim.written_off").await, 1);
    // The waiting node is woken.
    world.settle().await;
    assert_eq!(
        states(&world, 3).await,
        ["quarantined", "maintenance", "in_service"]
    );
    assert_eq!(account(&world).await, (1, 1, 2));
    // At the end of the time n1 counts again.
    world.advance(25 * 3600);
    assert_eq!(account(&world).await, (2, 1, 3));
    world.check().await;
}

#[tokio::test]
async fn a_written_off_node_counts_again_once_it_has_served() {
    let mut world = serving(2, json!(1), json!([])).await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    let until = world.server.app.clock.now() + jiff::SignedDuration::from_hours(99);
    let off = json!({ "until": until.to_string(), "reason": "a fan" });
    write_off(&world, "n1", &off).await.expect(200);
    assert_eq!(account(&world).await, (0, 1, 1));
    world.ask("n1", "resume").await.expect(202);
    world.settle().await;
    assert_eq!(account(&world).await, (0, 1, 2));
    let claim = world.admin.get("/v1/claims/c-n1").await.expect(200).body;
    assert_eq!(claim["status"]["written_off"], Value::Null);
    world.ask("n1", "drain").await.expect(202);
    world.settle().await;
    assert_eq!(account(&world).await, (1, 1, 2));
    // A person may end a write-off.
    write_off(&world, "n1", &off).await.expect(200);
    let end = json!({ "until": null, "reason": "the fan is here" });
    write_off(&world, "n1", &end).await.expect(200);
    assert_eq!(account(&world).await, (1, 1, 2));
    world.check().await;
}

/// Nodes n1 and n3 have the label `parity=odd`, and n2 and n4 `parity=even`.
fn parity(max_unavailable: Value) -> Value {
    json!([{ "name": "feed", "source": "node_label", "label": "parity", "max_unavailable": max_unavailable }])
}

#[tokio::test]
async fn a_failure_domain_limits_its_nodes_over_all_pools() {
    let mut world = serving(4, json!("100%"), parity(json!(1))).await;
    // The second pool has n3 of the domain feed:odd.
    let mut other = fleet::pool();
    other["spec"]["max_unavailable"] = json!("100%");
    world.admin.put("/v1/pools/other", &other).await.expect(201);
    world.release("n3").await.expect(202);
    world.settle().await;
    let body = json!({ "name": "c3", "spec": { "pool": "other", "node": "n3" } });
    world.admin.post("/v1/claims", &body).await.expect(201);
    world.settle().await;

    world.ask("n1", "maintain").await.expect(202);
    world.ask("n2", "maintain").await.expect(202);
    world.settle().await;
    world.ask("n3", "maintain").await.expect(202);
    world.ask("n4", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(
        states(&world, 4).await,
        ["maintenance", "maintenance", "in_service", "in_service"]
    );
    let (code, sentence) = why(&world, "n3").await;
    assert_eq!(code, "disruption_budget");
    assert_eq!(
        sentence,
        "a slot of the disruption budget: the failure domain feed:odd has 1 of 2 nodes out, and 1 may be out at a time"
    );
    let seen = budget(&world).await;
    let domains = seen["domains"].as_array().unwrap();
    let ids: Vec<&str> = domains
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["feed:even", "feed:odd"]);
    assert_eq!(read_account(&domains[1]["account"]), (1, 1, 2));
    // The pool of n1, n2 and n4 names no node of the other pool.
    let out = seen["nodes_out"].as_array().unwrap();
    assert_eq!(out.len(), 2, "{seen:#}");
    // The nodes of another pool ask again by themselves.
    world.ask("n1", "resume").await.expect(202);
    world.settle().await;
    world.advance(60);
    world.settle().await;
    assert_eq!(world.state("n3").await, "maintenance");
}

#[tokio::test]
async fn racks_and_labels_of_racks_are_domains() {
    let mut rack = fleet::rack();
    rack["labels"] = json!({ "feed": "a" });
    let axes = json!([
        { "name": "rack", "source": "rack", "max_unavailable": "50%" },
        { "name": "power", "source": "rack_label", "label": "feed", "max_unavailable": 1 },
    ]);
    let mut world = serving(4, json!("100%"), axes).await;
    assert_eq!(budget(&world).await["domains"].as_array().unwrap().len(), 1);
    world.admin.put("/v1/racks/r1", &rack).await.expect(200);
    let seen = budget(&world).await;
    let accounts: Vec<(&str, (u64, u64, u64))> = seen["domains"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["id"].as_str().unwrap(), read_account(&one["account"])))
        .collect();
    assert_eq!(accounts, [("power:a", (0, 1, 4)), ("rack:r1", (0, 2, 4))]);
    for node in ["n1", "n2", "n3"] {
        world.ask(node, "maintain").await.expect(202);
    }
    world.settle().await;
    assert_eq!(account(&world).await.0, 1, "the power feed");
    rack["labels"] = json!({});
    world.admin.put("/v1/racks/r1", &rack).await.expect(200);
    world.advance(60);
    world.settle().await;
    assert_eq!(account(&world).await.0, 2, "the rack");
}

#[tokio::test]
async fn a_wrong_axis_is_refused_with_its_place() {
    let world = World::start(0).await;
    let table = [
        (
            json!([{ "name": "Rack", "source": "rack", "max_unavailable": 1 }]),
            "/spec/failure_domains/0/name",
        ),
        (
            json!([{ "name": "r", "source": "rack", "label": "x", "max_unavailable": 1 }]),
            "/spec/failure_domains/0/label",
        ),
        (
            json!([{ "name": "r", "source": "rack", "max_unavailable": "0%" }]),
            "/spec/failure_domains/0/max_unavailable",
        ),
        (
            json!([{ "name": "r", "source": "switch", "max_unavailable": 1 }]),
            "/spec/failure_domains/0/source",
        ),
    ];
    for (axes, pointer) in table {
        let body = json!({ "spec": { "failure_domains": axes } });
        let refused = world.admin.put("/v1/sites/other", &body).await;
        let malformed = pointer.ends_with("source") || pointer.ends_with("unavailable");
        assert_eq!(refused.status, if malformed { 400 } else { 422 }, "{axes}");
        assert_eq!(
            refused.body["errors"][0]["pointer"], pointer,
            "{}",
            refused.text
        );
    }
}

#[tokio::test]
async fn a_larger_budget_needs_the_right_to_override() {
    let world = serving(1, json!(1), json!([])).await;
    let automation = world.server.caller(Role::Automation).await;
    let pool = |max: Value| {
        let mut pool = fleet::pool();
        pool["spec"]["max_unavailable"] = max;
        pool
    };
    for more in [json!(2), json!("1%")] {
        let refused = automation.put("/v1/pools/gpu", &pool(more.clone())).await;
        assert_eq!(refused.status, 403, "{more}: {}", refused.text);
    }
    automation
        .put("/v1/pools/gpu", &pool(json!(0)))
        .await
        .expect(200);
    let operator = world.server.caller(Role::Operator).await;
    operator
        .put("/v1/pools/gpu", &pool(json!("10%")))
        .await
        .expect(200);
    let wrong = operator.put("/v1/pools/gpu", &pool(json!("101%"))).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text);
}

#[tokio::test]
async fn a_failing_node_serves_until_a_slot_is_free() {
    let mut world = World::declare(2, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["max_unavailable"] = json!(1);
            body["spec"]["health"] = json!({ "sweep": "smoke" });
        }
        body
    })
    .await;
    world.settle().await;
    for node in ["n1", "n2"] {
        world.claim(node).await.expect(201);
    }
    world.settle().await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    world.gates("n2", &[Verdict::Fail]);
    world.ask("n2", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    assert_eq!(why(&world, "n2").await.0, "disruption_budget");
    world.ask("n1", "resume").await.expect(202);
    settle_all(&mut world).await;
    assert_eq!(states(&world, 2).await, ["in_service", "quarantined"]);
    world.check().await;
}

#[tokio::test]
async fn a_drain_by_another_person_counts() {
    let mut world = serving(3, json!(1), json!([])).await;
    say(&mut world, &[("n1", "drained", Some("broken fan"))]).await;
    assert_eq!(account(&world).await, (1, 1, 3));
    world.ask("n2", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    // The drained node itself takes no slot.
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "maintenance");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn engines_at_the_same_time_take_one_slot_once() {
    const NODES: u8 = 8;
    let mut world = serving(NODES, json!(2), parity(json!(1))).await;
    for number in 1..=NODES {
        world
            .ask(&format!("n{number}"), "converge")
            .await
            .expect(202);
    }
    for _ in 0..200 {
        let engines = (0..6).map(|_| {
            let app = world.server.app.clone();
            tokio::spawn(async move { engine::run_until_idle(&app).await })
        });
        for done in futures::future::join_all(engines).await {
            done.unwrap().unwrap();
        }
        let seen = budget(&world).await;
        let (out, max, _) = read_account(&seen["account"]);
        assert!(out <= max, "{seen:#}");
        for domain in seen["domains"].as_array().unwrap() {
            let (out, max, _) = read_account(&domain["account"]);
            assert!(out <= max, "{seen:#}");
        }
        if out == 0 && seen["waiting"].as_array().unwrap().is_empty() {
            break;
        }
        world.pass().await;
        world.advance(5);
    }
    for number in 1..=NODES {
        let node = format!("n{number}");
        let states = world.states(&node).await;
        let drained = states.iter().filter(|state| *state == "draining").count();
        assert_eq!(
            (drained, world.state(&node).await.as_str()),
            (1, "in_service"),
            "{node}"
        );
    }
    world.check().await;
}

#[tokio::test]
async fn a_pair_run_leaves_out_the_nodes_without_a_slot() {
    let world = serving(6, json!(2), json!([])).await;
    world
        .admin
        .put("/v1/suites/pairs", &pairs::suite())
        .await
        .expect(201);
    let run = "/v1/pools/gpu/actions/run-pairs";
    world.ask("n1", "maintain").await.expect(202);
    world.engine().await;
    // One slot is free, and a run needs two nodes.
    let refused = world.admin.post(run, &json!({ "suite": "pairs" })).await;
    assert_eq!(refused.problem().0, 409, "{}", refused.text);
    assert!(
        refused
            .text
            .contains("the disruption budget has no free slot"),
        "{}",
        refused.text
    );
    let beyond = json!({ "suite": "pairs", "override_budget": "before the handover" });
    let automation = world.server.caller(Role::Automation).await;
    assert_eq!(automation.post(run, &beyond).await.status, 403);
    let mut pool = fleet::pool();
    pool["spec"]["max_unavailable"] = json!(3);
    world.admin.put("/v1/pools/gpu", &pool).await.expect(200);
    let begun = world
        .admin
        .post(run, &json!({ "suite": "pairs" }))
        .await
        .expect(202);
    let id = begun.body["id"].as_str().unwrap();
    let path = format!("/v1/pools/gpu/pair-runs/{id}");
    let ends = world.admin.get(&path).await.expect(200).body["ends"].clone();
    let left = |end: &&Value| end["verdict"] == "left_out";
    assert_eq!(
        ends.as_array().unwrap().iter().filter(left).count(),
        4,
        "{ends:#}"
    );
    // The nodes of the run count before the scheduler holds the nodes back.
    assert_eq!(account(&world).await, (3, 3, 6));
    world.ask("n6", "maintain").await.expect(202);
    world.engine().await;
    assert_eq!(why(&world, "n6").await.0, "disruption_budget");
}

/// The accounts of an act are those of the list of all members. Serving nodes outside the failure
/// domains of the act have no row.
#[tokio::test]
async fn an_act_counts_the_members_without_their_rows() {
    let mut world = serving(8, json!("50%"), parity(json!("50%"))).await;
    world
        .admin
        .put("/v1/pools/other", &fleet::pool())
        .await
        .expect(201);
    world.release("n3").await.expect(202);
    world.settle().await;
    let body = json!({ "name": "c3", "spec": { "pool": "other", "node": "n3" } });
    world.admin.post("/v1/claims", &body).await.expect(201);
    world.settle().await;
    world.ask("n6", "maintain").await.expect(202);
    world.settle().await;
    say(&mut world, &[("n4", "drained", Some("broken fan"))]).await;
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    sqlx::query("UPDATE nodes SET held_back = true WHERE name = 'n8'")
        .execute(&mut *conn)
        .await
        .unwrap();
    let now = world.server.app.clock.now();
    for (name, listed, serving) in [
        ("n1", "n1 n3 n4 n5 n6 n7 n8", 1),
        ("n2", "n2 n4 n6 n8", 3),
        ("n3", "n1 n3 n5 n7", 0),
    ] {
        let path = format!("/v1/nodes/{name}");
        let id = world.admin.get(&path).await.expect(200).body["id"].clone();
        let id: NodeId = serde_json::from_value(id).unwrap();
        let place = db::disruption::list_places(&mut conn, &[id]).await.unwrap();
        let (pool, site) = (place[0].pool, place[0].site);
        let budgets = db::disruption::find_budgets(&mut conn, pool, site).await;
        let budgets = budgets.unwrap().unwrap();
        let axes = &budgets.axes;
        let domains = place[0].domains(axes);
        let all = db::disruption::list_members(&mut conn, pool, Some(site), axes, &domains);
        let all = all.await.unwrap();
        let acting = [id];
        let few = db::disruption::count_for_acts(&mut conn, pool, site, axes, &domains, &acting);
        let few = few.await.unwrap();
        let names: Vec<&str> = few.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!((names.join(" ").as_str(), few.serving), (listed, serving));
        let read = |rows: &[MemberRow]| -> Vec<Member> {
            rows.iter().map(|row| row.member(site, axes)).collect()
        };
        let (all, rows) = (read(&all), read(&few.rows));
        let budget = build_budget(budgets.max_unavailable, axes, &all);
        let whole = Ledger::open(&budget, &all, now);
        let counted = Ledger::open_beside(&budget, &rows, few.serving, now);
        assert_eq!(counted.pool(), whole.pool(), "{name}");
        for id in &domains {
            assert_eq!(counted.domain(id), whole.domain(id), "{name}");
        }
    }
}

/// Waits until a transaction of the test's database waits for an advisory lock.
async fn until_a_lock_is_awaited(pool: &sqlx::PgPool, key: &str) {
    let query = "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                 WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)";
    for _ in 0..600 {
        if sqlx::query_scalar(query).fetch_one(pool).await.unwrap() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("no act waits for {key}");
}

#[tokio::test]
async fn a_slot_is_taken_under_the_locks_of_the_pool_and_of_the_domain() {
    let world = serving(3, json!("100%"), parity(json!("100%"))).await;
    let pool = &world.server.app.pool;
    let id = async |kind: &str| -> sqlx::types::Uuid {
        let query =
            sqlx::query_scalar("SELECT id FROM objects WHERE kind = $1 AND name IN ('gpu', 'lab')");
        query.bind(kind.to_owned()).fetch_one(pool).await.unwrap()
    };
    let of_pool = format!("muster disruption pool {}", id("pool").await);
    let of_domain = format!("muster disruption domain {} feed:odd", id("site").await);
    for (node, key) in [("n1", of_pool), ("n3", of_domain)] {
        let mut holder = pool.begin().await.unwrap();
        sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))")
            .bind(&key)
            .execute(&mut *holder)
            .await
            .unwrap();
        world.ask(node, "maintain").await.expect(202);
        let app = world.server.app.clone();
        let waits = tokio::spawn(async move { engine::run_until_idle(&app).await });
        until_a_lock_is_awaited(pool, &key).await;
        assert_eq!(world.state(node).await, "in_service", "{key}");
        holder.rollback().await.unwrap();
        waits.await.unwrap().unwrap();
        assert_eq!(world.state(node).await, "draining");
    }
}
