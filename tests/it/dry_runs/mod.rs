//! `?dry_run=true`: the same refusals and the same read scope as the real write, and an unchanged
//! database. A documented write missing here fails the test.

mod declared; // Writes of declared kinds
mod writes; // Every documented write

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use self::writes::list_writes;
use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

/// Returns every row of every table, as text.
pub(crate) async fn dump(server: &Server) -> String {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1",
    )
    .fetch_all(&server.app.pool)
    .await
    .unwrap();
    let mut dump = String::new();
    for table in tables {
        let rows = format!(
            "SELECT coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') FROM {table} t"
        );
        let rows: String = sqlx::query_scalar(sqlx::AssertSqlSafe(rows))
            .fetch_one(&server.app.pool)
            .await
            .unwrap();
        dump.push_str(&format!("{table}\n{rows}\n"));
    }
    dump
}

/// A write of an operation, and the expected status of the answer.
struct Write {
    operation: &'static str,
    path: String,
    body: Value,
    status: u16,
}

fn write(operation: &'static str, path: impl Into<String>, body: Value, status: u16) -> Write {
    Write {
        operation,
        path: path.into(),
        body,
        status,
    }
}

fn role_binding() -> Value {
    json!({ "spec": { "subject": "group:infra", "role": "operator" } })
}

fn webhook() -> Value {
    json!({ "spec": { "url": "https://hooks.example.org/", "topics": ["*"],
                      "secret": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" } })
}

/// Builds a fleet with an object for each write: a free node, a claimed node, and a release waiting
/// for a second person. Returns the ids of the approval, the token and the operation.
async fn fleet(server: &Server, admin: &Caller) -> [String; 3] {
    fleet::declare_pool(admin).await;
    admin
        .patch(
            "/v1/pools/gpu",
            &json!({ "spec": { "network_profile": "bonded", "maintenance_window": "nights" } }),
        )
        .await
        .expect(200);
    let credential = json!({ "spec": { "purpose": "adopt", "secret": "key" } });
    admin
        .put("/v1/credentials/root", &credential)
        .await
        .expect(201);
    admin.put("/v1/webhooks/ops", &webhook()).await.expect(201);
    let monitor = fleet::monitor();
    let path = "/v1/monitors/errors";
    admin.put(path, &monitor).await.expect(201);
    let (path, key) = ("/v1/signing_keys/release", fleet::signing_key());
    admin.put(path, &key).await.expect(201);
    admin
        .put("/v1/role_bindings/infra", &role_binding())
        .await
        .expect(201);
    fleet::available(server, admin, 3).await;
    for number in 2..=3 {
        let body = json!({ "name": format!("c{number}"), "spec": { "pool": "gpu", "node": format!("n{number}") } });
        admin.post("/v1/claims", &body).await.expect(201);
    }
    admin
        .post("/v1/sites/lab/agents", &json!({ "name": "first" }))
        .await
        .expect(201);
    let body =
        json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600, "releases_per_hour": 1 });
    let token = admin.post("/v1/tokens", &body).await.expect(201);
    admin
        .patch(
            "/v1/pools/gpu",
            &json!({ "spec": { "releases_per_hour": 0 } }),
        )
        .await
        .expect(200);
    assert_eq!(
        admin.expecting(1).delete("/v1/claims/c3").await.problem().1,
        "second_person"
    );
    admin
        .patch(
            "/v1/pools/gpu",
            &json!({ "spec": { "releases_per_hour": null } }),
        )
        .await
        .expect(200);
    let approvals = admin.get("/v1/approvals").await.expect(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let node = admin.get("/v1/nodes/n2").await.expect(200);
    [
        text(&approvals.body["items"][0]["id"]),
        text(&token.body["token"]["id"]),
        text(&node.body["status"]["operation"]),
    ]
}

/// Sends the write as documented. Removals and `replace_claim` get `If-Match: *`, for any version
/// of the object.
async fn send(caller: &Caller, write: &Write, query: &str) -> Reply {
    let removes = method(write.operation) == Method::DELETE || write.operation == "replace_claim";
    let caller = if removes {
        caller.header("if-match", "*")
    } else {
        caller.clone()
    };
    send_for(&caller, write, query).await
}

fn method(operation: &str) -> Method {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let method = description["paths"]
        .as_object()
        .unwrap()
        .values()
        .find_map(|item| {
            let found = item
                .as_object()
                .unwrap()
                .iter()
                .find(|(_, known)| known["operationId"] == operation);
            found.map(|(method, _)| method.to_uppercase().parse::<Method>().unwrap())
        });
    method.unwrap_or_else(|| panic!("{operation} is not documented"))
}

async fn send_for(caller: &Caller, write: &Write, query: &str) -> Reply {
    let method = method(write.operation);
    let body = match &write.body {
        Value::Null => Vec::new(),
        Value::String(bytes) => bytes.clone().into_bytes(),
        body => body.to_string().into_bytes(),
    };
    let path = format!("{}{query}", write.path);
    caller
        .header("content-type", "application/json")
        .header("idempotency-key", "k")
        .send(method, &path, body)
        .await
}

#[tokio::test]
async fn a_dry_run_of_every_write_leaves_nothing() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let writes = list_writes(&fleet(&server, &admin).await);
    let before = dump(&server).await;
    for write in &writes {
        let told = send(&admin, write, "?dry_run=true").await;
        assert_eq!(
            told.status, write.status,
            "{}: {}",
            write.operation, told.text
        );
        let (success, marked) = (told.status < 300, told.header("muster-dry-run") == "true");
        assert_eq!(
            success, marked,
            "{}: an answer that only tells says so",
            write.operation
        );
        assert!(
            told.header("location").is_empty(),
            "{}: it leads to what is not there",
            write.operation
        );
        assert!(dump(&server).await == before, "{} wrote", write.operation);
    }
    let files = std::fs::read_dir(server.app.blobs.join("sha256"))
        .unwrap()
        .count();
    assert_eq!(files, 0, "a blob stays");

    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let documented: BTreeSet<&str> = description["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|item| item.as_object().unwrap())
        .filter(|(method, _)| !matches!(method.as_str(), "get" | "head"))
        .map(|(_, operation)| operation["operationId"].as_str().unwrap())
        .filter(|name| *name != "make_plan")
        .collect();
    let tried: BTreeSet<&str> = writes.iter().map(|write| write.operation).collect();
    assert_eq!(tried, documented, "a write that is not tried here");
}

#[tokio::test]
async fn a_dry_run_that_is_mistyped_is_not_done() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let site = json!({ "spec": {} });
    for word in ["dryrun=true", "dry-run=true", "dry%5Frun=true", "dry_run=1"] {
        let reply = admin.put(&format!("/v1/sites/s1?{word}"), &site).await;
        assert_eq!(reply.status, 400, "{word}: {}", reply.text);
    }
    assert!(
        admin.put("/v1/sites/s1?dry_run=true", &site).await.status < 300,
        "or it proves nothing"
    );
    assert_eq!(admin.get("/v1/sites/s1").await.status, 404);
}

#[tokio::test]
async fn what_is_removed_is_removed_as_it_was_read() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let writes = list_writes(&fleet(&server, &admin).await);
    let mut tried = 0;
    for write in writes
        .iter()
        .filter(|write| method(write.operation) == Method::DELETE && write.status != 404)
    {
        tried += 1;
        assert_eq!(
            send_for(&admin, write, "").await.problem().0,
            428,
            "{}",
            write.operation
        );
        let stale = send_for(&admin.expecting(99), write, "").await;
        assert_eq!(stale.problem().0, 412, "{}", write.operation);
    }
    assert!(tried > 14, "{tried} removals");
}

#[tokio::test]
async fn a_dry_run_tells_what_it_costs_and_is_no_easier_than_the_write() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet(&server, &admin).await;
    let plan = admin
        .post("/v1/nodes/n1/actions/inspect?dry_run=true", &json!({}))
        .await
        .expect(200);
    assert_eq!(plan.body["effect"], "reboot");
    let plan = admin
        .expecting(1)
        .delete("/v1/claims/c2?dry_run=true&erase_now=true")
        .await
        .expect(200);
    assert_eq!(plan.body["effect"], "wipe");
    assert_eq!(
        admin.delete("/v1/claims/c2?dry_run=true").await.problem().0,
        428
    );
    assert_eq!(
        admin
            .post("/v1/nodes/n2/actions/wipe?dry_run=true", &json!({}))
            .await
            .problem(),
        (409, "state", "")
    );
    let viewer = server.caller(muster_api::tokens::Role::Viewer).await;
    assert_eq!(
        viewer
            .post("/v1/nodes/n1/actions/wipe?dry_run=true", &json!({}))
            .await
            .status,
        403
    );
    assert_eq!(
        admin
            .put("/v1/sites/b?dry_run=maybe", &json!({ "spec": {} }))
            .await
            .problem(),
        (400, "invalid_request", "dry_run")
    );
    assert_eq!(admin.get("/v1/sites?dry_run=true").await.problem().0, 400);
    // A dry run stores no idempotency key: the real write with the same key is not a replay.
    let keyed = admin.header("idempotency-key", "one");
    let body = json!({ "name": "c1", "spec": { "pool": "gpu", "node": "n1" } });
    keyed
        .post("/v1/claims?dry_run=true", &body)
        .await
        .expect(201);
    assert_eq!(
        keyed
            .post("/v1/claims", &body)
            .await
            .expect(201)
            .header("idempotency-replayed"),
        ""
    );
}
