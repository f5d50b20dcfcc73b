//! Rows as the version before stored them: an array in the place of a whole spec or of an object inside of it, and no spec at all.

use axum::body::Body;
use axum::http::Request;
use muster_server::intents::revisions::catch_up;
use serde_json::{Value, json};
use sqlx::PgPool;
use tower::ServiceExt as _;

use super::{Kind, world};
use crate::simulated::World;
use crate::support::agents::in_process;
use crate::support::fleet;
use crate::support::server::{Caller, Server};

const SECRET: &str = "not-to-be-seen";

/// The table that has a kind's rows.
fn table(kind: &str) -> &'static str {
    match kind {
        "node" => "nodes",
        "claim" => "claims",
        _ => "objects",
    }
}

/// Puts a spec into a row, as no version does any more.
async fn store(pool: &PgPool, kind: &str, name: &str, spec: &Value) {
    let of_kind = match table(kind) {
        "objects" => format!("kind = '{kind}' AND"),
        _ => String::new(),
    };
    let statement = format!(
        "UPDATE {} SET spec = $1 WHERE {of_kind} name = $2",
        table(kind)
    );
    let done = sqlx::query(sqlx::AssertSqlSafe(statement))
        .bind(spec)
        .bind(name)
        .execute(pool)
        .await
        .unwrap();
    assert_eq!(done.rows_affected(), 1, "{kind} {name}");
}

/// A spec with an array of its values in its place, without its first object that is nested, and none at all.
fn wrongly(spec: &Value) -> Vec<Value> {
    let members = spec.as_object().unwrap();
    let mut wrong: Vec<Value> = vec![
        members.values().cloned().collect::<Vec<_>>().into(),
        Value::Null,
        json!([SECRET]),
    ];
    if let Some((name, nested)) = members.iter().find(|(_, member)| member.is_object()) {
        let mut spec = spec.clone();
        let values = nested.as_object().unwrap().values().cloned();
        spec[name] = values.collect::<Vec<_>>().into();
        wrong.push(spec);
    }
    wrong
}

#[tokio::test]
async fn a_spec_that_is_stored_wrongly_is_read_listed_repaired_and_removed() {
    let (server, admin) = world().await;
    let pool = &server.app.pool;
    for kind in Kind::all() {
        let path = kind.find_or_make(&admin).await;
        let right = admin.get(&path).await.expect(200).body;
        let name = right["name"].as_str().unwrap();
        for wrong in wrongly(&right["spec"]) {
            let what = format!("{path} as {wrong}");
            let secret = match kind.has_secret() {
                true => json!(["bmc", "root", SECRET]),
                false => wrong.clone(),
            };
            store(pool, kind.word, name, &secret).await;
            let read = admin.get(&path).await.expect(200);
            let faults = read.body["spec_faults"].as_array();
            assert!(
                faults.is_some_and(|faults| !faults.is_empty()),
                "{what}: {}",
                read.text
            );
            let list = admin
                .get(&format!("/v1/{}", kind.collection))
                .await
                .expect(200);
            let listed = list.body["items"].as_array().unwrap();
            assert!(listed.iter().any(|item| item["name"] == name), "{what}");
            if kind.has_secret() {
                assert!(!read.text.contains(SECRET), "{what}: {}", read.text);
                assert!(!list.text.contains(SECRET), "{what}: {}", list.text);
            }
            let labels = admin.patch(&path, &json!({ "labels": { "a": "b" } })).await;
            assert_eq!(labels.status, 400, "{what}: a patch that repairs nothing");

            let body = json!({ "spec": right["spec"] });
            let plan =
                json!({ "objects": [{ "kind": kind.word, "name": name, "spec": right["spec"] }] });
            let plan = admin.post("/v1/plan", &plan).await.expect(200);
            assert_eq!(plan.body["objects"][0]["blockers"], json!([]), "{what}");
            if kind.has_secret() {
                assert!(!plan.text.contains(SECRET), "{what}: {}", plan.text);
            }
            let repaired = admin.patch(&path, &body).await;
            assert_eq!(repaired.status, 200, "PATCH {what}: {}", repaired.text);
            assert_eq!(repaired.body["spec"], right["spec"], "{what}");
            assert_eq!(repaired.body.get("spec_faults"), None, "{what}");
            if kind.method == "put" {
                store(pool, kind.word, name, &secret).await;
                let repaired = admin.put(&path, &body).await;
                assert_eq!(repaired.status, 200, "PUT {what}: {}", repaired.text);
                assert_eq!(repaired.body["spec"], right["spec"], "{what}");
            }
        }
    }
}

#[tokio::test]
async fn an_object_that_is_stored_wrongly_is_removed() {
    let (server, admin) = world().await;
    for kind in Kind::all().filter(|kind| kind.method == "put") {
        let path = format!("/v1/{}/doomed", kind.collection);
        let mut example = kind.example.clone();
        match kind.word {
            "subnet" => example["spec"]["network"] = json!("10.99.0.0/24"),
            "node" => example = fleet::node(9),
            _ => {}
        }
        if kind.word == "subnet" {
            example["spec"]["agent_address"] = json!("10.99.0.1");
        }
        admin.put(&path, &example).await.expect(201);
        if kind.word == "node" {
            fleet::arrive(&server).await;
        }
        store(
            &server.app.pool,
            kind.word,
            "doomed",
            &json!(["lab", {}, 1]),
        )
        .await;
        let forced = admin.header("if-match", "*");
        let removed = forced.delete(&path).await;
        assert_eq!(removed.status, 204, "{path}: {}", removed.text);
    }
}

/// What an object refers to is stored wrongly: the write says so, and is no error of the server.
#[tokio::test]
async fn a_wrong_row_refuses_only_what_builds_on_it() {
    let (server, admin) = world().await;
    let pool = &server.app.pool;
    let mut profiled = fleet::pool();
    profiled["spec"]["profile"] = json!("virtual");
    admin.put("/v1/pools/gpu", &profiled).await.expect(200);
    for (kind, name) in [
        ("subnet", "prov"),
        ("stack", "base"),
        ("image", "debian-12"),
        ("suite", "smoke"),
        ("cluster", "slurm"),
        ("hardware_profile", "virtual"),
        ("pool", "gpu"),
        ("site", "lab"),
        ("rack", "r1"),
    ] {
        let spec: Value =
            sqlx::query_scalar("SELECT spec FROM objects WHERE kind = $1 AND name = $2")
                .bind(kind)
                .bind(name)
                .fetch_one(pool)
                .await
                .unwrap();
        store(pool, kind, name, &Value::Null).await;
        for (_, collection) in muster_api::kind::COLLECTIONS {
            let list = admin.get(&format!("/v1/{collection}")).await;
            assert_eq!(
                list.status, 200,
                "{collection} beside {kind} {name}: {}",
                list.text
            );
        }
        for (path, body) in [
            ("/v1/nodes/n9", fleet::node(9)),
            ("/v1/pools/gpu", fleet::pool()),
            ("/v1/racks/r2", fleet::rack()),
            ("/v1/stacks/other", fleet::stack()),
            ("/v1/suites/smoke", fleet::suite()),
            ("/v1/hardware_profiles/virtual", fleet::profile()),
        ] {
            let dry = format!("{path}?dry_run=true");
            let written = admin.put(&dry, &body).await;
            if path == format!("/v1/{kind}s/{name}") {
                assert_eq!(written.status, 200, "{path} repairs: {}", written.text);
            }
            assert!(
                written.status < 500,
                "{path} beside {kind} {name}: {}",
                written.text
            );
        }
        store(pool, kind, name, &spec).await;
    }
}

/// A claim installs the copies of its revision, whatever became of the objects since.
#[tokio::test]
async fn a_claim_names_the_revision_that_cannot_be_read() {
    let mut world = World::start(1).await;
    world.settle().await;
    for (kind, name) in [("stack", "base"), ("image", "debian-12")] {
        let pool = &world.server.app.pool;
        let spec: Value =
            sqlx::query_scalar("SELECT spec FROM objects WHERE kind = $1 AND name = $2")
                .bind(kind)
                .bind(name)
                .fetch_one(pool)
                .await
                .unwrap();
        store(pool, kind, name, &Value::Null).await;
        world
            .admin
            .post(
                "/v1/claims?dry_run=true",
                &json!({ "spec": { "pool": "gpu", "node": "n1" } }),
            )
            .await
            .expect(201);
        catch_up(&world.server.app).await.unwrap();
        let newest =
            world.admin.get("/v1/pools/gpu").await.expect(200).body["status"]["newest_revision"]
                .clone();
        let promote = async |revision: &Value| {
            let body = json!({ "revision": revision });
            let path = "/v1/pools/gpu/actions/promote-revision";
            world.admin.post(path, &body).await
        };
        assert_eq!(promote(&newest).await.problem().1, "unreadable");
        let read = world
            .admin
            .get(&format!("/v1/pools/gpu/revisions/{newest}"))
            .await;
        assert_eq!(read.problem().1, "unreadable", "{}", read.text);
        let detail = read.body["detail"].as_str().unwrap();
        assert!(
            detail.contains(&format!("The {kind} of revision {newest}")),
            "{detail}"
        );
        store(pool, kind, name, &spec).await;
        catch_up(&world.server.app).await.unwrap();
    }
    world.claim("n1").await.expect(201);
}

/// An agent of the site that said hello, as a function of its calls.
struct Agent {
    router: axum::Router,
    token: String,
}

impl Agent {
    async fn enrol(server: &Server, admin: &Caller) -> Self {
        let body = json!({ "name": "lab-agent" });
        let made = admin.post("/v1/sites/lab/agents", &body).await.expect(201);
        Self {
            router: in_process(&server.app),
            token: made.body["token"].as_str().unwrap().to_owned(),
        }
    }

    async fn call(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::post(format!("/agent/v1/{path}"))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.token))
            .body(Body::from(body.to_string()))
            .unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20)
            .await
            .unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

#[tokio::test]
async fn the_agents_of_a_site_go_on_without_the_subnet_that_is_stored_wrongly() {
    let (server, admin) = world().await;
    let mut other = fleet::subnet();
    other["spec"]["network"] = json!("10.99.0.0/24");
    other["spec"]["agent_address"] = json!("10.99.0.1");
    admin.put("/v1/subnets/other", &other).await.expect(201);
    let agent = Agent::enrol(&server, &admin).await;
    let hello = json!({ "protocol": 1, "version": "0", "instance": "a" });
    let (status, welcome) = agent.call("hello", &hello).await;
    assert_eq!(status, 200);
    let poll = json!({ "epoch": welcome["epoch"], "have": null, "wait_s": 0 });
    let names = |config: &Value| -> Vec<String> {
        let subnets = config["subnets"].as_array().unwrap().iter();
        subnets
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let (_, config) = agent.call("site", &poll).await;
    assert_eq!(names(&config), ["other", "prov"]);
    let array = json!([
        "lab",
        "10.99.0.0/24",
        "10.99.0.1",
        null,
        [],
        "proxy",
        null,
        []
    ]);
    for wrong in [array, json!(null), json!({ "site": "lab" })] {
        store(&server.app.pool, "subnet", "other", &wrong).await;
        let (status, config) = agent.call("site", &poll).await;
        assert_eq!(status, 200, "beside a subnet stored as {wrong}");
        assert_eq!(
            names(&config),
            ["prov"],
            "beside a subnet stored as {wrong}"
        );
        let told = admin.get("/v1/subnets/other").await.expect(200);
        assert!(
            told.body["spec_faults"][0]["pointer"].is_string(),
            "{}",
            told.text
        );
    }
    admin.put("/v1/subnets/other", &other).await.expect(200);
    let (_, config) = agent.call("site", &poll).await;
    assert_eq!(names(&config), ["other", "prov"]);
}

#[tokio::test]
async fn an_agents_body_is_read_as_strictly() {
    let (server, admin) = world().await;
    let agent = Agent::enrol(&server, &admin).await;
    let (status, problem) = agent.call("hello", &json!([1, "0", "a"])).await;
    assert_eq!((status, &problem["code"]), (400, &json!("invalid_request")));
    let (status, problem) = agent.call("site", &json!([1, null, 0])).await;
    assert_eq!((status, &problem["code"]), (400, &json!("invalid_request")));
}

/// The statements of the migration, over rows as the version before stored them.
#[tokio::test]
async fn the_upgrade_takes_secrets_out_of_specs_that_are_arrays() {
    let (server, admin) = world().await;
    let hook = json!({ "spec": {
        "url": "https://hooks.example.org/muster", "topics": ["node.*"],
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    } });
    admin.put("/v1/webhooks/hook", &hook).await.expect(201);
    let pool = &server.app.pool;
    store(pool, "credential", "bmc", &json!(["bmc", "root", SECRET])).await;
    let array = json!([
        "https://hooks.example.org/muster",
        ["node.*"],
        null,
        false,
        null,
        SECRET
    ]);
    store(pool, "webhook", "hook", &array).await;
    let upgrade = include_str!("../../../migrations/0043_secrets.sql");
    sqlx::raw_sql(upgrade).execute(pool).await.unwrap();
    let credential = admin.get("/v1/credentials/bmc").await.expect(200);
    assert_eq!(
        credential.body["spec"],
        json!({ "purpose": "bmc", "user": "root" })
    );
    assert_eq!(credential.body["status"]["set"], true);
    let webhook = admin.get("/v1/webhooks/hook").await.expect(200);
    let spec = json!({ "url": "https://hooks.example.org/muster", "topics": ["node.*"], "enabled": false });
    assert_eq!(webhook.body["spec"], spec);
    for read in [credential, webhook] {
        assert_eq!(read.body.get("spec_faults"), None);
    }
    let stored: Vec<String> = sqlx::query_scalar("SELECT spec::text FROM objects")
        .fetch_all(pool)
        .await
        .unwrap();
    assert!(!stored.iter().any(|spec| spec.contains(SECRET)));
}

/// `null` is a member that is absent, for what SQL looks for as well.
#[tokio::test]
async fn a_webhook_whose_site_is_null_is_one_of_the_whole_fleet() {
    let (server, admin) = world().await;
    let hook = json!({ "spec": {
        "url": "https://hooks.example.org/muster", "topics": ["audit.sealed"], "site": null,
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    } });
    admin.put("/v1/webhooks/hook", &hook).await.expect(201);
    let mut conn = server.app.pool.acquire().await.unwrap();
    let topics = ["audit.sealed".to_owned()];
    assert!(
        muster_server::db::webhooks::is_wanted(&mut conn, &topics)
            .await
            .unwrap()
    );
}
