//! The walk of every kind and every reference within every scope. Kinds and references are the
//! program's own: a kind or a reference without an answer here fails the test.

use std::collections::BTreeSet;

use muster_api::kind::COLLECTIONS;
use muster_server::access;
use muster_server::http::references;
use reqwest::Method;
use serde_json::{Value, json};

use super::{declare_world, manual, of_team, subnet_of, within};
use crate::dry_runs::dump;
use crate::support::fleet;
use crate::support::server::Server;

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

fn webhook() -> Value {
    json!({ "spec": { "url": "https://hooks.example.org/", "topics": ["*"], "site": "lab",
                      "secret": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" } })
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
        creation(
            "signing_key",
            "/v1/signing_keys/new",
            fleet::signing_key(),
            "f",
        ),
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
