//! Rules between declared objects and the nodes that depend on them, from both sides. The changes
//! of the subnet and the MACs are those of the boot cases 14 and 15.

use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

/// Tries to change the spec of an object.
async fn change(admin: &Caller, path: &str, spec: &Value) -> Reply {
    admin.patch(path, &json!({ "spec": spec })).await
}

async fn sql(server: &Server, statement: &'static str) {
    let done = sqlx::query(statement).execute(&server.app.pool).await;
    done.unwrap();
}

/// The plan of one object.
async fn plan(admin: &Caller, kind: &str, name: &str, body: &Value) -> Value {
    let mut object = body.clone();
    object["kind"] = json!(kind);
    object["name"] = json!(name);
    let planned = admin
        .post("/v1/plan", &json!({ "objects": [object] }))
        .await
        .expect(200);
    planned.body["objects"][0].clone()
}

/// A refusal that names the nodes.
#[track_caller]
fn refused(reply: &Reply, names: &str) {
    assert_eq!(reply.problem(), (409, "breaks_nodes", ""), "{}", reply.text);
    assert!(reply.text.contains(names), "{}", reply.text);
}

#[tokio::test]
async fn a_subnet_leaves_the_addresses_to_its_nodes() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    let prov = "/v1/subnets/prov";
    let range = json!({ "first": "10.77.0.200", "last": "10.77.0.220" });
    let other = json!({ "gateway": "10.77.0.254", "dns": ["10.77.0.2"], "dynamic_range": range });
    change(&admin, prov, &other).await.expect(200);

    let elsewhere = json!({ "network": "10.97.0.0/24", "agent_address": "10.97.0.1", "gateway": null, "dns": [], "dynamic_range": null });
    let smaller = json!({ "network": "10.77.0.0/29", "gateway": null, "dynamic_range": null });
    for spec in [
        elsewhere,
        smaller,
        json!({ "gateway": "10.77.0.11" }),
        json!({ "agent_address": "10.77.0.11" }),
        json!({ "dynamic_range": { "first": "10.77.0.10", "last": "10.77.0.20" } }),
    ] {
        refused(
            &change(&admin, prov, &spec).await,
            "1 node: n1 (10.77.0.11 ",
        );
    }
    let mut moved = fleet::subnet();
    moved["spec"]["network"] = json!("10.97.0.0/24");
    moved["spec"]["agent_address"] = json!("10.97.0.1");
    let told = plan(&admin, "subnet", "prov", &moved).await;
    assert_eq!(told["blockers"][0]["code"], "breaks_nodes", "{told}");
    assert_eq!(
        (&told["node_count"], &told["nodes"]),
        (&json!(1), &json!(["n1"]))
    );
    // The same rule at the write of a node.
    for taken in ["10.77.0.254", "10.77.0.210", "10.77.0.1", "10.97.0.9"] {
        let mut node = fleet::node(2);
        node["spec"]["macs"][0]["address"] = json!(taken);
        let told = admin.put("/v1/nodes/n2", &node).await;
        assert_eq!(
            told.problem(),
            (422, "unprocessable", "/spec/macs/0/address")
        );
        assert_eq!(told.body["errors"][0]["code"], "not_free", "{taken}");
    }
}

#[tokio::test]
async fn a_subnet_stored_in_conflict_with_a_node_goes_on() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    sql(
        &server,
        "UPDATE objects SET spec = spec || '{\"gateway\": \"10.77.0.11\"}' WHERE kind = 'subnet'",
    )
    .await;
    let labels = json!({ "labels": { "row": "7" } });
    admin.patch("/v1/nodes/n1", &labels).await.expect(200);
    let prov = "/v1/subnets/prov";
    let servers = json!({ "dns": ["10.77.0.2"] });
    change(&admin, prov, &servers).await.expect(200);
    let worse = json!({ "agent_address": "10.77.0.11" });
    refused(&change(&admin, prov, &worse).await, "n1");
    let mended = json!({ "gateway": null });
    change(&admin, prov, &mended).await.expect(200);
}

#[tokio::test]
async fn a_rack_keeps_the_units_of_its_nodes() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    let mut high = fleet::node(2);
    high["spec"]["rack_unit"] = json!(12);
    admin.put("/v1/nodes/n2", &high).await.expect(201);
    change(&admin, "/v1/racks/r1", &json!({ "units": 12 }))
        .await
        .expect(200);
    let lower = change(&admin, "/v1/racks/r1", &json!({ "units": 11 })).await;
    refused(&lower, "1 node: n2 (unit 12)");
    assert!(!lower.text.contains("n1"), "{}", lower.text);
    high["spec"]["rack_unit"] = json!(13);
    assert_eq!(
        admin.put("/v1/nodes/n2", &high).await.problem(),
        (422, "unprocessable", "/spec/rack_unit")
    );
}

/// A scope with labels may have a rack without all nodes of the rack.
#[tokio::test]
async fn nodes_outside_of_the_read_scope_are_counted_without_names() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    for number in 1..=2 {
        let mut node = fleet::node(number);
        node["spec"]["rack_unit"] = json!(10 + number);
        let path = format!("/v1/nodes/n{number}");
        admin.put(&path, &node).await.expect(201);
    }
    let team = json!({ "labels": { "team": "a" } });
    for path in ["/v1/racks/r1", "/v1/nodes/n1"] {
        admin.patch(path, &team).await.expect(200);
    }
    let token = json!({ "name": "own", "role": "admin", "scope": team, "expires_in_s": 3600 });
    let made = admin.post("/v1/tokens", &token).await.expect(201);
    let own = server.with(made.body["secret"].as_str().map(str::to_owned));
    let r1 = "/v1/racks/r1";
    change(&own, r1, &json!({ "units": 12 })).await.expect(200);
    let lower = change(&own, r1, &json!({ "units": 10 })).await;
    refused(&lower, "2 nodes: n1 (unit 11) and 1 more");
    assert!(!lower.text.contains("n2"), "{}", lower.text);
    // A refused removal names the same nodes.
    let generation = admin.get(r1).await.expect(200).body["generation"].clone();
    let generation = generation.as_i64().unwrap();
    for (caller, named) in [
        (&admin, "by node n1, node n2;"),
        (&own, "by node n1 and further objects;"),
    ] {
        let removal = caller.expecting(generation).delete(r1).await;
        assert_eq!(removal.problem(), (409, "in_use", ""), "{}", removal.text);
        assert!(removal.text.contains(named), "{}", removal.text);
    }
    let mut higher = fleet::rack();
    higher["labels"] = team["labels"].clone();
    for (caller, names) in [(&admin, json!(["n1", "n2"])), (&own, json!(["n1"]))] {
        let told = plan(caller, "rack", "r1", &higher).await;
        assert_eq!(
            (&told["node_count"], &told["nodes"]),
            (&json!(2), &names),
            "{told}"
        );
    }
}

/// A scope with labels may have a site without all nodes of the site.
#[tokio::test]
async fn left_out_nodes_outside_of_the_read_scope_have_no_names() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    for number in 1..=2 {
        let path = format!("/v1/nodes/n{number}");
        admin.put(&path, &fleet::node(number)).await.expect(201);
    }
    let (site, team) = ("/v1/sites/lab", json!({ "labels": { "team": "a" } }));
    for path in [site, "/v1/nodes/n1"] {
        admin.patch(path, &team).await.expect(200);
    }
    let token = json!({ "name": "own", "role": "admin", "scope": team, "expires_in_s": 3600 });
    let made = admin.post("/v1/tokens", &token).await.expect(201);
    let own = server.with(made.body["secret"].as_str().map(str::to_owned));
    let narrower = json!({ "bmc_networks": ["10.78.0.0/25"] });
    change(&own, site, &narrower).await.expect(200);
    let outside = json!({ "bmc_networks": ["10.78.0.128/25"] });
    for (caller, named) in [
        (&admin, "2 nodes: n1 (BMC 10.78.0.1), n2 (BMC 10.78.0.2)."),
        (&own, "2 nodes: n1 (BMC 10.78.0.1) and 1 more."),
    ] {
        refused(&change(caller, site, &outside).await, named);
    }
}

#[tokio::test]
async fn a_node_with_reserved_power_is_written_only_into_a_rack_with_power() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    fleet::available(&server, &admin, 1).await;
    sql(
        &server,
        "UPDATE nodes SET power_reserved_w = 300 WHERE name = 'n1'",
    )
    .await;
    for (rack, watts) in [("strong", 1000), ("weak", 299)] {
        let rack_path = format!("/v1/racks/{rack}");
        let body = json!({ "spec": { "site": "lab", "units": 42, "power_budget_w": watts } });
        admin.put(&rack_path, &body).await.expect(201);
    }
    let mut node = fleet::node(1);
    node["spec"]["rack"] = json!("strong");
    admin.put("/v1/nodes/n1", &node).await.expect(200);
    node["spec"]["rack"] = json!("weak");
    let told = admin.put("/v1/nodes/n1", &node).await;
    assert_eq!(told.problem(), (409, "blocked", ""), "{}", told.text);
    // A lower budget may be the truth about a broken feed. The plan shows the nodes.
    let less = json!({ "spec": { "site": "lab", "units": 42, "power_budget_w": 200 } });
    let told = plan(&admin, "rack", "strong", &less).await;
    assert_eq!(
        (&told["blockers"], &told["nodes"]),
        (&json!([]), &json!(["n1"]))
    );
    admin.put("/v1/racks/strong", &less).await.expect(200);
}

#[tokio::test]
async fn a_credential_in_use_keeps_its_purpose_and_fits_ipmi() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let spare = json!({ "spec": { "purpose": "bmc", "user": "root", "secret": "calvin" } });
    admin.put("/v1/credentials/spare", &spare).await.expect(201);
    let other = json!({ "purpose": "adopt" });
    change(&admin, "/v1/credentials/spare", &other)
        .await
        .expect(200);
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    refused(
        &change(&admin, "/v1/credentials/bmc", &other).await,
        "1 node: n1 (login at the BMC)",
    );
    // A user too long for IPMI is right for Redfish.
    let long = json!({ "user": "seventeen-letters" });
    let short = json!({ "user": "sixteen--letters" });
    change(&admin, "/v1/credentials/bmc", &long)
        .await
        .expect(200);
    change(&admin, "/v1/credentials/bmc", &short)
        .await
        .expect(200);
    let mut by_ipmi = fleet::node(2);
    by_ipmi["spec"]["power"] =
        json!({ "ipmi": { "bmc": { "address": "10.78.0.2", "credential": "bmc" } } });
    admin.put("/v1/nodes/n2", &by_ipmi).await.expect(201);
    let told = change(&admin, "/v1/credentials/bmc", &long).await;
    refused(&told, "1 node: n2 (power by IPMI)");
    let named = json!({ "spec": { "purpose": "bmc", "user": "admin" } });
    let told = plan(&admin, "credential", "bmc", &named).await;
    assert_eq!(
        (&told["node_count"], &told["nodes"]),
        (&json!(2), &json!(["n1", "n2"]))
    );
}

#[tokio::test]
async fn the_plan_of_a_hardware_profile_shows_its_nodes_and_gates() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let mut larger = fleet::profile();
    larger["spec"]["memory_mib"] = json!(3600);
    let told = plan(&admin, "hardware_profile", "virtual", &larger).await;
    assert_eq!(
        (&told["node_count"], &told["gates"]),
        (&json!(0), &json!([]))
    );
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    let told = plan(&admin, "hardware_profile", "virtual", &larger).await;
    assert_eq!(
        (&told["change"], &told["nodes"], &told["blockers"]),
        (&json!("change"), &json!(["n1"]), &json!([]))
    );
}

#[tokio::test]
async fn a_mac_of_no_machine_is_refused_and_a_stored_one_goes_on() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let mut node = fleet::node(2);
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    for mac in [
        "00:00:00:00:00:00",
        "01:00:5e:00:00:01",
        "ff:ff:ff:ff:ff:ff",
    ] {
        node["spec"]["macs"][0]["mac"] = json!(mac);
        let told = admin.put("/v1/nodes/n2", &node).await;
        assert_eq!(
            told.problem(),
            (422, "unprocessable", "/spec/macs/0/mac"),
            "{mac}"
        );
        assert_eq!(told.body["errors"][0]["code"], "no_machine");
    }
    node["spec"]["macs"][0]["mac"] = json!("52:54:00:9b:00:02");
    admin.put("/v1/nodes/n2", &node).await.expect(201);

    for statement in [
        "UPDATE node_macs SET mac = '00:00:00:00:00:00' WHERE node_id = (SELECT id FROM nodes WHERE name = 'n1')",
        "UPDATE nodes SET spec = jsonb_set(spec, '{macs,0,mac}', '\"00:00:00:00:00:00\"') WHERE name = 'n1'",
    ] {
        sql(&server, statement).await;
    }
    let labels = json!({ "labels": { "row": "7" } });
    admin.patch("/v1/nodes/n1", &labels).await.expect(200);
    let mut worse = fleet::node(1);
    worse["spec"]["macs"] =
        json!([{ "mac": "00:00:00:00:00:00", "subnet": "prov" }, { "mac": "ff:ff:ff:ff:ff:ff" }]);
    let told = admin.put("/v1/nodes/n1", &worse).await;
    assert_eq!(told.problem(), (422, "unprocessable", "/spec/macs/1/mac"));
}

#[tokio::test]
async fn a_subnet_without_machines_is_refused_and_a_stored_one_goes_on() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin
        .put("/v1/sites/lab", &json!({ "spec": {} }))
        .await
        .expect(201);
    let subnet = |network: &str, agent: &str| json!({ "spec": { "site": "lab", "network": network, "agent_address": agent, "mode": "authoritative" } });
    for (network, agent) in [
        ("127.0.0.0/8", "127.0.0.1"),
        ("224.0.0.0/24", "224.0.0.9"),
        ("240.0.0.0/24", "240.0.0.9"),
        ("0.0.0.0/8", "0.0.0.9"),
    ] {
        let told = admin.put("/v1/subnets/prov", &subnet(network, agent)).await;
        assert_eq!(told.problem(), (422, "unprocessable", "/spec/network"));
        assert_eq!(told.body["errors"][0]["code"], "no_machine", "{network}");
    }
    let mut right = subnet("10.77.0.0/24", "10.77.0.1");
    right["spec"]["relays"] = json!(["10.96.0.1", "10.77.0.254"]);
    right["spec"]["dns"] = json!(["10.96.0.53"]);
    admin.put("/v1/subnets/prov", &right).await.expect(201);
    for (member, address) in [
        ("relays", "0.0.0.0"),
        ("relays", "10.77.0.255"),
        ("relays", "10.77.0.1"),
        ("dns", "255.255.255.255"),
    ] {
        let mut wrong = right.clone();
        wrong["spec"][member][0] = json!(address);
        let told = admin.put("/v1/subnets/prov", &wrong).await;
        let pointer = format!("/spec/{member}/0");
        assert_eq!(
            told.problem(),
            (422, "unprocessable", pointer.as_str()),
            "{address}"
        );
    }
    sql(
        &server,
        "UPDATE objects SET spec = spec || '{\"relays\": [\"0.0.0.0\"]}' WHERE kind = 'subnet'",
    )
    .await;
    change(&admin, "/v1/subnets/prov", &json!({ "dns": [] }))
        .await
        .expect(200);
    let worse = json!({ "relays": ["0.0.0.0", "224.0.0.9"] });
    let told = change(&admin, "/v1/subnets/prov", &worse).await;
    assert_eq!(told.problem(), (422, "unprocessable", "/spec/relays/1"));
}
