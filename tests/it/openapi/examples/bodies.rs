//! Examples of request bodies, sent to a server as dry runs, or as a plan.

use serde_json::{Value, json};

use super::{example, id, operations};
use crate::support::fleet;
use crate::support::server::{Caller, Server};

/// Operations with a well-formed but refused example, and the status. The object or state named by
/// the example is missing on the test's server.
const REFUSED: [(&str, u16); 14] = [
    ("replace_parts", 422),
    ("confirm_caution", 409),
    ("redeliver_event", 422),
    ("run_pairs", 422),
    ("put_blob", 422),
    ("match_node", 422),
    ("start_rollout", 409),
    ("halt_rollout", 409),
    ("resume_rollout", 409),
    ("promote_rollout", 409),
    ("adjust_rollout", 409),
    ("skip_rollout_node", 409),
    ("retry_rollout_node", 409),
    ("requeue_rollout_node", 409),
];

/// Declares the objects named by the examples, and brings the nodes n1 to n3 into the states that
/// the examples need.
async fn declare(server: &Server, admin: &Caller, description: &Value) {
    for (name, path) in [
        ("put_site", "/v1/sites/lab"),
        ("put_rack", "/v1/racks/r1"),
        ("put_subnet", "/v1/subnets/prov"),
        ("put_hardware_profile", "/v1/hardware_profiles/virtual"),
        ("put_network_profile", "/v1/network_profiles/bonded"),
        ("put_maintenance_window", "/v1/maintenance_windows/nights"),
        ("put_monitor", "/v1/monitors/errors"),
        ("put_signing_key", "/v1/signing_keys/release"),
        ("put_credential", "/v1/credentials/bmc"),
        ("put_image", "/v1/images/debian-12"),
        ("put_stack", "/v1/stacks/base"),
        ("put_suite", "/v1/suites/smoke"),
        ("put_cluster", "/v1/clusters/slurm"),
        ("put_pool", "/v1/pools/gpu"),
        ("put_webhook", "/v1/webhooks/ops"),
        ("put_role_binding", "/v1/role_bindings/infra"),
        ("put_node", "/v1/nodes/n1"),
    ] {
        admin
            .put(path, &example(description, name))
            .await
            .expect(201);
    }
    admin
        .put(
            "/v1/credentials/root",
            &json!({ "spec": { "purpose": "adopt", "secret": "key" } }),
        )
        .await
        .expect(201);
    for number in 2..=3 {
        admin
            .put(&format!("/v1/nodes/n{number}"), &fleet::node(number))
            .await
            .expect(201);
    }
    fleet::arrive(server).await;
    admin
        .post(
            "/v1/claims",
            &json!({ "name": "held", "spec": { "pool": "gpu", "node": "n3" } }),
        )
        .await
        .expect(201);
    admin
        .post("/v1/rollouts", &json!({ "pool": "gpu", "revision": 1 }))
        .await
        .expect(201);
    // Adoption requires the state `discovered`.
    sqlx::query("UPDATE nodes SET state = 'discovered' WHERE name = 'n2'")
        .execute(&server.app.pool)
        .await
        .unwrap();
}

/// Returns the path of an operation with the parameters replaced by names of declared objects.
fn fill(route: &str, operation: &Value) -> String {
    let name = match id(operation).split_once('_').map_or("", |(_, noun)| noun) {
        "site" => "lab",
        "rack" => "r1",
        "subnet" => "prov",
        "hardware_profile" => "virtual",
        "network_profile" => "bonded",
        "maintenance_window" => "nights",
        "monitor" => "errors",
        "signing_key" => "release",
        "credential" => "bmc",
        "image" => "debian-12",
        "stack" => "base",
        "suite" => "smoke",
        "cluster" => "slurm",
        "role_binding" => "infra",
        "pool" => "gpu",
        _ => "ops",
    };
    let path = route
        .replace("{name}", name)
        .replace("{site}", "lab")
        .replace("{pool}", "gpu");
    let path = path
        .replace("{claim}", "held")
        .replace("{rollout}", "gpu-1")
        .replace("{action}", "quarantine")
        .replace("{hex}", &"0".repeat(64));
    path.replace(
        "{node}",
        if id(operation) == "adopt_node" {
            "n2"
        } else {
            "n1"
        },
    )
}

#[tokio::test]
async fn every_body_has_an_example_that_is_taken() {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let server = Server::start().await;
    let admin = server.admin().await;
    declare(&server, &admin, &description).await;
    let mut tried = 0;
    for (route, method, operation) in operations(&description) {
        let Some(contents) = operation["requestBody"]["content"].as_object() else {
            continue;
        };
        let path = fill(route, operation);
        for (media, content) in contents {
            assert!(
                !content["example"].is_null(),
                "{}: {media} has no example",
                id(operation)
            );
            let body = match &content["example"] {
                Value::String(text) => text.clone(),
                body => body.to_string(),
            };
            let caller = match method {
                "put" => admin.header("content-type", media),
                _ => admin.header("content-type", media).header("if-match", "*"),
            };
            let query = if id(operation) == "make_plan" {
                ""
            } else {
                "?dry_run=true"
            };
            let sent = caller
                .send(
                    method.to_uppercase().parse().unwrap(),
                    &format!("{path}{query}"),
                    body.into(),
                )
                .await;
            let refused = REFUSED
                .iter()
                .find(|(known, _)| *known == id(operation))
                .map(|(_, status)| *status);
            let taken = refused.map_or(sent.status < 300, |status| sent.status == status);
            assert!(taken, "{}: {} {}", id(operation), sent.status, sent.text);
            tried += 1;
        }
    }
    assert!(tried > 40, "{tried} bodies");
}
