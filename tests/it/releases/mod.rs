//! Releases by mistake. A person undoes a release while the disks are kept. Releases beyond a
//! person's limit wait for approval.

mod askers; // Rights of the author of a request
mod at_once; // Erasures at once, and the second person
mod erasures; // All erasing actions, under the limit
mod limits; // Limits of a person and of a pool
mod undo; // Undo of a release

use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

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

/// The path of a decision about a request.
fn decision(one: &Value, word: &str) -> String {
    format!("/v1/approvals/{}/{word}", one["id"].as_str().unwrap())
}
