//! Targets out of the caller's sight, compared with missing targets.

use reqwest::Method;
use serde_json::{Value, json};

use super::{declare_world, manual, operator_in, pool_on};
use crate::support::server::Server;

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
    let far = operator_in(&server, &admin, "site", "far").await;
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
