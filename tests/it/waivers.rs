//! Waivers: two people, a reason and an end; for one gate and one place; and told wherever one was used.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_core::gates::Verdict;
use muster_server::db;
use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::server::{Caller, Reply, Server};

const DAY: i64 = 24 * 3600;

async fn ask(
    server: &Server,
    caller: &Caller,
    place: (&str, &str),
    gate: &str,
    seconds: i64,
) -> Reply {
    let until = server.app.clock.now() + SignedDuration::from_secs(seconds);
    let body = json!({ place.0: place.1, "gate": gate, "reason": "a spare disk arrives on Friday", "until": until });
    caller.post("/v1/waivers", &body).await
}

async fn decide(caller: &Caller, asked: &Reply, word: &str) -> Reply {
    caller
        .post(
            &format!(
                "/v1/approvals/{}/{word}",
                asked.body["approval"].as_str().unwrap()
            ),
            &json!({}),
        )
        .await
}

/// Asked by one operator, agreed to by another.
async fn waive(world: &World, place: (&str, &str), gate: &str, seconds: i64) -> Reply {
    let (one, other) = (
        world.server.caller(Role::Operator).await,
        world.server.caller(Role::Operator).await,
    );
    let asked = ask(&world.server, &one, place, gate, seconds)
        .await
        .expect(201);
    decide(&other, &asked, "approve").await.expect(200);
    asked
}

/// Available nodes whose gates will all fail, however often they run.
async fn failing(nodes: u8, change: impl Fn(&str, Value) -> Value) -> World {
    let mut world = World::declare(nodes, change).await;
    world.settle().await;
    for number in 1..=nodes {
        world.gates(&format!("n{number}"), &[Verdict::Fail, Verdict::Fail]);
    }
    world
}

async fn claimed(world: &mut World, nodes: u8) {
    for number in 1..=nodes {
        world.claim(&format!("n{number}")).await.expect(201);
    }
    world.settle().await;
}

/// A misspelt gate would be agreed to by a second person, and change nothing.
#[tokio::test]
async fn a_gate_that_the_pool_never_runs_is_not_waived() {
    let mut world = World::start(2).await;
    world.settle().await;
    claimed(&mut world, 1).await;
    let operator = world.server.caller(Role::Operator).await;
    for place in [("node", "n1"), ("pool", "gpu")] {
        let refused = ask(&world.server, &operator, place, "node.profil", DAY).await;
        assert_eq!(refused.problem(), (422, "unprocessable", "/gate"));
        assert!(
            refused.text.contains("nearest are: node.profile"),
            "{}",
            refused.text
        );
        ask(&world.server, &operator, place, "node.profile", DAY)
            .await
            .expect(201);
    }
    // Which suites a free node or a rack will see is not known.
    ask(&world.server, &operator, ("node", "n2"), "gpu.nvlink", DAY)
        .await
        .expect(201);
    ask(&world.server, &operator, ("rack", "r1"), "gpu.nvlink", DAY)
        .await
        .expect(201);
}

#[tokio::test]
async fn a_waived_gate_admits_its_node_and_says_so_everywhere_and_no_other_node() {
    let mut world = failing(2, |_, body| body).await;
    waive(&world, ("node", "n1"), "node.profile", 60 * DAY).await;
    claimed(&mut world, 2).await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.state("n2").await.as_str()
        ),
        ("in_service", "quarantined")
    );

    let runs = world
        .admin
        .get("/v1/nodes/n1/gate-runs")
        .await
        .expect(200)
        .body;
    let results: Vec<&Value> = runs["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["results"][0])
        .collect();
    assert_eq!(results.len(), 2, "before the reboot and after it");
    for (run, result) in runs["items"].as_array().unwrap().iter().zip(results) {
        assert_eq!(
            (run["verdict"].as_str(), result["verdict"].as_str()),
            (Some("pass"), Some("fail")),
            "{run}"
        );
        assert_eq!(result["waived"]["reason"], "a spare disk arrives on Friday");
        assert_ne!(
            result["waived"]["requested_by"],
            result["waived"]["agreed_by"]
        );
    }
    let other = world
        .admin
        .get("/v1/nodes/n2/gate-runs")
        .await
        .expect(200)
        .body;
    let failed = &other["items"][0]["results"][0];
    assert!(failed.get("waived").is_none(), "{other}");
    // What it means is the suite's word, not the node's.
    let finding = failed["finding"].as_str().unwrap();
    assert!(!finding.is_empty(), "{failed}");
    let shown = world.admin.get("/nodes/n2").await.expect(200).text;
    assert!(
        shown.contains("Meaning:") && shown.contains(finding),
        "{shown}"
    );
    let told = world
        .history("n1")
        .await
        .iter()
        .filter(|event| event.starts_with("gate.waived"))
        .count();
    assert_eq!(told, 2, "{:?}", world.history("n1").await);
    let timeline = world
        .admin
        .get("/v1/nodes/n1/timeline")
        .await
        .expect(200)
        .text;
    assert!(
        timeline.contains("ends as fail and is waived until")
            && timeline.contains("arrives on Friday"),
        "{timeline}"
    );
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    assert!(
        page.contains("counts as passed until") && page.contains("waived"),
        "{page}"
    );
    world.check().await;
}

#[tokio::test]
async fn another_gate_of_the_same_node_still_blocks() {
    let three = |path: &str, mut body: Value| {
        if path == "/v1/suites/smoke" {
            let gate = |id: &str, shadow: bool| {
                let mut gate = body["spec"]["gates"][0].clone();
                (gate["id"], gate["shadow"]) = (json!(id), json!(shadow));
                gate
            };
            let more = [gate("node.other", false), gate("node.shadow", true)];
            body["spec"]["gates"].as_array_mut().unwrap().extend(more);
        }
        body
    };
    let mut world = failing(1, three).await;
    waive(&world, ("node", "n1"), "node.profile", 60 * DAY).await;
    claimed(&mut world, 1).await;
    assert_eq!(world.state("n1").await, "quarantined");
    assert_eq!(
        world.value("n1", "reason").await.unwrap(),
        "gate node.other: it was made to end as fail"
    );
    // The fleet's page names what is in somebody's way. It reads no result for that.
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    sqlx::query("UPDATE gate_results SET result = '{}'")
        .execute(&mut *conn)
        .await
        .unwrap();
    let since = jiff::Timestamp::UNIX_EPOCH;
    let told = db::pages::fleet::list_failing_gates(&mut conn, None, since, 8)
        .await
        .unwrap();
    let told: Vec<&str> = told.iter().map(|gate| gate.gate.as_str()).collect();
    assert_eq!(told, ["node.other"]);
}

#[tokio::test]
async fn what_is_over_ended_or_only_asked_for_counts_for_nothing() {
    let mut world = failing(4, |_, body| body).await;
    let one = world.server.caller(Role::Operator).await;
    ask(
        &world.server,
        &one,
        ("node", "n1"),
        "node.profile",
        60 * DAY,
    )
    .await
    .expect(201);
    let ended = waive(&world, ("node", "n2"), "node.profile", 60 * DAY).await;
    let path = format!("/v1/waivers/{}", ended.body["id"].as_str().unwrap());
    assert_eq!(one.delete(&path).await.status, 428);
    assert_eq!(one.expecting(2).delete(&path).await.status, 412);
    assert_eq!(
        one.expecting(1).delete(&path).await.expect(200).body["state"],
        "ended"
    );
    waive(&world, ("node", "n3"), "node.profile", 3600).await;
    let denied = ask(
        &world.server,
        &one,
        ("node", "n4"),
        "node.profile",
        60 * DAY,
    )
    .await
    .expect(201);
    decide(&world.admin, &denied, "deny").await.expect(200);
    assert_eq!(
        decide(&world.admin, &denied, "approve").await.problem().1,
        "decided"
    );
    world.advance(3600);
    claimed(&mut world, 4).await;
    for node in ["n1", "n2", "n3", "n4"] {
        assert_eq!(world.state(node).await, "quarantined", "{node}");
    }
    let listed = world.admin.get("/v1/waivers").await.expect(200).body;
    let states: Vec<&str> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["denied", "over", "ended", "asked"]);
    let of_n3 = world
        .admin
        .get("/v1/waivers?node=n3")
        .await
        .expect(200)
        .body;
    assert_eq!(of_n3["items"].as_array().unwrap().len(), 1);
    assert_eq!(world.admin.get("/v1/waivers?node=n9").await.status, 404);
}

#[tokio::test]
async fn a_waiver_that_is_ended_on_the_way_admits_nobody_any_more() {
    let mut world = World::start(1).await;
    world.settle().await;
    // What passes after the reboot is no answer to what failed before it.
    world.gates("n1", &[Verdict::Fail, Verdict::Pass]);
    let waiver = waive(&world, ("node", "n1"), "node.profile", 60 * DAY).await;
    world.claim("n1").await.expect(201);
    // The reboot of its stack comes first; that of the test is begun because its gate is waived.
    world.until("n1", "validating").await;
    let reboot = world.until_leased("n1", "reboot").await;
    let path = format!("/v1/waivers/{}", waiver.body["id"].as_str().unwrap());
    world.admin.expecting(1).delete(&path).await.expect(200);
    world.advance(60);
    world.engine().await;
    assert_eq!(
        world.state("n1").await,
        "validating",
        "what runs ends first"
    );
    drop(world.agent.work(&reboot).await.unwrap());
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    world.check().await;
}

#[tokio::test]
async fn a_rack_and_a_pool_are_waived_for_their_nodes() {
    for place in [("rack", "r1"), ("pool", "gpu")] {
        let mut world = failing(1, |_, body| body).await;
        waive(&world, place, "node.profile", 60 * DAY).await;
        claimed(&mut world, 1).await;
        assert_eq!(world.state("n1").await, "in_service", "{place:?}");
    }
}

#[tokio::test]
async fn nobody_agrees_to_what_they_asked_for_themselves() {
    let server = Server::start().await;
    let admin = server.admin().await;
    crate::support::fleet::declare_pool(&admin).await;
    crate::support::fleet::available(&server, &admin, 1).await;
    let token = |name: &'static str| {
        let body = json!({ "name": name, "role": "operator", "expires_in_s": 86400 });
        let (server, admin) = (&server, &admin);
        async move {
            let made = admin.post("/v1/tokens", &body).await.expect(201).body;
            server.with(Some(made["secret"].as_str().unwrap().to_owned()))
        }
    };
    let (ci, also_ci) = (token("ci").await, token("ci-2").await);
    let asked = ask(&server, &ci, ("node", "n1"), "disk.smart", DAY)
        .await
        .expect(201);
    assert_eq!(asked.body["state"], "asked");
    // One person's tokens are one person.
    for same in [&ci, &also_ci, &admin] {
        assert_eq!(decide(same, &asked, "approve").await.status, 403);
    }
    for (role, status) in [(Role::Viewer, 403), (Role::Automation, 403)] {
        let caller = server.caller(role).await;
        assert_eq!(
            decide(&caller, &asked, "approve").await.status,
            status,
            "{role:?}"
        );
        assert_eq!(
            ask(&server, &caller, ("node", "n1"), "disk.smart", DAY)
                .await
                .status,
            status,
            "{role:?}"
        );
    }
    let other = server.caller(Role::Operator).await;
    let open = other.get("/claims").await.expect(200).text;
    assert!(
        open.contains("Approve the waiver") && open.contains("a spare disk arrives on Friday"),
        "{open}"
    );
    let listed = other.get("/v1/approvals").await.expect(200).body;
    assert_eq!(
        (&listed["items"][0]["waiver"], &listed["items"][0]["claim"]),
        (&asked.body["id"], &Value::Null)
    );
    decide(&other, &asked, "approve").await.expect(200);
    let waiver = &admin.get("/v1/waivers").await.expect(200).body["items"][0];
    assert_eq!(
        (waiver["state"].as_str(), waiver["node"].as_str()),
        (Some("active"), Some("n1"))
    );
    let events = admin.get("/v1/nodes/n1/events").await.expect(200).text;
    assert!(
        events.contains("waiver.requested") && events.contains("waiver.approved"),
        "{events}"
    );
    // Ended before somebody agrees, there is nothing to agree to.
    let asked = ask(&server, &ci, ("node", "n1"), "node.disk", DAY)
        .await
        .expect(201);
    ci.expecting(1)
        .delete(&format!(
            "/v1/waivers/{}",
            asked.body["id"].as_str().unwrap()
        ))
        .await
        .expect(200);
    assert_eq!(
        decide(&other, &asked, "approve").await.problem().1,
        "decided"
    );
}

#[tokio::test]
async fn a_waiver_is_for_one_place_with_a_reason_and_an_end_within_ones_scope() {
    let server = Server::start().await;
    let admin = server.admin().await;
    crate::support::fleet::declare_pool(&admin).await;
    crate::support::fleet::available(&server, &admin, 1).await;
    admin
        .put("/v1/sites/far", &json!({ "spec": {} }))
        .await
        .expect(201);
    let until = server.app.clock.now() + SignedDuration::from_hours(24);
    let late = server.app.clock.now() + SignedDuration::from_hours(91 * 24);
    let whole = json!({ "node": "n1", "gate": "a", "reason": "b", "until": until });
    for (member, value, pointer) in [
        ("rack", json!("r1"), "/node"),
        ("node", Value::Null, "/node"),
        ("gate", json!("A b"), "/gate"),
        ("reason", json!(" "), "/reason"),
        ("reason", json!("two\nlines"), "/reason"),
        ("until", json!(server.app.clock.now()), "/until"),
        ("until", json!(late), "/until"),
    ] {
        let mut body = whole.clone();
        body[member] = value;
        assert_eq!(
            admin.post("/v1/waivers", &body).await.problem().2,
            pointer,
            "{body}"
        );
    }
    let mut nowhere = whole.clone();
    nowhere["node"] = json!("n9");
    assert_eq!(admin.post("/v1/waivers", &nowhere).await.status, 404);
    admin
        .post("/v1/waivers?dry_run=true", &whole)
        .await
        .expect(201);
    assert_eq!(
        admin.get("/v1/waivers").await.expect(200).body["items"],
        json!([]),
        "a dry run leaves nothing"
    );

    let scoped = |site: &'static str| {
        let (server, admin) = (&server, &admin);
        let body = json!({ "name": site, "role": "operator", "scope": { "site": site }, "expires_in_s": 3600 });
        async move {
            let made = admin.post("/v1/tokens", &body).await.expect(201);
            server.with(Some(made.body["secret"].as_str().unwrap().to_owned()))
        }
    };
    let (here, there) = (scoped("lab").await, scoped("far").await);
    assert_eq!(
        there.post("/v1/waivers", &whole).await.status,
        404,
        "what they may not read does not exist"
    );
    let asked = here.post("/v1/waivers", &whole).await.expect(201);
    assert_eq!(decide(&there, &asked, "approve").await.status, 404);
    let path = format!("/v1/waivers/{}", asked.body["id"].as_str().unwrap());
    assert_eq!(there.expecting(1).delete(&path).await.status, 404);
    assert_eq!(there.get(&path).await.status, 404);
    let shown = here.get(&path).await.expect(200);
    assert_eq!(
        (shown.body["state"].as_str(), shown.header("etag")),
        (Some("asked"), "\"1\""),
        "{}",
        shown.text
    );
    assert_eq!(shown.body["node"], "n1");
    assert_eq!(here.get("/v1/waivers/x").await.status, 404);
    here.expecting(1).delete(&path).await.expect(200);
    assert_eq!(here.get(&path).await.expect(200).body["state"], "ended");
}
