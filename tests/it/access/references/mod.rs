//! Both ends of every reference. A writer needs the verb of the write at each new target, and at
//! the place of the object before the write and after it.

mod hidden; // Targets out of sight
mod labels; // Labels of the writer on foreign objects
mod moves; // Objects moved to a new place, or out of the writer's reach
mod walk; // Every kind and every reference, within every scope

use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Caller, Server};

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
        ("/v1/sites/far", fleet::site()),
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

/// An operator within a place, for example the pool `gpu`.
async fn operator_in(server: &Server, admin: &Caller, place: &str, name: &str) -> Caller {
    let token = format!("{place}-{name}");
    within(server, admin, "operator", &token, &json!({ place: name })).await
}
