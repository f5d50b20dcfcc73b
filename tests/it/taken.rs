//! A natural key in use. The refusal names the holder to callers with a view of the holder, so a
//! client can continue with the existing object.

use muster_api::tokens::Role;
use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Caller, Server};

const UUID: &str = "4c4c4544-0042-3510-8054-b7c04f4e3332";
/// A serial that is on no label. A parser of the database's message could cut the value.
const SERIAL: &str = "S (1), )=( already exists.";

fn console() -> Value {
    json!({ "tcp": { "address": "10.78.1.1", "port": 7001 } })
}

/// A fleet with a node that has a value for every key.
async fn fleet_of_one() -> (Server, Caller, Value) {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let mut first = fleet::node(1);
    for (member, value) in [
        ("serial", json!(SERIAL)),
        ("smbios_uuid", json!(UUID)),
        ("console", console()),
    ] {
        first["spec"][member] = value;
    }
    let made = admin.put("/v1/nodes/n1", &first).await.expect(201).body;
    let n1 = json!({ "kind": "node", "id": made["id"], "name": "n1", "self": "/v1/nodes/n1" });
    (server, admin, n1)
}

/// Another node with a value of `n1`: the member, the value, the code of the refusal.
fn wanted() -> [(&'static str, Value, &'static str); 6] {
    [
        ("/macs/0/mac", json!("52:54:00:00:00:01"), "mac_taken"),
        ("/serial", json!(SERIAL), "serial_taken"),
        ("/smbios_uuid", json!(UUID), "uuid_taken"),
        ("/console", console(), "console_taken"),
        ("/macs/0/address", json!("10.77.0.11"), "address_taken"),
        (
            "/power/redfish/bmc/address",
            json!("10.78.0.1"),
            "bmc_taken",
        ),
    ]
}

fn with(mut body: Value, pointer: &str, value: Value) -> Value {
    match body["spec"].pointer_mut(pointer) {
        Some(member) => *member = value,
        None => body["spec"][&pointer[1..]] = value,
    }
    body
}

#[tokio::test]
async fn whose_a_key_is_stands_in_the_refusal() {
    let (_server, admin, n1) = fleet_of_one().await;
    let sentence = format!("It is node n1 ({}).", n1["id"].as_str().unwrap());
    for (pointer, value, code) in wanted() {
        let body = with(fleet::node(2), pointer, value);
        for path in ["/v1/nodes/n2", "/v1/nodes/n2?dry_run=true"] {
            let refused = admin.put(path, &body).await;
            assert_eq!(refused.problem(), (409, code, ""), "{}", refused.text);
            assert_eq!(refused.body["existing"], n1, "{}", refused.text);
            assert!(
                refused.body["detail"]
                    .as_str()
                    .unwrap()
                    .ends_with(&sentence),
                "{}",
                refused.text
            );
        }
        let object = json!({ "kind": "node", "name": "n2", "labels": {}, "spec": body["spec"] });
        let plan = admin
            .post("/v1/plan", &json!({ "objects": [object] }))
            .await
            .expect(200)
            .body;
        let blocker = &plan["objects"][0]["blockers"][0];
        assert_eq!(blocker["code"], code, "{plan}");
        assert!(
            blocker["detail"].as_str().unwrap().ends_with(&sentence),
            "{plan}"
        );
    }
    assert_eq!(
        admin.get("/v1/nodes/n2").await.status,
        404,
        "nothing is half-created"
    );
}

#[tokio::test]
async fn names_say_it_too_and_a_claim_by_its_node() {
    let (server, admin, n1) = fleet_of_one().await;
    admin.put("/v1/nodes/n2", &fleet::node(2)).await.expect(201);
    let renamed = admin
        .post("/v1/nodes/n2/actions/rename", &json!({ "name": "n1" }))
        .await;
    assert_eq!(
        (renamed.problem().1, &renamed.body["existing"]),
        ("name_taken", &n1),
        "{}",
        renamed.text
    );

    fleet::arrive(&server).await;
    let claim =
        |name: &str, node: &str| json!({ "name": name, "spec": { "pool": "gpu", "node": node } });
    let made = admin
        .post("/v1/claims", &claim("c1", "n1"))
        .await
        .expect(201)
        .body;
    let c1 = json!({ "kind": "claim", "id": made["id"], "name": "c1", "self": "/v1/claims/c1" });
    for (name, node, code) in [("c2", "n1", "node_claimed"), ("c1", "n2", "name_taken")] {
        let refused = admin.post("/v1/claims", &claim(name, node)).await;
        assert_eq!(
            (refused.problem().1, &refused.body["existing"]),
            (code, &c1),
            "{}",
            refused.text
        );
    }

    let token = json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600 });
    let made = admin.post("/v1/tokens", &token).await.expect(201).body["token"]["id"].clone();
    let existing = admin.post("/v1/tokens", &token).await.expect(409).body["existing"].clone();
    assert_eq!(
        (&existing["kind"], &existing["name"], &existing["id"]),
        (&json!("token"), &json!("ci"), &made)
    );
    // Another person learns only that the name is taken.
    let refused = server
        .caller(Role::Operator)
        .await
        .post("/v1/tokens", &token)
        .await
        .expect(409);
    assert_eq!(
        (refused.problem().1, refused.body.get("existing")),
        ("name_taken", None),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn who_may_not_see_whose_it_is_is_told_that_it_is_taken() {
    let (server, admin, _) = fleet_of_one().await;
    admin.put("/v1/sites/far", &fleet::site()).await.expect(201);
    let token = json!({ "name": "far", "role": "operator", "scope": { "site": "far" }, "expires_in_s": 3600 });
    let made = admin.post("/v1/tokens", &token).await.expect(201).body["secret"]
        .as_str()
        .unwrap()
        .to_owned();
    let far = server.with(Some(made));
    let elsewhere = json!({ "spec": {
        "site": "far", "power": { "manual": { "person": "ada" } }, "macs": [{ "mac": "52:54:00:00:00:02" }],
    }});
    for (pointer, value, code) in wanted().into_iter().take(4) {
        let refused = far
            .put("/v1/nodes/n2", &with(elsewhere.clone(), pointer, value))
            .await;
        assert_eq!(
            (refused.problem(), refused.body.get("existing")),
            ((409, code, ""), None),
            "{}",
            refused.text
        );
        assert!(!refused.text.contains("n1"), "{}", refused.text);
    }
}

#[tokio::test]
async fn a_network_belongs_to_one_subnet_of_a_site() {
    let (_server, admin, _) = fleet_of_one().await;
    let prov = admin.get("/v1/subnets/prov").await.expect(200).body;
    let within = |site: &str, network: &str, agent: &str| {
        let mut body = fleet::subnet();
        body["spec"] =
            json!({ "site": site, "network": network, "agent_address": agent, "mode": "off" });
        body
    };
    for (network, agent) in [
        ("10.77.0.0/24", "10.77.0.1"),
        ("10.77.0.128/25", "10.77.0.129"),
        ("10.0.0.0/8", "10.1.0.1"),
    ] {
        let refused = admin
            .put("/v1/subnets/other", &within("lab", network, agent))
            .await;
        assert_eq!(refused.problem(), (409, "network_taken", ""), "{network}");
        let existing = json!({ "kind": "subnet", "id": prov["id"], "name": "prov", "self": "/v1/subnets/prov" });
        assert_eq!(refused.body["existing"], existing, "{}", refused.text);
    }
    admin
        .put("/v1/sites/far", &json!({ "spec": {} }))
        .await
        .expect(201);
    admin
        .put(
            "/v1/subnets/other",
            &within("far", "10.77.0.0/24", "10.77.0.1"),
        )
        .await
        .expect(201);
    admin
        .put(
            "/v1/subnets/beside",
            &within("lab", "10.77.1.0/24", "10.77.1.1"),
        )
        .await
        .expect(201);
    let moved = json!({ "spec": { "site": "lab" } });
    assert_eq!(
        admin.patch("/v1/subnets/other", &moved).await.problem().1,
        "network_taken"
    );
    admin
        .patch("/v1/subnets/prov", &json!({ "labels": { "a": "b" } }))
        .await
        .expect(200);
}
