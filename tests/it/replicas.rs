//! Pools with automatic claims: exactly the requested number, beside other callers. A lower number
//! releases no claim.

use muster_core::clock::Clock;
use muster_core::ids::{EventId, ObjectId};
use muster_server::engine::caution::Witness;
use muster_server::tasks::replicas::{self, FIRST};
use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

/// The pool `gpu`, and `count` available nodes.
async fn with_nodes(count: u8) -> (Server, Caller) {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, count).await;
    (server, admin)
}

/// A second server on the same database.
async fn beside(server: &Server) -> Server {
    Server::on(
        server.app.pool.clone(),
        Clock::manual(server.app.clock.now()),
    )
    .await
}

async fn ask(caller: &Caller, replicas: impl Into<Value>) -> Reply {
    caller
        .patch(
            "/v1/pools/gpu",
            &json!({ "spec": { "replicas": replicas.into() } }),
        )
        .await
}

async fn round(server: &Server) {
    replicas::round(&server.app, FIRST).await.unwrap();
}

/// The counts of the pool's replicas: wanted, claimed, coming, short, surplus.
async fn standing(admin: &Caller) -> [u64; 5] {
    let pool = admin.get("/v1/pools/gpu").await.expect(200).body;
    ["wanted", "claimed", "coming", "short", "surplus"]
        .map(|name| pool["status"]["replicas"][name].as_u64().unwrap())
}

async fn own(admin: &Caller) -> Vec<Value> {
    let query = "/v1/claims?limit=1000&filter=pool%3Dgpu%20AND%20replica%3Dtrue";
    admin.get(query).await.expect(200).body["items"]
        .as_array()
        .unwrap()
        .clone()
}

async fn nodes(admin: &Caller) -> Vec<String> {
    let mut nodes: Vec<String> = own(admin)
        .await
        .iter()
        .map(|claim| claim["status"]["node"].as_str().unwrap().to_owned())
        .collect();
    nodes.sort();
    nodes
}

async fn events(server: &Server, kind: &str) -> i64 {
    let count = sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = $1").bind(kind);
    count.fetch_one(&server.app.pool).await.unwrap()
}

#[tokio::test]
async fn two_servers_at_once_make_exactly_as_many_as_are_asked_for() {
    let (server, admin) = with_nodes(14).await;
    let mine = admin
        .post(
            "/v1/claims",
            &json!({ "spec": { "pool": "gpu", "selector": {} } }),
        )
        .await
        .expect(201)
        .body;
    assert_eq!(mine["status"]["replica"], false);
    ask(&admin, 6).await.expect(200);
    let other = beside(&server).await;
    let mut rounds = tokio::task::JoinSet::new();
    for _ in 0..8 {
        for app in [server.app.clone(), other.app.clone()] {
            rounds.spawn(async move { replicas::round(&app, FIRST).await.map(drop) });
        }
    }
    for done in rounds.join_all().await {
        done.unwrap();
    }
    round(&other).await;
    assert_eq!(standing(&admin).await, [6, 6, 0, 0, 0]);
    let claims = own(&admin).await;
    assert_eq!(claims.len(), 6, "a person's own is not counted");
    for claim in &claims {
        assert!(
            claim["name"].as_str().unwrap().starts_with("gpu-"),
            "{claim}"
        );
        assert_eq!(
            claim["spec"]["selector"],
            json!({}),
            "it can be replaced by any that fits: {claim}"
        );
        assert_eq!(
            (&claim["status"]["replica"], &claim["status"]["ready"]),
            (&json!(true), &json!(false))
        );
    }
    let by_muster: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM events WHERE kind = 'claim.created' AND actor = 'muster'",
    )
    .fetch_one(&server.app.pool)
    .await
    .unwrap();
    assert_eq!(by_muster, 6);
    let page = admin.get("/pools/gpu").await.expect(200).text;
    assert!(
        page.contains("complete") && page.contains("The pool claims nodes automatically"),
        "{page}"
    );
    assert!(
        admin
            .get("/claims")
            .await
            .expect(200)
            .text
            .contains("by its pool")
    );
}

#[tokio::test]
async fn with_too_few_nodes_it_says_so_once_and_goes_on_when_one_comes() {
    let (server, admin) = with_nodes(2).await;
    assert_eq!(
        admin.get("/v1/pools/gpu").await.body["status"]["replicas"],
        Value::Null
    );
    let told = ask(&admin, 4).await.expect(200).body;
    assert_eq!(
        (
            &told["status"]["replicas"]["coming"],
            &told["status"]["replicas"]["short"]
        ),
        (&json!(2), &json!(2))
    );
    for _ in 0..3 {
        round(&server).await;
    }
    assert_eq!(standing(&admin).await, [4, 2, 0, 2, 0]);
    let told = admin.get("/v1/pools/gpu").await.body["status"]["replicas"].clone();
    assert!(
        told["because"]
            .as_str()
            .unwrap()
            .contains("2 more claims are requested, and no node is available"),
        "{told}"
    );
    assert_eq!(told["short_since"], json!(crate::support::server::START));
    assert!(
        admin
            .get("/pools/gpu")
            .await
            .expect(200)
            .text
            .contains("2 more claims are requested")
    );
    assert_eq!(
        (
            events(&server, "pool.short").await,
            events(&server, "pool.filled").await
        ),
        (1, 0)
    );

    for number in 3..=4 {
        admin
            .put(&format!("/v1/nodes/n{number}"), &fleet::node(number))
            .await
            .expect(201);
        fleet::arrive(&server).await;
        round(&server).await;
    }
    assert_eq!(standing(&admin).await, [4, 4, 0, 0, 0]);
    assert_eq!(
        admin.get("/v1/pools/gpu").await.body["status"]["replicas"]["short_since"],
        Value::Null
    );
    round(&server).await;
    assert_eq!(
        (
            events(&server, "pool.short").await,
            events(&server, "pool.filled").await
        ),
        (1, 1)
    );

    // A removed number ends the shortage as well.
    ask(&admin, 5).await.expect(200);
    round(&server).await;
    ask(&admin, Value::Null).await.expect(200);
    round(&server).await;
    assert_eq!(
        (
            events(&server, "pool.short").await,
            events(&server, "pool.filled").await
        ),
        (2, 2)
    );
}

#[tokio::test]
async fn nothing_is_released_because_a_number_was_lowered() {
    let (server, admin) = with_nodes(5).await;
    ask(&admin, 2).await.expect(200);
    round(&server).await;
    assert_eq!(nodes(&admin).await, ["n1", "n2"]);
    ask(&admin, 3).await.expect(200);
    round(&server).await;
    assert_eq!(nodes(&admin).await, ["n1", "n2", "n3"]);

    ask(&admin, 1).await.expect(200);
    round(&server).await;
    assert_eq!(standing(&admin).await, [1, 3, 0, 0, 2]);
    let told = admin.get("/v1/pools/gpu").await.body["status"]["replicas"]["because"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        told.contains("Lowering the number releases no claim"),
        "{told}"
    );
    let states: Vec<Value> = own(&admin)
        .await
        .iter()
        .map(|claim| claim["status"]["state"].clone())
        .collect();
    assert_eq!(states, vec![json!("bound"); 3]);
    // A person releases a claim, and the pool makes no new claim.
    let name = own(&admin).await[0]["name"].as_str().unwrap().to_owned();
    admin
        .expecting(1)
        .delete(&format!("/v1/claims/{name}"))
        .await
        .expect(202);
    round(&server).await;
    assert_eq!(standing(&admin).await, [1, 2, 0, 0, 1]);

    // A pool without a number makes no claim. With a number, the earlier claims count again.
    ask(&admin, Value::Null).await.expect(200);
    round(&server).await;
    assert_eq!(own(&admin).await.len(), 3, "one of them on its way out");
    ask(&admin, 3).await.expect(200);
    round(&server).await;
    assert_eq!(standing(&admin).await, [3, 3, 0, 0, 0]);
}

#[tokio::test]
async fn a_released_replica_is_replaced_and_an_undo_leaves_a_surplus() {
    let mut world = World::start(3).await;
    world.settle().await;
    ask(&world.admin, 1).await.expect(200);
    round(&world.server).await;
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(
        world.admin.get("/v1/pools/gpu").await.body["status"]["replicas"]["in_service"],
        1
    );
    let first = own(&world.admin).await[0]["name"]
        .as_str()
        .unwrap()
        .to_owned();

    world
        .admin
        .expecting(1)
        .delete(&format!("/v1/claims/{first}"))
        .await
        .expect(202);
    world.until("n1", "wiping").await;
    round(&world.server).await;
    assert_eq!(
        nodes(&world.admin).await,
        ["n1", "n2"],
        "not the one whose disks are kept"
    );
    assert_eq!(standing(&world.admin).await, [1, 1, 0, 0, 0]);
    world
        .admin
        .post(&format!("/v1/claims/{first}/undo"), &json!({}))
        .await
        .expect(202);
    round(&world.server).await;
    world.settle().await;
    assert_eq!(standing(&world.admin).await, [1, 2, 0, 0, 1]);
    for name in ["n1", "n2"] {
        assert_eq!(world.state(name).await, "in_service", "{name}");
    }
    world.check().await;

    // The node of a final release is wiped before the next claim.
    world
        .admin
        .expecting(1)
        .delete(&format!("/v1/claims/{first}?erase_now=true"))
        .await
        .expect(202);
    ask(&world.admin, 3).await.expect(200);
    round(&world.server).await;
    assert_eq!(standing(&world.admin).await, [3, 2, 0, 1, 0]);
    world.settle().await;
    let wiped = world.machine("n1", |machine| {
        machine.log.iter().filter(|done| done.act == "wipe").count()
    });
    assert_eq!((world.state("n1").await.as_str(), wiped), ("available", 1));
    round(&world.server).await;
    world.settle().await;
    assert_eq!(standing(&world.admin).await, [3, 3, 0, 0, 0]);
    world.check().await;
}

#[tokio::test]
async fn people_who_claim_at_the_same_time_get_the_other_nodes() {
    let (server, admin) = with_nodes(8).await;
    ask(&admin, 5).await.expect(200);
    let mut people = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let admin = admin.clone();
        let body = json!({ "spec": { "pool": "gpu", "selector": {} } });
        people.spawn(async move { admin.post("/v1/claims", &body).await.status });
        let app = server.app.clone();
        people.spawn(async move { replicas::round(&app, FIRST).await.map(|_| 0).unwrap() });
    }
    let mine = people
        .join_all()
        .await
        .into_iter()
        .filter(|status| *status == 201)
        .count();
    round(&server).await;
    let made = own(&admin).await.len();
    assert_eq!(made + mine, 8, "every node is claimed, once");
    assert!(made <= 5, "{made}");
    let [wanted, claimed, coming, short, surplus] = standing(&admin).await;
    assert_eq!((wanted, coming, surplus), (5, 0, 0));
    assert_eq!((claimed, short), (made as u64, 5 - made as u64));
}

#[tokio::test]
async fn only_what_is_free_fits_and_lies_at_the_clusters_site_is_claimed() {
    let (server, admin) = with_nodes(5).await;
    admin
        .put("/v1/sites/far", &json!({ "spec": {} }))
        .await
        .expect(201);
    let mut other = fleet::profile();
    other["spec"]["model"] = json!("other");
    admin
        .put("/v1/hardware_profiles/other", &other)
        .await
        .expect(201);
    admin
        .patch(
            "/v1/pools/gpu",
            &json!({ "spec": { "profile": "virtual" } }),
        )
        .await
        .expect(200);
    for sql in [
        "UPDATE nodes SET protected = true WHERE name = 'n1'",
        "UPDATE nodes SET site_id = (SELECT id FROM objects WHERE kind = 'site' AND name = 'far') WHERE name = 'n2'",
        "UPDATE nodes SET profile_id = (SELECT id FROM objects WHERE kind = 'hardware_profile' AND name = 'other') WHERE name = 'n3'",
        "UPDATE nodes SET state = 'maintenance' WHERE name = 'n4'",
    ] {
        sqlx::query(sql).execute(&server.app.pool).await.unwrap();
    }
    ask(&admin, 5).await.expect(200);
    round(&server).await;
    assert_eq!(nodes(&admin).await, ["n5"]);
    assert_eq!(standing(&admin).await, [5, 1, 0, 4, 0]);
    let told = admin.get("/v1/pools/gpu").await.body["status"]["replicas"]["because"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        told.contains(
            "no node with the hardware profile virtual is available at the site of slurm"
        ),
        "{told}"
    );
    // A node of the pool is protected like any other node.
    sqlx::query("UPDATE nodes SET protected = true WHERE name = 'n5'")
        .execute(&server.app.pool)
        .await
        .unwrap();
    let name = own(&admin).await[0]["name"].as_str().unwrap().to_owned();
    assert_eq!(
        admin
            .expecting(1)
            .delete(&format!("/v1/claims/{name}"))
            .await
            .problem()
            .1,
        "protected"
    );
}

#[tokio::test]
async fn a_pool_that_is_removed_meanwhile_leaves_no_claim_behind() {
    let (server, admin) = with_nodes(8).await;
    // A removed pool with a shortage looks for no more nodes.
    let mut asking = fleet::pool();
    asking["spec"]["replicas"] = json!(9);
    asking["spec"]["profile"] = json!("other");
    let mut other = fleet::profile();
    other["spec"]["model"] = json!("other");
    admin
        .put("/v1/hardware_profiles/other", &other)
        .await
        .expect(201);
    admin.put("/v1/pools/lacking", &asking).await.expect(201);
    round(&server).await;
    assert_eq!(events(&server, "pool.short").await, 1);
    admin
        .expecting(1)
        .delete("/v1/pools/lacking")
        .await
        .expect(204);
    round(&server).await;

    asking["spec"]["replicas"] = json!(1);
    asking["spec"]["profile"] = Value::Null;
    let (mut gone, mut kept) = (0, 0);
    for number in 0..8 {
        let path = format!("/v1/pools/p{number}");
        admin.put(&path, &asking).await.expect(201);
        let filled = round(&server);
        let first = admin.expecting(1);
        let removed = first.delete(&path);
        // The future polled first is ahead.
        let removed = match number % 2 {
            0 => tokio::join!(filled, removed).1,
            _ => tokio::join!(removed, filled).0,
        };
        let claims = admin.get(&format!("/v1/claims?pool=p{number}")).await;
        match removed.status {
            204 => gone += usize::from(claims.body["items"].as_array().is_none_or(Vec::is_empty)),
            _ => {
                assert_eq!(removed.problem(), (409, "in_use", ""), "{}", removed.text);
                kept += claims.body["items"].as_array().unwrap().len();
            }
        }
    }
    assert_eq!(gone + kept, 8, "{gone} {kept}");
}

#[tokio::test]
async fn a_plan_and_a_dry_run_tell_what_it_would_claim() {
    let (server, admin) = with_nodes(2).await;
    let mut pool = fleet::pool();
    pool["spec"]["replicas"] = json!(3);
    let mut desired = pool.clone();
    desired["kind"] = json!("pool");
    desired["name"] = json!("gpu");
    let plan = admin
        .post("/v1/plan", &json!({ "objects": [desired] }))
        .await
        .expect(200)
        .body;
    let told = &plan["objects"][0];
    assert_eq!(
        (&plan["effect"], &told["begins"], &told["claims"]),
        (&json!("reinstall"), &json!(true), &json!(2))
    );
    assert_eq!(
        (&told["nodes"], &told["node_count"]),
        (&json!(["n1", "n2"]), &json!(2))
    );
    assert!(!told["gates"].as_array().unwrap().is_empty());
    let dry = admin
        .put("/v1/pools/gpu?dry_run=true", &pool)
        .await
        .expect(200)
        .body;
    assert_eq!(
        (
            &dry["status"]["replicas"]["coming"],
            &dry["status"]["replicas"]["short"]
        ),
        (&json!(2), &json!(1))
    );
    round(&server).await;
    assert!(own(&admin).await.is_empty(), "only told");
    admin.put("/v1/pools/gpu", &pool).await.expect(200);
    let again = admin
        .post("/v1/plan", &json!({ "objects": [told_of("gpu", &pool)] }))
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&again["effect"], &again["objects"][0]["change"]),
        (&json!("none"), &json!("none")),
        "{again}"
    );

    for (wrong, status, pointer) in [
        (json!(10_001), 422, "/spec/replicas"),
        (json!(-1), 400, "/spec/replicas"),
    ] {
        let refused = ask(&admin, wrong).await;
        assert_eq!(
            (refused.status, refused.problem().2),
            (status, pointer),
            "{}",
            refused.text
        );
    }
    assert_eq!(ask(&admin, "3").await.status, 400);
    ask(&admin, 10_000).await.expect(200);
    let read = admin.get("/v1/pools/gpu").await.expect(200).body;
    assert_eq!(read["spec"]["replicas"], 10_000);
}

fn told_of(name: &str, body: &Value) -> Value {
    let mut desired = body.clone();
    desired["kind"] = json!("pool");
    desired["name"] = json!(name);
    desired
}

#[tokio::test]
async fn whoever_asks_for_replicas_may_claim_any_node_of_the_site() {
    let (server, admin) = with_nodes(2).await;
    let token = async |name: &str, scope: Value| {
        let body =
            json!({ "name": name, "role": "automation", "expires_in_s": 3600, "scope": scope });
        let made = admin.post("/v1/tokens", &body).await.expect(201).body;
        server.with(Some(made["secret"].as_str().unwrap().to_owned()))
    };
    let of_pool = token("of-pool", json!({ "pool": "gpu" })).await;
    let of_site = token("of-site", json!({ "site": "lab" })).await;
    let refused = ask(&of_pool, 1).await;
    assert_eq!(refused.problem().1, "forbidden", "{}", refused.text);
    assert!(
        refused
            .text
            .contains("claim.create for the whole of that site"),
        "{}",
        refused.text
    );
    ask(&of_site, 2).await.expect(200);
    // A lower number begins no claim.
    ask(&of_pool, 1).await.expect(200);
    assert_eq!(ask(&of_pool, 2).await.status, 403);
    round(&server).await;
    // The first node by name without a lock is taken, and the other node is left.
    let left = match nodes(&admin).await.as_slice() {
        [taken] if taken == "n1" => "n2",
        [taken] if taken == "n2" => "n1",
        other => panic!("one replica, on {other:?}"),
    };
    let hidden = json!({ "objects": [told_of("gpu", &json!({ "spec": { "image": "debian-12", "stack": "base", "suite": "smoke",
        "cluster": "slurm", "replicas": 2 } }))] });
    let plan = of_site.post("/v1/plan", &hidden).await.expect(200).body;
    assert_eq!(plan["objects"][0]["nodes"], json!([left]), "{plan}");
}

#[tokio::test]
async fn a_database_that_was_put_back_claims_nothing_until_somebody_has_looked() {
    let (server, admin) = with_nodes(2).await;
    ask(&admin, 2).await.expect(200);
    let mut conn = server.app.pool.acquire().await.unwrap();
    let now = server.app.clock.now();
    let witness = Witness::of_replica(EventId::new(), "a server remembers more");
    muster_server::engine::caution::notice(&mut conn, &witness, now)
        .await
        .unwrap();
    round(&server).await;
    assert_eq!(standing(&admin).await, [2, 0, 2, 0, 0]);
    let told = admin.get("/v1/pools/gpu").await.body["status"]["replicas"]["because"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(told.contains("muster caution confirm"), "{told}");
    let caution = admin.get("/v1/caution").await.expect(200).body["caution"]["id"].clone();
    admin
        .post(
            "/v1/caution/confirm",
            &json!({ "id": caution, "note": "looked" }),
        )
        .await
        .expect(200);
    round(&server).await;
    assert_eq!(standing(&admin).await, [2, 2, 0, 0, 0]);
}

/// An agent of a site remembers more than the database.
async fn doubt(server: &Server, site: &str) {
    let site: ObjectId =
        sqlx::query_scalar("SELECT id FROM objects WHERE kind = 'site' AND name = $1")
            .bind(site)
            .fetch_one(&server.app.pool)
            .await
            .unwrap();
    let witness = Witness {
        id: uuid::Uuid::now_v7(),
        site: Some(site),
        agent: None,
        heard: Some(EventId::new()),
        proved: false,
        because: "an agent remembers more",
    };
    let mut conn = server.app.pool.acquire().await.unwrap();
    muster_server::engine::caution::notice(&mut conn, &witness, server.app.clock.now())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_caution_of_one_site_stops_the_claims_of_that_site_alone() {
    let (server, admin) = with_nodes(2).await;
    let empty = json!({ "spec": {} });
    admin.put("/v1/sites/elsewhere", &empty).await.expect(201);
    doubt(&server, "elsewhere").await;
    ask(&admin, 1).await.expect(200);
    round(&server).await;
    assert_eq!(standing(&admin).await, [1, 1, 0, 0, 0]);
    doubt(&server, "lab").await;
    ask(&admin, 2).await.expect(200);
    round(&server).await;
    assert_eq!(standing(&admin).await, [2, 1, 1, 0, 0]);
}

#[tokio::test]
async fn many_are_made_a_few_at_a_time_and_one_pool_keeps_no_other_waiting() {
    let (server, admin) = with_nodes(25).await;
    ask(&admin, 24).await.expect(200);
    let mut second = fleet::pool();
    second["spec"]["replicas"] = json!(1);
    admin.put("/v1/pools/second", &second).await.expect(201);
    round(&server).await;
    assert_eq!(standing(&admin).await, [24, 20, 4, 0, 0]);
    assert_eq!(
        admin.get("/v1/claims?pool=second").await.body["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    round(&server).await;
    assert_eq!(standing(&admin).await, [24, 24, 0, 0, 0]);
    assert_eq!(events(&server, "pool.short").await, 0, "it never was");
}
