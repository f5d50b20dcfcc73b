//! Both ends of every reference. A writer needs the verb of the write at each new target, and at
//! the place of the object before the write and after it. Kinds and references are the program's
//! own: a kind or a reference without an answer here fails the test.

use std::collections::BTreeSet;

use muster_api::kind::COLLECTIONS;
use muster_core::values::Secret;
use muster_server::access;
use muster_server::auth::passwords::{self, Lane};
use muster_server::auth::sessions;
use muster_server::http::references;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::dry_runs::dump;
use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

/// Whether objects of a kind have a place. Writers of other kinds need the verb over the whole
/// fleet, and so at every target.
fn is_placed(kind: &str) -> bool {
    access::has_place(kind) || ["node", "claim"].contains(&kind)
}

/// A write with a new reference, and the letters of the scopes that may write.
struct Row {
    kind: &'static str,
    pointer: &'static str,
    path: &'static str,
    body: Value,
    may: &'static str,
}

fn row(
    kind: &'static str,
    pointer: &'static str,
    path: &'static str,
    spec: Value,
    may: &'static str,
) -> Row {
    let mut body = json!({});
    body["spec"] = spec;
    Row {
        kind,
        pointer,
        path,
        body,
        may,
    }
}

/// A new object of a kind, and the letters of the scopes that may create the object.
struct Creation {
    kind: &'static str,
    path: &'static str,
    body: Value,
    may: &'static str,
}

fn creation(kind: &'static str, path: &'static str, body: Value, may: &'static str) -> Creation {
    let body = of_team(body);
    Creation {
        kind,
        path,
        body,
        may,
    }
}

/// The scopes of the walkers, each with a letter. All lie in the site `lab`.
fn scopes() -> [(char, Value); 10] {
    [
        ('f', json!({})),
        ('s', json!({ "site": "lab" })),
        ('p', json!({ "pool": "gpu" })),
        ('r', json!({ "rack": "r1" })),
        ('q', json!({ "rack": "bare" })),
        ('l', json!({ "labels": { "team": "a" } })),
        ('P', json!({ "site": "lab", "pool": "gpu" })),
        ('R', json!({ "site": "lab", "rack": "r1" })),
        ('Q', json!({ "site": "lab", "rack": "bare" })),
        ('L', json!({ "site": "lab", "labels": { "team": "a" } })),
    ]
}

fn of_team(mut body: Value) -> Value {
    body["labels"] = json!({ "team": "a" });
    body
}

fn in_site(mut body: Value, site: &str) -> Value {
    body["spec"]["site"] = json!(site);
    body
}

fn subnet_of(site: &str, number: u8) -> Value {
    json!({ "spec": {
        "site": site, "network": format!("10.{number}.0.0/24"), "agent_address": format!("10.{number}.0.1"), "mode": "off",
    }})
}

fn pool_on(cluster: &str) -> Value {
    let mut pool = fleet::pool();
    pool["spec"]["cluster"] = json!(cluster);
    pool
}

fn other_stack() -> Value {
    let mut stack = fleet::stack();
    stack["spec"]["image"] = json!("other");
    stack
}

fn webhook() -> Value {
    json!({ "spec": { "url": "https://hooks.example.org/", "topics": ["*"], "site": "lab",
                      "secret": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" } })
}

fn manual(site: &str, rack: &str, mac: Value) -> Value {
    let power = json!({ "manual": { "person": "ada" } });
    let mut node =
        json!({ "spec": { "site": site, "rack": rack, "profile": "virtual", "power": power } });
    node["spec"]["macs"] = Value::Array(vec![mac]);
    node
}

/// The site `lab` with a node of the team `a`, and a second object for each reference, in the site
/// and in the site `far`.
async fn declare_world(server: &Server) -> Caller {
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let credential = json!({ "spec": { "purpose": "bmc", "user": "root", "secret": "calvin" } });
    for (path, body) in [
        ("/v1/racks/r2", of_team(fleet::rack())),
        ("/v1/racks/bare", of_team(fleet::rack())),
        ("/v1/subnets/spare", of_team(subnet_of("lab", 81))),
        ("/v1/clusters/slurm2", of_team(fleet::cluster())),
        ("/v1/hardware_profiles/other", fleet::profile()),
        ("/v1/network_profiles/other", fleet::network_profile()),
        ("/v1/maintenance_windows/other", fleet::maintenance_window()),
        ("/v1/suites/other", fleet::suite()),
        ("/v1/images/other", fleet::image()),
        ("/v1/stacks/other", other_stack()),
        ("/v1/credentials/other", credential),
        ("/v1/sites/far", json!({ "spec": {} })),
        ("/v1/racks/r9", in_site(fleet::rack(), "far")),
        ("/v1/subnets/far-net", subnet_of("far", 82)),
        ("/v1/clusters/far", in_site(fleet::cluster(), "far")),
        ("/v1/pools/far", pool_on("far")),
        (
            "/v1/nodes/m1",
            manual("far", "r9", json!({ "mac": "52:54:00:00:00:f1" })),
        ),
    ] {
        admin.put(path, &body).await.expect(201);
    }
    fleet::available(server, &admin, 1).await;
    let team = json!({ "labels": { "team": "a" } });
    for path in [
        "/v1/sites/lab",
        "/v1/racks/r1",
        "/v1/pools/gpu",
        "/v1/nodes/n1",
    ] {
        admin.patch(path, &team).await.expect(200);
    }
    admin
}

async fn within(server: &Server, admin: &Caller, role: &str, name: &str, scope: &Value) -> Caller {
    let body = json!({ "name": name, "role": role, "scope": scope, "expires_in_s": 3600 });
    let made = admin.post("/v1/tokens", &body).await.expect(201);
    server.with(made.body["secret"].as_str().map(str::to_owned))
}

fn place_rows() -> Vec<Row> {
    let moved = || json!({ "site": "far" });
    vec![
        row(
            "site",
            "/spec/maintenance_window",
            "/v1/sites/lab",
            json!({ "maintenance_window": "other" }),
            "fslL",
        ),
        row("rack", "/spec/site", "/v1/racks/bare", moved(), "f"),
        row("subnet", "/spec/site", "/v1/subnets/spare", moved(), "f"),
        row("cluster", "/spec/site", "/v1/clusters/slurm2", moved(), "f"),
    ]
}

/// A pool may refer to another cluster of the site, and to any object without a place.
fn pool_rows() -> Vec<Row> {
    let other = |pointer, spec: Value, may| row("pool", pointer, "/v1/pools/gpu", spec, may);
    let software = || json!({ "image": "other", "stack": "other" });
    let anywhere = "fsplPL";
    vec![
        other("/spec/cluster", json!({ "cluster": "slurm2" }), "fsPL"),
        other("/spec/cluster", json!({ "cluster": "far" }), "f"),
        other("/spec/image", software(), anywhere),
        other("/spec/stack", software(), anywhere),
        other("/spec/suite", json!({ "suite": "other" }), anywhere),
        other("/spec/profile", json!({ "profile": "other" }), anywhere),
        other(
            "/spec/health/sweep",
            json!({ "health": { "sweep": "other" } }),
            anywhere,
        ),
        other(
            "/spec/health/smoke",
            json!({ "health": { "smoke": "other" } }),
            anywhere,
        ),
        other(
            "/spec/network_profile",
            json!({ "network_profile": "other" }),
            anywhere,
        ),
        other(
            "/spec/maintenance_window",
            json!({ "maintenance_window": "other" }),
            anywhere,
        ),
    ]
}

fn node_rows() -> Vec<Row> {
    let other = |pointer, spec: Value, may| row("node", pointer, "/v1/nodes/n1", spec, may);
    let mac = "52:54:00:00:00:01";
    let bmc = json!({ "address": "10.78.0.1", "credential": "other" });
    vec![
        other(
            "/spec/site",
            json!({ "site": "far", "rack": "r9", "macs": [{ "mac": mac }] }),
            "f",
        ),
        other("/spec/rack", json!({ "rack": "r2" }), "fsL"),
        other("/spec/profile", json!({ "profile": "other" }), "fsrlRL"),
        other(
            "/spec/macs/*/subnet",
            json!({ "macs": [{ "mac": mac, "subnet": "spare" }] }),
            "fsRL",
        ),
        // A credential needs `credential.use` over the whole fleet.
        other(
            "/spec/power/redfish/bmc/credential",
            json!({ "power": { "redfish": { "bmc": bmc.clone() } } }),
            "f",
        ),
        other(
            "/spec/power/ipmi/bmc/credential",
            json!({ "power": { "redfish": null, "ipmi": { "bmc": bmc } } }),
            "f",
        ),
    ]
}

/// A claim needs `claim.create` at the pool and at the node, as stored.
fn claim_rows() -> Vec<Row> {
    let claim = |pointer, pool: &str, node: &str, may| {
        let spec = json!({ "pool": pool, "node": node });
        row("claim", pointer, "/v1/claims", spec, may)
    };
    vec![
        claim("/spec/pool", "gpu", "n1", "fslL"),
        claim("/spec/pool", "far", "n1", "f"),
        claim("/spec/node", "gpu", "n1", "fslL"),
        claim("/spec/node", "gpu", "m1", "f"),
    ]
}

fn list_rows() -> Vec<Row> {
    let rows = [place_rows(), pool_rows(), node_rows(), claim_rows()];
    rows.into_iter().flatten().collect()
}

/// A new object of each kind in the site `lab`, labelled by the writer. A claim is a row.
fn list_creations() -> Vec<Creation> {
    let credential = json!({ "spec": { "purpose": "stack", "secret": "key" } });
    let binding = json!({ "spec": { "subject": "user:eve", "role": "admin" } });
    let mac = json!({ "mac": "52:54:00:00:00:f2", "subnet": "prov" });
    vec![
        creation("site", "/v1/sites/new", json!({ "spec": {} }), "f"),
        creation("rack", "/v1/racks/new", fleet::rack(), "fs"),
        creation("subnet", "/v1/subnets/new", subnet_of("lab", 83), "fs"),
        creation("cluster", "/v1/clusters/new", fleet::cluster(), "fs"),
        creation("pool", "/v1/pools/new", fleet::pool(), "fs"),
        creation("node", "/v1/nodes/new", manual("lab", "r1", mac), "fsR"),
        creation(
            "hardware_profile",
            "/v1/hardware_profiles/new",
            fleet::profile(),
            "f",
        ),
        creation(
            "network_profile",
            "/v1/network_profiles/new",
            fleet::network_profile(),
            "f",
        ),
        creation(
            "maintenance_window",
            "/v1/maintenance_windows/new",
            fleet::maintenance_window(),
            "f",
        ),
        creation("monitor", "/v1/monitors/new", fleet::monitor(), "f"),
        creation("credential", "/v1/credentials/new", credential, "f"),
        creation("image", "/v1/images/new", fleet::image(), "f"),
        creation("stack", "/v1/stacks/new", fleet::stack(), "f"),
        creation("suite", "/v1/suites/new", fleet::suite(), "f"),
        creation("role_binding", "/v1/role_bindings/new", binding, "f"),
        creation("webhook", "/v1/webhooks/new", webhook(), "f"),
    ]
}

#[test]
fn every_kind_and_every_reference_has_an_answer() {
    let table = references();
    let known: BTreeSet<&str> = table.iter().map(|(kind, _)| *kind).collect();
    let kinds: BTreeSet<&str> = COLLECTIONS.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(known, kinds, "name each kind in list_references");
    let (rows, creations) = (list_rows(), list_creations());
    for (kind, pointers) in &table {
        let created = creations.iter().any(|one| one.kind == *kind);
        assert!(
            created || *kind == "claim",
            "who may create a {kind}? say so in list_creations"
        );
        for (pointer, _) in pointers.iter().filter(|_| is_placed(kind)) {
            let is_row = |row: &Row| row.kind == *kind && row.pointer == *pointer;
            assert!(
                rows.iter().any(is_row),
                "who may change {pointer} of a {kind}? say so in list_rows"
            );
        }
    }
    for row in &rows {
        let pointers = table.iter().find(|(kind, _)| *kind == row.kind);
        let pointers = pointers.map(|(_, pointers)| *pointers).unwrap_or_default();
        assert!(
            pointers.iter().any(|(pointer, _)| *pointer == row.pointer),
            "{} of a {} is no reference",
            row.pointer,
            row.kind
        );
    }
    for one in creations.iter().filter(|one| !is_placed(one.kind)) {
        assert_eq!(one.may, "f", "{} has no place", one.kind);
    }
}

/// A call of the walk.
struct Call {
    name: String,
    method: Method,
    path: &'static str,
    body: Value,
    may: &'static str,
}

fn list_calls() -> Vec<Call> {
    let rows = list_rows().into_iter().map(|row| Call {
        name: format!("{} {} {}", row.kind, row.pointer, row.body),
        method: match row.kind {
            "claim" => Method::POST,
            _ => Method::PATCH,
        },
        path: row.path,
        body: row.body,
        may: row.may,
    });
    let creations = list_creations().into_iter().map(|one| Call {
        name: format!("new {}", one.kind),
        method: Method::PUT,
        path: one.path,
        body: one.body,
        may: one.may,
    });
    rows.chain(creations).collect()
}

#[tokio::test]
async fn every_reference_is_asked_at_both_ends_within_every_scope() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let mut walkers = Vec::new();
    for (letter, scope) in scopes() {
        let name = format!("walker-{}", walkers.len());
        let walker = within(&server, &admin, "admin", &name, &scope).await;
        // The server records the first use of a token, so the use must precede the comparison.
        walker.get("/v1/nodes").await.expect(200);
        walkers.push((letter, walker));
    }
    let (calls, before) = (list_calls(), dump(&server).await);
    let mut wrong = Vec::new();
    for call in &calls {
        for (letter, walker) in walkers.iter().filter(|(one, _)| !call.may.contains(*one)) {
            let reply = walker
                .json(call.method.clone(), call.path, &call.body)
                .await;
            if ![403, 404, 422].contains(&reply.status) {
                wrong.push(format!(
                    "{letter} is not refused: {} {}",
                    call.name, reply.text
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(dump(&server).await == before, "a refused write left rows");
    for call in &calls {
        for (letter, walker) in walkers.iter().filter(|(one, _)| call.may.contains(*one)) {
            let path = format!("{}?dry_run=true", call.path);
            let reply = walker.json(call.method.clone(), &path, &call.body).await;
            if reply.status >= 300 {
                wrong.push(format!("{letter} is refused: {} {}", call.name, reply.text));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The status of a refusal, and the pointer of the first fault.
fn refusal(reply: &Reply) -> (u16, &str) {
    let (status, _, pointer) = reply.problem();
    (status, pointer)
}

#[tokio::test]
async fn a_pool_is_not_moved_to_another_site_by_the_operator_of_the_pool() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let all = within(&server, &admin, "operator", "all", &json!({})).await;
    let own = within(
        &server,
        &admin,
        "operator",
        "own",
        &json!({ "pool": "gpu" }),
    )
    .await;
    let moved = json!({ "spec": { "cluster": "far" } });
    let dry = "/v1/pools/gpu?dry_run=true";
    all.patch(dry, &moved).await.expect(200);
    for reply in [
        own.patch("/v1/pools/gpu", &moved).await,
        own.put("/v1/pools/gpu", &pool_on("far")).await,
    ] {
        assert_eq!(refusal(&reply), (422, "/spec/cluster"), "{}", reply.text);
    }
    let plan = |cluster: &str| {
        let mut object = of_team(pool_on(cluster));
        object["kind"] = json!("pool");
        object["name"] = json!("gpu");
        json!({ "objects": [object] })
    };
    let told = all.post("/v1/plan", &plan("far")).await.expect(200).body;
    assert_eq!(told["objects"][0]["blockers"], json!([]), "{told}");
    let told = own.post("/v1/plan", &plan("far")).await.expect(200).body;
    let blocker = &told["objects"][0]["blockers"][0];
    assert_eq!(blocker["pointer"], "/spec/cluster", "{told}");
    // The stored reference leads out of the scope too, and is not asked again.
    let noted = json!({ "annotations": { "shift": "night" } });
    own.patch("/v1/pools/gpu", &noted).await.expect(200);
    let told = own.post("/v1/plan", &plan("slurm")).await.expect(200).body;
    assert_eq!(told["objects"][0]["blockers"], json!([]), "{told}");
    assert_eq!(
        admin.get("/v1/pools/gpu").await.body["spec"]["cluster"],
        "slurm"
    );
}

#[tokio::test]
async fn a_label_of_ones_own_gives_no_place_in_another_site() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    // The strongest role: only the place is missing.
    let all = within(&server, &admin, "admin", "all", &json!({})).await;
    let team = json!({ "labels": { "team": "a" } });
    let own = within(&server, &admin, "admin", "own", &team).await;
    let mac = json!({ "mac": "52:54:00:aa:bb:cc", "subnet": "far-net", "address": "10.82.0.50" });
    for (path, body) in [
        ("/v1/nodes/sneak", manual("far", "r9", mac)),
        ("/v1/racks/sneak", in_site(fleet::rack(), "far")),
        ("/v1/pools/sneak", pool_on("far")),
    ] {
        let body = of_team(body);
        let reply = own.put(path, &body).await;
        assert!([403, 422].contains(&reply.status), "{path}: {}", reply.text);
        admin.get(path).await.expect(404);
        all.put(path, &body).await.expect(201);
    }
}

#[tokio::test]
async fn a_rack_is_not_moved_to_another_site_by_the_operator_of_the_rack() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let all = within(&server, &admin, "operator", "all", &json!({})).await;
    let own = within(
        &server,
        &admin,
        "operator",
        "own",
        &json!({ "rack": "bare" }),
    )
    .await;
    let reply = own
        .put("/v1/racks/bare", &in_site(fleet::rack(), "far"))
        .await;
    assert_eq!(refusal(&reply), (422, "/spec/site"), "{}", reply.text);
    let moved = json!({ "spec": { "site": "far" } });
    all.patch("/v1/racks/bare", &moved).await.expect(200);
}

#[tokio::test]
async fn an_object_is_not_written_out_of_the_reach_of_its_writer() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let site = within(
        &server,
        &admin,
        "operator",
        "site",
        &json!({ "site": "lab" }),
    )
    .await;
    let rack = within(
        &server,
        &admin,
        "operator",
        "rack",
        &json!({ "rack": "r1" }),
    )
    .await;
    let labels = json!({ "labels": { "team": "a" } });
    let team = within(&server, &admin, "operator", "team", &labels).await;
    let (path, dry) = ("/v1/nodes/n1", "/v1/nodes/n1?dry_run=true");
    let noted = json!({ "labels": { "shelf": "3" } });
    team.patch(path, &noted).await.expect(200);
    rack.patch(path, &noted).await.expect(200);
    for (writer, body) in [
        (&team, json!({ "labels": { "team": null } })),
        (&team, json!({ "labels": { "team": "b" } })),
        (
            &rack,
            json!({ "spec": { "rack": null, "rack_unit": null } }),
        ),
    ] {
        site.patch(dry, &body).await.expect(200);
        assert_eq!(writer.patch(path, &body).await.status, 403, "{body}");
    }
    // A label brings no object of another place into reach.
    assert_eq!(team.patch("/v1/nodes/m1", &labels).await.status, 404);
    let node = admin.get(path).await.expect(200).body;
    assert_eq!(
        (&node["labels"]["team"], &node["spec"]["rack"]),
        (&json!("a"), &json!("r1"))
    );
}

#[tokio::test]
async fn an_object_stays_in_its_place_while_nodes_or_claims_are_inside() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let moved = json!({ "spec": { "site": "far" } });
    let onto = json!({ "spec": { "cluster": "slurm2" } });
    let dry = |path: &str| format!("{path}?dry_run=true");
    let stays = async |path: &str, body: &Value, count: &str| {
        let reply = admin.patch(path, body).await;
        assert_eq!(reply.problem(), (409, "in_use", ""), "{}", reply.text);
        let detail = reply.body["detail"].as_str().unwrap();
        assert!(
            detail.contains(&format!(" has {count}, so its ")),
            "{detail}"
        );
    };
    for path in ["/v1/racks/bare", "/v1/subnets/spare", "/v1/clusters/slurm"] {
        admin.patch(&dry(path), &moved).await.expect(200);
    }
    admin.patch(&dry("/v1/pools/gpu"), &onto).await.expect(200);
    stays("/v1/racks/r1", &moved, "1 node").await;
    stays("/v1/subnets/prov", &moved, "1 node").await;
    let claim = json!({ "name": "held", "spec": { "pool": "gpu", "node": "n1" } });
    admin.post("/v1/claims", &claim).await.expect(201);
    stays("/v1/pools/gpu", &onto, "1 open claim").await;
    stays("/v1/clusters/slurm", &moved, "1 open claim").await;
    // The rack is empty after the move of the node.
    let rack = json!({ "rack": "r2" });
    let path = "/v1/nodes/n1/actions/move";
    admin.post(path, &rack).await.expect(202);
    admin.patch("/v1/racks/r1", &moved).await.expect(200);
    stays("/v1/racks/r2", &moved, "1 node").await;
    // A rack of an older version may be in another site than its nodes, and follows the nodes.
    let left = "UPDATE nodes SET site_id = (SELECT id FROM objects WHERE kind = 'site' AND name = 'far') WHERE name = 'n1'";
    sqlx::query(left).execute(&server.app.pool).await.unwrap();
    admin.patch("/v1/racks/r2", &moved).await.expect(200);
}

#[tokio::test]
async fn a_move_needs_its_verb_at_the_new_place_also_as_a_plan() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let site = within(
        &server,
        &admin,
        "operator",
        "site",
        &json!({ "site": "lab" }),
    )
    .await;
    let rack = within(
        &server,
        &admin,
        "operator",
        "rack",
        &json!({ "rack": "r1" }),
    )
    .await;
    let path = "/v1/nodes/n1/actions/move";
    let dry = "/v1/nodes/n1/actions/move?dry_run=true";
    let away = json!({ "site": "far", "rack": "r9" });
    let beside = json!({ "rack": "r2" });
    admin.post(dry, &away).await.expect(200);
    site.post(dry, &beside).await.expect(200);
    for at in [dry, path] {
        let reply = site.post(at, &away).await;
        assert_eq!(refusal(&reply), (422, "/spec/site"), "{}", reply.text);
        let reply = rack.post(at, &beside).await;
        assert_eq!(refusal(&reply), (422, "/spec/rack"), "{}", reply.text);
    }
    // Another unit of the same rack is no new reference.
    let unit = json!({ "rack": "r1", "rack_unit": 9 });
    rack.post(path, &unit).await.expect(202);
    site.post(path, &beside).await.expect(202);
}

/// Signs in a person with a role in each of two sites.
async fn person_of_two_sites(server: &Server, admin: &Caller) -> Caller {
    let (app, secret) = (&server.app, || Secret::new("open sesame"));
    let hash = passwords::hash(secret()).await.unwrap();
    let mut conn = app.pool.acquire().await.unwrap();
    muster_server::db::users::insert(&mut conn, "bob", &hash, "guest", app.clock.now())
        .await
        .unwrap();
    for (site, role) in [("lab", "operator"), ("far", "automation")] {
        let scope = json!({ "site": site });
        let binding = json!({ "spec": { "subject": "user:bob", "role": role, "scope": scope } });
        let path = format!("/v1/role_bindings/{site}");
        admin.put(&path, &binding).await.expect(201);
    }
    let headers = HeaderMap::new();
    let cookie = sessions::sign_in(app, &headers, "bob", secret(), Lane::Stranger)
        .await
        .unwrap()
        .unwrap();
    let value = format!("{}={}", cookie.name(), cookie.value());
    server.nobody().header("cookie", &value)
}

/// An operator of one site and automation of another has the verbs of automation in the other site.
#[tokio::test]
async fn a_verb_of_one_site_is_not_carried_into_another() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let window = json!({ "spec": { "undo_window_s": 600 } });
    admin.patch("/v1/pools/gpu", &window).await.expect(200);
    let bob = person_of_two_sites(&server, &admin).await;
    let (path, dry) = ("/v1/pools/gpu", "/v1/pools/gpu?dry_run=true");
    let moved = json!({ "spec": { "cluster": "far" } });
    let shorter = json!({ "spec": { "undo_window_s": 0 } });
    let both = json!({ "spec": { "cluster": "far", "undo_window_s": 0 } });
    for body in [&moved, &shorter] {
        bob.patch(dry, body).await.expect(200);
    }
    admin.patch(dry, &both).await.expect(200);
    bob.patch(path, &both).await.expect(403);
    let away = json!({ "site": "far", "rack": "r9" });
    let node = "/v1/nodes/n1/actions/move";
    admin
        .post(&format!("{node}?dry_run=true"), &away)
        .await
        .expect(200);
    bob.post(node, &away).await.expect(403);
}

/// A call with the name of an object out of sight, in the site `lab`.
struct Hidden {
    method: Method,
    path: &'static str,
    body: fn(&str) -> Value,
    name: &'static str,
    status: u16,
}

fn hidden(
    method: Method,
    path: &'static str,
    body: fn(&str) -> Value,
    name: &'static str,
    status: u16,
) -> Hidden {
    Hidden {
        method,
        path,
        body,
        name,
        status,
    }
}

fn claim_node(node: &str) -> Value {
    json!({ "spec": { "pool": "far", "node": node } })
}

fn claim_for(pool: &str) -> Value {
    json!({ "spec": { "pool": pool, "node": "m1" } })
}

fn roll_out(pool: &str) -> Value {
    json!({ "pool": pool, "revision": 1 })
}

fn adopt_for(pool: &str) -> Value {
    json!({ "pool": pool, "credential": "other" })
}

fn node_on(subnet: &str) -> Value {
    let mac = json!({ "mac": "52:54:00:00:00:f3", "subnet": subnet });
    manual("far", "r9", mac)
}

#[tokio::test]
async fn a_target_out_of_sight_reads_as_a_missing_one() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let far = within(
        &server,
        &admin,
        "operator",
        "far",
        &json!({ "site": "far" }),
    )
    .await;
    let (claims, nodes) = ("/v1/claims?dry_run=true", "/v1/nodes/x?dry_run=true");
    far.post(claims, &claim_node("m1")).await.expect(201);
    far.put(nodes, &node_on("far-net")).await.expect(201);
    let held = json!({ "spec": { "pool": "gpu", "node": "n1" } });
    admin.post("/v1/claims", &held).await.expect(201);
    let adopt = "/v1/nodes/m1/actions/adopt";
    for call in [
        hidden(Method::POST, "/v1/claims", claim_node, "n1", 422),
        hidden(Method::POST, "/v1/claims", claim_for, "gpu", 422),
        hidden(Method::POST, "/v1/rollouts", roll_out, "gpu", 404),
        hidden(Method::PUT, "/v1/nodes/x", node_on, "prov", 422),
        hidden(Method::PUT, "/v1/pools/x", pool_on, "slurm", 422),
        hidden(Method::POST, adopt, adopt_for, "gpu", 403),
    ] {
        let told = async |name: &str| {
            let body = (call.body)(name);
            let reply = far.json(call.method.clone(), call.path, &body).await;
            let told = reply.expect(call.status).body;
            let text = format!("{} {}", told["detail"], told["errors"]);
            text.replace(&format!("{name}\\\""), "NAME\\\"")
        };
        assert_eq!(told(call.name).await, told("zz").await, "{}", call.path);
    }
}

/// Labels are no place: an object outside of every site is written with the verb over the whole
/// fleet, also in a plan.
#[tokio::test]
async fn a_label_reaches_no_object_outside_of_every_site() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let labels = json!({ "labels": { "team": "a" } });
    admin.patch("/v1/images/other", &labels).await.expect(200);
    let team = within(&server, &admin, "admin", "team", &labels).await;
    let binding = json!({ "subject": "user:eve", "role": "admin" });
    let image = fleet::image()["spec"].clone();
    for (kind, name, spec) in [
        ("image", "other", image.clone()),
        ("image", "mine", image),
        ("role_binding", "mine", binding),
    ] {
        let object = json!({ "kind": kind, "name": name, "labels": { "team": "a" }, "spec": spec });
        let plan = json!({ "objects": [object] });
        let told = admin.post("/v1/plan", &plan).await.expect(200).body;
        assert_eq!(told["objects"][0]["blockers"], json!([]), "{told}");
        let told = team.post("/v1/plan", &plan).await.expect(200).body;
        let blocker = &told["objects"][0]["blockers"][0];
        assert_eq!(blocker["code"], "forbidden", "{told}");
        let path = format!("/v1/{kind}s/{name}");
        let body = json!({ "labels": { "team": "a" }, "spec": object_spec(&plan) });
        team.put(&path, &body).await.expect(403);
    }
}

fn object_spec(plan: &Value) -> &Value {
    &plan["objects"][0]["spec"]
}
