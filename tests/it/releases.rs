//! Releases by mistake. A person undoes a release while the disks are kept. Releases beyond a
//! person's limit wait for approval.

use muster_api::tokens::Role;
use muster_core::effects;
use muster_core::lifecycle::state::Action;
use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

/// Nodes after a release and a drain. The next step is the wipe.
async fn drained(nodes: u8) -> World {
    let mut world = World::serving(nodes, |_, body| body).await;
    for number in 1..=nodes {
        world.release(&format!("n{number}")).await.expect(202);
    }
    for _ in 0..10 {
        world.pass().await;
    }
    world
}

fn wiped(world: &World, name: &str) -> usize {
    world.machine(name, |machine| {
        machine.log.iter().filter(|done| done.act == "wipe").count()
    })
}

#[tokio::test]
async fn the_disks_are_kept_for_the_pools_window_and_then_they_are_not() {
    let mut world = drained(1).await;
    assert_eq!(world.state("n1").await, "wiping");
    let acts = world.machine("n1", |machine| machine.log.len());
    world.advance(14 * 60);
    for _ in 0..5 {
        world.pass().await;
    }
    assert_eq!(
        world.machine("n1", |machine| machine.log.len()),
        acts,
        "not even powered"
    );
    let why = world.admin.get("/v1/nodes/n1/why").await.expect(200).text;
    assert!(
        why.contains("the disks are kept until") && why.contains("claim undo"),
        "{why}"
    );
    let claim = world.admin.get("/v1/claims/c-n1").await.expect(200).body;
    assert!(claim["status"]["undo_until"].is_string(), "{claim}");
    world.advance(61);
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(&world, "n1")),
        ("available", 1)
    );
    assert_eq!(
        world.undo("n1").await.status,
        404,
        "there is nothing left to take back"
    );
    world.check().await;
}

#[tokio::test]
async fn an_undone_release_goes_back_through_the_gates() {
    let mut world = drained(1).await;
    let undo = world.undo("n1").await.expect(202);
    assert_eq!(
        world.undo("n1").await.expect(202).body["id"],
        undo.body["id"],
        "the same call, the same operation"
    );
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(world.operation(&undo).await, "succeeded");
    assert_eq!(
        world.states("n1").await[6..],
        [
            "in_service",
            "draining",
            "wiping",
            "validating",
            "admitting",
            "in_service"
        ]
    );
    assert_eq!(wiped(&world, "n1"), 0);
    let claim = world.admin.get("/v1/claims/c-n1").await.expect(200).body;
    assert_eq!(
        (
            claim["status"]["state"].as_str(),
            claim["status"]["epoch"].as_i64()
        ),
        (Some("bound"), Some(3))
    );
    // The OS was written under the first epoch, and accepts logins of the first epoch.
    assert_eq!(world.value("n1", "os_epoch").await.as_deref(), Some("1"));
    world.check().await;
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(&world, "n1")),
        ("available", 1)
    );
    world.check().await;
}

#[tokio::test]
async fn undone_before_and_while_it_drains_it_stays_in_the_scheduler() {
    let mut world = World::start(2).await;
    world.settle().await;
    for name in ["n1", "n2"] {
        world.claim(name).await.expect(201);
    }
    world.settle().await;
    world.release("n1").await.expect(202);
    world.undo("n1").await.expect(202);
    world.release("n2").await.expect(202);
    world.until_leased("n2", "drain").await;
    world.undo("n2").await.expect(202);
    world.engine().await;
    world.advance(31);
    world.expire_leases().await;
    world.settle().await;
    for name in ["n1", "n2"] {
        assert_eq!(
            (world.state(name).await.as_str(), wiped(&world, name)),
            ("in_service", 0),
            "{name}"
        );
        assert_eq!(world.value(name, "wish").await, None);
    }
    world.check().await;
}

#[tokio::test]
async fn undone_before_it_left_where_it_rested_it_rests_there_again() {
    let mut world = World::start(2).await;
    world.settle().await;
    for (name, action, state) in [
        ("n1", "quarantine", "quarantined"),
        ("n2", "maintain", "maintenance"),
    ] {
        world.claim(name).await.expect(201);
        world.settle().await;
        world.ask(name, action).await.expect(202);
        world.settle().await;
        assert_eq!(world.state(name).await, state);
        world.release(name).await.expect(202);
        let claim = world
            .admin
            .get(&format!("/v1/claims/c-{name}"))
            .await
            .expect(200)
            .body;
        assert!(claim["status"]["undo_until"].is_string(), "{claim}");
        let undo = world.undo(name).await.expect(202);
        world.settle().await;
        assert_eq!(
            (
                world.state(name).await.as_str(),
                world.operation(&undo).await.as_str()
            ),
            (state, "succeeded")
        );
        let claim = world
            .admin
            .get(&format!("/v1/claims/c-{name}"))
            .await
            .expect(200)
            .body;
        assert_eq!(
            (&claim["status"]["state"], &claim["status"]["undo_until"]),
            (&json!("bound"), &json!(null))
        );
        assert_eq!(
            (wiped(&world, name), world.value(name, "wish").await),
            (0, None)
        );
    }
    world.ask("n2", "resume").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    world.check().await;
}

#[tokio::test]
async fn erased_now_there_is_nothing_to_undo() {
    let mut world = drained(2).await;
    world
        .admin
        .expecting(1)
        .delete("/v1/claims/c-n1?erase_now=true")
        .await
        .expect(202);
    world.pass().await;
    assert_eq!(world.undo("n1").await.problem().1, "not_undoable");
    // The undo window of `n2` is over, and the wipe has begun.
    world.advance(16 * 60);
    world.until_leased("n2", "boot_live").await;
    assert_eq!(world.undo("n2").await.problem().1, "not_undoable");
    assert_eq!(world.undo("n3").await.status, 404);
}

/// Claimed nodes, in a pool with the given changes of the spec.
async fn claimed(count: u8, pool: Value) -> (Server, Caller) {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    admin
        .put("/v1/suites/smoke", &fleet::suite())
        .await
        .expect(201);
    let mut body = fleet::pool();
    body["spec"]
        .as_object_mut()
        .unwrap()
        .extend(pool.as_object().unwrap().clone());
    admin.put("/v1/pools/gpu", &body).await.expect(201);
    fleet::available(&server, &admin, count).await;
    for number in 1..=count {
        let claim = json!({ "name": format!("c{number}"), "spec": { "pool": "gpu", "node": format!("n{number}") } });
        admin.post("/v1/claims", &claim).await.expect(201);
    }
    (server, admin)
}

async fn token(server: &Server, admin: &Caller, name: &str, releases_per_hour: u32) -> Caller {
    let body = json!({ "name": name, "role": "operator", "expires_in_s": 86400, "releases_per_hour": releases_per_hour });
    let made = admin.post("/v1/tokens", &body).await.expect(201).body;
    server.with(Some(made["secret"].as_str().unwrap().to_owned()))
}

async fn delete(caller: &Caller, number: u8) -> Reply {
    caller
        .expecting(1)
        .delete(&format!("/v1/claims/c{number}"))
        .await
}

#[tokio::test]
async fn beyond_the_limit_of_an_hour_a_second_person_decides() {
    let (server, admin) = claimed(5, json!({})).await;
    let (ci, also_ci) = (
        token(&server, &admin, "ci", 2).await,
        token(&server, &admin, "ci-2", 2).await,
    );
    delete(&ci, 1).await.expect(202);
    delete(&ci, 2).await.expect(202);
    let held = delete(&ci, 3).await.expect(409);
    assert_eq!(held.problem().1, "second_person");
    assert_eq!(
        delete(&ci, 3).await.header("link"),
        held.header("link"),
        "asked once"
    );
    let link = held
        .header("link")
        .split(['<', '>'])
        .nth(1)
        .unwrap()
        .to_owned();
    let asked = ci.get(&link).await.expect(200).body;
    assert_eq!(
        (asked["claim"].as_str(), asked["state"].as_str()),
        (Some("c3"), Some("open"))
    );
    // A token with a limit cannot create a token with a higher limit.
    let more = |most: u32| json!({ "name": format!("m{most}"), "role": "operator", "expires_in_s": 600, "releases_per_hour": most });
    assert_eq!(ci.post("/v1/tokens", &more(3)).await.problem().0, 403);
    ci.post("/v1/tokens", &more(2)).await.expect(201);
    assert_eq!(
        delete(&ci, 1).await.status,
        202,
        "what is being released stays so"
    );
    // The limit counts all tokens of a person together.
    assert_eq!(delete(&also_ci, 4).await.problem().1, "second_person");
    let open = admin.get("/v1/approvals").await.expect(200).body;
    let [third, fourth] = open["items"].as_array().unwrap().as_slice() else {
        panic!("{open}")
    };
    assert!(held.header("link").contains(third["id"].as_str().unwrap()));
    assert_eq!(
        (third["claim"].as_str(), third["requested_by"].as_str()),
        (Some("c3"), Some("token:ci"))
    );
    let path =
        |one: &Value, word: &str| format!("/v1/approvals/{}/{word}", one["id"].as_str().unwrap());
    for same in [&ci, &also_ci, &admin] {
        assert_eq!(
            same.post(&path(third, "approve"), &json!({})).await.status,
            403
        );
    }
    let claim = admin.get("/v1/claims/c3").await.expect(200).body;
    assert_eq!(claim["status"]["state"], "bound");
    assert_eq!(
        server
            .caller(Role::Viewer)
            .await
            .post(&path(third, "approve"), &json!({}))
            .await
            .status,
        403
    );

    // Another person decides on the page.
    let other = server.caller(Role::Operator).await;
    let page = other.get("/claims").await.expect(200).text;
    assert!(
        page.contains("Waiting for a second person") && page.contains("Approve the release"),
        "{page}"
    );
    assert!(
        ci.get("/claims")
            .await
            .expect(200)
            .text
            .contains("somebody else must agree")
    );
    let form = other.header("content-type", "application/x-www-form-urlencoded");
    let address = format!("/ui/approvals/{}/approve", third["id"].as_str().unwrap());
    assert_eq!(
        form.send(reqwest::Method::POST, &address, Vec::new())
            .await
            .status,
        303
    );
    let claim = admin.get("/v1/claims/c3").await.expect(200).body;
    assert_eq!(claim["status"]["state"], "releasing");
    assert_eq!(
        other
            .post(&path(third, "deny"), &json!({}))
            .await
            .problem()
            .1,
        "decided"
    );
    other
        .post(&path(fourth, "deny"), &json!({}))
        .await
        .expect(200);
    assert_eq!(
        admin.get("/v1/claims/c4").await.expect(200).body["status"]["state"],
        "bound"
    );
    assert_eq!(
        admin.get("/v1/approvals").await.expect(200).body["items"]
            .as_array()
            .unwrap()
            .len(),
        0
    );

    // An hour later the same token releases again.
    server
        .app
        .clock
        .advance(jiff::SignedDuration::from_mins(61));
    delete(&ci, 5).await.expect(202);
}

#[tokio::test]
async fn a_second_person_approves_an_immediate_erasure() {
    let (server, admin) = claimed(2, json!({ "undo_window_s": 900 })).await;
    let serving = "UPDATE nodes SET state = 'in_service', in_cluster = true, os_host_key = 'k', unsanitised = true";
    sqlx::query(serving)
        .execute(&server.app.pool)
        .await
        .unwrap();
    let nothing = token(&server, &admin, "nothing", 0).await;
    let now = |number: u8| format!("/v1/claims/c{number}?erase_now=true");
    for number in [1, 2] {
        assert_eq!(delete(&nothing, number).await.problem().1, "second_person");
    }
    // An approval of a release is no approval of an erasure at once.
    let other_action = nothing.expecting(1).delete(&now(1)).await.expect(409);
    assert_eq!(other_action.problem().1, "approval_open");
    let open = admin.get("/v1/approvals").await.expect(200).body["items"].clone();
    let path =
        |one: &Value, word: &str| format!("/v1/approvals/{}/{word}", one["id"].as_str().unwrap());
    assert_eq!(open[0]["erase_now"], false);
    nothing
        .post(&path(&open[0], "deny"), &json!({}))
        .await
        .expect(200);
    let held = nothing.expecting(1).delete(&now(1)).await.expect(409);
    assert_eq!(held.problem().1, "second_person");
    assert_eq!(
        nothing.expecting(1).delete(&now(1)).await.header("link"),
        held.header("link"),
        "asked once"
    );
    assert_eq!(delete(&nothing, 1).await.problem().1, "approval_open");

    // The page shows the erasure to the second person, and an event reports the erasure afterwards.
    let open = admin.get("/v1/approvals").await.expect(200).body["items"].clone();
    let [kept, erased] = open.as_array().unwrap().as_slice() else {
        panic!("{open}")
    };
    assert_eq!(
        (kept["erase_now"].as_bool(), erased["erase_now"].as_bool()),
        (Some(false), Some(true)),
        "{open}"
    );
    let other = server.caller(Role::Operator).await;
    let page = other.get("/claims").await.expect(200).text;
    assert!(
        page.contains("Approve the release and the erasing of its disks at once"),
        "{page}"
    );
    assert!(page.contains("Approve the release<"), "{page}");
    for (one, claim, undone) in [(kept, "c2", 202), (erased, "c1", 409)] {
        other
            .post(&path(one, "approve"), &json!({}))
            .await
            .expect(200);
        let status = admin
            .get(&format!("/v1/claims/{claim}"))
            .await
            .expect(200)
            .body["status"]
            .clone();
        assert_eq!(status["state"], "releasing");
        assert_eq!(status["undo_until"].is_string(), undone == 202, "{status}");
        assert_eq!(
            admin
                .post(&format!("/v1/claims/{claim}/undo"), &json!({}))
                .await
                .status,
            undone,
            "{claim}"
        );
    }
    let told = admin.get("/v1/nodes/n1/events").await.expect(200).text;
    assert!(
        told.contains("approved the release, with the disks erased at once, of n1"),
        "{told}"
    );
}

/// The approval was for a release with an undo, so an erasure at once needs another approval.
#[tokio::test]
async fn what_is_kept_after_a_release_is_not_erased_beyond_the_limit() {
    let (server, admin) = claimed(2, json!({ "undo_window_s": 900 })).await;
    let serving = "UPDATE nodes SET state = 'in_service', in_cluster = true, os_host_key = 'k', unsanitised = true";
    sqlx::query(serving)
        .execute(&server.app.pool)
        .await
        .unwrap();
    let (nothing, other) = (
        token(&server, &admin, "nothing", 0).await,
        server.caller(Role::Operator).await,
    );
    let now = async |caller: &Caller, number: u8| {
        caller
            .expecting(1)
            .delete(&format!("/v1/claims/c{number}?erase_now=true"))
            .await
    };
    let only = async |word: &str| {
        let open = admin.get("/v1/approvals").await.expect(200).body["items"].clone();
        let [one] = open.as_array().unwrap().as_slice() else {
            panic!("{open}")
        };
        other
            .post(
                &format!("/v1/approvals/{}/{word}", one["id"].as_str().unwrap()),
                &json!({}),
            )
            .await
            .expect(200)
    };
    let kept = async |number: u8| {
        let claim = admin
            .get(&format!("/v1/claims/c{number}"))
            .await
            .expect(200)
            .body;
        claim["status"]["undo_until"].is_string()
    };
    assert_eq!(delete(&nothing, 1).await.problem().1, "second_person");
    only("approve").await;
    for number in [1, 2] {
        // The administrator releases the second claim, not the token without releases.
        if number == 2 {
            delete(&admin, 2).await.expect(202);
        }
        assert_eq!(now(&nothing, number).await.problem().1, "second_person");
        assert!(kept(number).await);
        assert_eq!(
            now(&nothing, number).await.problem().1,
            "second_person",
            "asked once"
        );
        match number {
            // An undo of the release also withdraws the open request for an erasure.
            1 => {
                admin
                    .post("/v1/claims/c1/undo", &json!({}))
                    .await
                    .expect(202);
                assert_eq!(
                    admin.get("/v1/approvals").await.expect(200).body["items"],
                    json!([])
                );
            }
            _ => {
                only("approve").await;
                assert!(!kept(number).await);
            }
        }
    }
    let told = admin.get("/v1/nodes/n2/events").await.expect(200).body["items"].clone();
    let erased = told
        .as_array()
        .unwrap()
        .iter()
        .find(|event| event["kind"] == "claim.erase_now");
    let erased = erased.unwrap_or_else(|| panic!("{told}"));
    assert_eq!(
        (&erased["actor"], &erased["detail"]["claim"]),
        (&json!("token:nothing"), &json!("c2"))
    );
}

#[tokio::test]
async fn concurrent_releases_respect_the_limit_and_undone_ones_do_not_count() {
    let (server, admin) = claimed(8, json!({ "releases_per_hour": 3 })).await;
    let other = server.caller(Role::Operator).await;
    let all = (1..=8).map(|number| {
        let caller = if number % 2 == 0 {
            admin.clone()
        } else {
            other.clone()
        };
        tokio::spawn(async move { delete(&caller, number).await.status })
    });
    let mut statuses = Vec::new();
    for one in all.collect::<Vec<_>>() {
        statuses.push(one.await.unwrap());
    }
    assert_eq!(
        statuses.iter().filter(|status| **status == 202).count(),
        3,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|status| **status == 409).count(),
        5,
        "{statuses:?}"
    );
    sqlx::query(
        "UPDATE operations SET state = 'cancelled', finished_at = now() WHERE kind = 'release'",
    )
    .execute(&server.app.pool)
    .await
    .unwrap();
    let left = statuses.iter().position(|status| *status == 409).unwrap();
    delete(&admin, u8::try_from(left + 1).unwrap())
        .await
        .expect(202);
}

#[tokio::test]
async fn who_may_not_agree_to_a_release_may_not_loosen_the_pools_limits_either() {
    let (server, _) = claimed(1, json!({ "releases_per_hour": 3, "undo_window_s": 600 })).await;
    let automation = server.caller(Role::Automation).await;
    let pool = |limit: Value, window: u32| {
        let mut body = fleet::pool();
        body["spec"]["releases_per_hour"] = limit;
        body["spec"]["undo_window_s"] = json!(window);
        body
    };
    automation
        .put("/v1/pools/gpu", &pool(json!(2), 900))
        .await
        .expect(200);
    for (limit, window) in [(json!(3), 900), (Value::Null, 900), (json!(2), 899)] {
        let mut body = pool(limit, window);
        if body["spec"]["releases_per_hour"].is_null() {
            body["spec"]
                .as_object_mut()
                .unwrap()
                .remove("releases_per_hour");
        }
        let refused = automation.put("/v1/pools/gpu", &body).await;
        assert_eq!(refused.problem().1, "forbidden", "{body}");
        assert!(refused.text.contains("approval.decide"), "{}", refused.text);
    }
    server
        .caller(Role::Operator)
        .await
        .put("/v1/pools/gpu", &pool(json!(9), 60))
        .await
        .expect(200);
}

/// Requests every action that erases a disk, each on a node prepared for the action.
async fn erase(caller: &Caller, action: Action, number: u8) -> Reply {
    let because = json!({ "reason": "a test" });
    match action {
        Action::Release => delete(caller, number).await,
        action => {
            caller
                .expecting(1)
                .post(&format!("/v1/nodes/n{number}/actions/{action}"), &because)
                .await
        }
    }
}

/// A node for each action. `n1` is claimed and can be released, and `n2` serves and can be
/// installed anew. `n3` has no claim and can be wiped.
async fn standing(server: &Server) {
    for statement in [
        "UPDATE claims SET state = 'released', released_at = now() WHERE name = 'c3'",
        "UPDATE nodes SET wish = NULL, operation_id = NULL",
        "UPDATE nodes SET state = 'in_service', in_cluster = true WHERE name = 'n2'",
        "UPDATE nodes SET state = 'quarantined', reason = 'a test' WHERE name = 'n3'",
        "UPDATE operations SET state = 'cancelled', finished_at = now() WHERE finished_at IS NULL",
    ] {
        sqlx::query(statement)
            .execute(&server.app.pool)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn erasures_beyond_the_limit_wait_for_a_second_person() {
    let (server, admin) = claimed(3, json!({})).await;
    standing(&server).await;
    let nothing = token(&server, &admin, "nothing", 0).await;
    let node = |action: Action| match action {
        Action::Release => 1,
        Action::Reinstall => 2,
        Action::Wipe => 3,
        other => panic!("{other} erases disks: say of which node it is asked"),
    };
    for action in effects::ERASES {
        let held = erase(&nothing, *action, node(*action)).await;
        assert_eq!(held.problem().1, "second_person", "{action}: {}", held.text);
        assert_eq!(
            erase(&nothing, *action, node(*action)).await.header("link"),
            held.header("link"),
            "{action}: asked once"
        );
        let path = format!("/v1/nodes/n2/actions/{action}?dry_run=true");
        if *action == Action::Reinstall {
            assert_eq!(
                nothing
                    .post(&path, &json!({ "reason": "a test" }))
                    .await
                    .problem()
                    .1,
                "second_person"
            );
        }
    }
    let open = admin.get("/v1/approvals").await.expect(200).body["items"]
        .as_array()
        .unwrap()
        .clone();
    let actions: Vec<&str> = open
        .iter()
        .map(|one| one["action"].as_str().unwrap_or("release"))
        .collect();
    assert_eq!(
        actions,
        effects::ERASES
            .iter()
            .map(|action| action.as_str())
            .collect::<Vec<_>>()
    );
    let begun = admin
        .get("/v1/operations?filter=state%21%3Dcancelled&count=exact")
        .await
        .expect(200);
    let erasing = begun.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["kind"] != "accept")
        .count();
    assert_eq!(erasing, 0, "nothing was begun: {}", begun.text);

    // An erasure counts toward the limit of every kind of erasure.
    let one = token(&server, &admin, "one", 1).await;
    erase(&one, Action::Reinstall, 2).await.expect(202);
    for action in [Action::Release, Action::Wipe] {
        assert_eq!(
            erase(&one, action, node(action)).await.problem().1,
            "second_person",
            "{action}"
        );
    }
}

#[tokio::test]
async fn an_approval_acts_for_the_requester_unless_the_node_moved_on() {
    let (server, admin) = claimed(3, json!({ "releases_per_hour": 0 })).await;
    standing(&server).await;
    // The pool's limit applies to every person.
    assert_eq!(
        erase(&admin, Action::Reinstall, 2).await.problem().1,
        "second_person"
    );
    let nothing = token(&server, &admin, "nothing", 0).await;
    assert_eq!(
        erase(&nothing, Action::Wipe, 3).await.problem().1,
        "second_person"
    );
    let open = admin
        .get("/v1/approvals?filter=action%3Dreinstall")
        .await
        .expect(200)
        .body["items"]
        .clone();
    assert_eq!(
        (open[0]["node"].as_str(), open[0]["reason"].as_str()),
        (Some("n2"), Some("a test"))
    );
    let other = server.caller(Role::Operator).await;
    assert!(
        other
            .get("/claims")
            .await
            .expect(200)
            .text
            .contains("Approve the new installation")
    );
    let decide =
        |one: &Value, word: &str| format!("/v1/approvals/{}/{word}", one["id"].as_str().unwrap());
    assert_eq!(
        admin
            .post(&decide(&open[0], "approve"), &json!({}))
            .await
            .status,
        403
    );
    let told = other
        .post(
            &format!("{}?dry_run=true", decide(&open[0], "approve")),
            &json!({}),
        )
        .await
        .expect(200);
    assert_eq!(told.body["state"], "approved");
    let agreed = other
        .post(&decide(&open[0], "approve"), &json!({}))
        .await
        .expect(200);
    let operation = format!(
        "/v1/operations/{}",
        agreed.body["operation"].as_str().unwrap()
    );
    let operation = admin.get(&operation).await.expect(200).body;
    assert_eq!(
        (operation["kind"].as_str(), operation["actor"].as_str()),
        (Some("reinstall"), open[0]["requested_by"].as_str())
    );

    // A request for an assignment of the node does not apply to the next assignment.
    let open = admin
        .get("/v1/approvals?filter=node%3Dn3")
        .await
        .expect(200)
        .body["items"]
        .clone();
    sqlx::query("UPDATE nodes SET epoch = epoch + 1 WHERE name = 'n3'")
        .execute(&server.app.pool)
        .await
        .unwrap();
    assert_eq!(
        other
            .post(&decide(&open[0], "approve"), &json!({}))
            .await
            .problem()
            .1,
        "decided"
    );
    other
        .post(&decide(&open[0], "deny"), &json!({}))
        .await
        .expect(200);
}
