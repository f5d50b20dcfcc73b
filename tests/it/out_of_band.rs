//! Networks of BMCs and consoles: a password and a connection go to declared networks only. Each
//! test shows a call allowed, and the same call refused.

use muster_api::access::Role;
use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::orders::{KINDS, ORDERS, said};
use muster_core::wire::result::Outcome;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::simulated::World;
use crate::support::agents::in_process;
use crate::support::fleet;
use crate::support::server::{Caller, Server};

const SITE: &str = "/v1/sites/lab";
const NODE: &str = "/v1/nodes/n1";

async fn start() -> (Server, Caller) {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    (server, admin)
}

fn with_bmc(address: &str, port: u16, credential: &str) -> Value {
    let mut node = fleet::node(1);
    node["spec"]["power"] = json!({ "redfish": { "bmc": {
        "address": address, "port": port, "credential": credential,
    } } });
    node
}

fn with_console(address: &str) -> Value {
    let mut node = fleet::node(1);
    node["spec"]["console"] = json!({ "tcp": { "address": address, "port": 7001 } });
    node
}

/// Stores a spec as an earlier version did: without the checks of a write.
async fn store(server: &Server, sql: &'static str) {
    sqlx::query(sql).execute(&server.app.pool).await.unwrap();
}

/// Stores the site without networks.
const FORGET: &str = "UPDATE objects SET spec = '{}' WHERE kind = 'site'";

#[tokio::test]
async fn administrators_alone_declare_the_networks_of_a_site() {
    let (server, admin) = start().await;
    let wider = json!({ "spec": { "bmc_networks": ["10.78.0.0/16"] } });
    admin.patch(SITE, &wider).await.expect(200);
    for role in [Role::Operator, Role::Automation, Role::ReleaseOwner] {
        let caller = server.caller(role).await;
        caller.patch(SITE, &wider).await.expect(403);
    }
}

#[tokio::test]
async fn a_site_names_networks_without_special_addresses() {
    let (_server, admin) = start().await;
    for member in ["bmc_networks", "console_networks"] {
        let write = |networks: Value| json!({ "spec": { member: networks } });
        let good = write(json!(["10.90.0.0/24", "fd00:90::/64"]));
        admin.patch(SITE, &good).await.expect(200);
        for (network, code) in [
            ("127.0.0.0/8", "special_network"),
            ("169.254.0.0/16", "special_network"),
            ("0.0.0.0/0", "special_network"),
            ("::1/128", "special_network"),
            ("224.0.0.0/24", "special_network"),
            ("10.90.0.1/24", "host_bits"),
            ("10.77.0.0/16", "provisioning_network"),
        ] {
            let refused = admin.patch(SITE, &write(json!([network]))).await;
            let pointer = format!("/spec/{member}/0");
            assert_eq!(
                (refused.status, refused.problem().2),
                (422, pointer.as_str()),
                "{network}: {}",
                refused.text
            );
            assert!(refused.text.contains(code), "{}", refused.text);
        }
        let many: Vec<String> = (0..65)
            .map(|number| format!("10.91.{number}.0/24"))
            .collect();
        let refused = admin.patch(SITE, &write(json!(many))).await;
        assert!(refused.text.contains("too_many"), "{}", refused.text);
    }
}

#[tokio::test]
async fn a_subnet_keeps_out_of_the_networks_of_bmcs() {
    let (_server, admin) = start().await;
    let subnet = |network: &str, agent: &str| {
        let mut body = fleet::subnet();
        body["spec"]["network"] = json!(network);
        body["spec"]["agent_address"] = json!(agent);
        body
    };
    let beside = subnet("10.79.0.0/24", "10.79.0.1");
    admin.put("/v1/subnets/more", &beside).await.expect(201);
    for (network, agent) in [("10.78.0.0/25", "10.78.0.1"), ("10.78.1.0/24", "10.78.1.9")] {
        let refused = admin
            .put("/v1/subnets/wrong", &subnet(network, agent))
            .await;
        assert_eq!(refused.status, 422, "{}", refused.text);
        assert!(
            refused.text.contains("out_of_band_network"),
            "{}",
            refused.text
        );
    }
}

#[tokio::test]
async fn an_address_of_a_node_is_inside_of_the_networks_of_its_site() {
    let (server, admin) = start().await;
    let automation = server.caller(Role::Automation).await;
    for body in [with_bmc("10.78.0.9", 443, "bmc"), with_console("10.78.1.9")] {
        let tried = automation.put("/v1/nodes/n1?dry_run=true", &body).await;
        assert!(tried.status < 300, "{}", tried.text);
    }
    let ipmi = json!({ "ipmi": { "bmc": { "address": "10.79.0.9", "credential": "bmc" } } });
    let mut by_ipmi = fleet::node(1);
    by_ipmi["spec"]["power"] = ipmi;
    let (outside, special) = (
        ["outside_networks", "outside of the", "10.78."],
        ["special_network", "is no address of a", "own address"],
    );
    let refusals = [
        (
            with_bmc("127.0.0.1", 19443, "bmc"),
            "/spec/power/redfish/bmc/address",
            special,
        ),
        (
            with_bmc("10.78.1.9", 443, "bmc"),
            "/spec/power/redfish/bmc/address",
            outside,
        ),
        (
            with_bmc("::ffff:10.78.0.9", 443, "bmc"),
            "/spec/power/redfish/bmc/address",
            special,
        ),
        (by_ipmi, "/spec/power/ipmi/bmc/address", outside),
        (
            with_console("127.0.0.1"),
            "/spec/console/tcp/address",
            special,
        ),
        (
            with_console("10.78.0.9"),
            "/spec/console/tcp/address",
            outside,
        ),
    ];
    for (body, pointer, words) in &refusals {
        for caller in [&automation, &admin] {
            let refused = caller.put(NODE, body).await;
            assert_eq!((refused.status, refused.problem().2), (422, *pointer));
            for told in words {
                assert!(refused.text.contains(told), "{told}: {}", refused.text);
            }
        }
        let mut desired = body.clone();
        desired["kind"] = json!("node");
        desired["name"] = json!("n1");
        let plan = json!({ "objects": [desired] });
        let told = automation.post("/v1/plan", &plan).await;
        assert!(told.text.contains(words[1]), "{}", told.text);
    }
    // The same by a change of a stored node.
    automation.put(NODE, &fleet::node(1)).await.expect(201);
    for (body, _, _) in &refusals {
        automation.put(NODE, body).await.expect(422);
    }
    let console =
        json!({ "spec": { "console": { "tcp": { "address": "127.0.0.1", "port": 22 } } } });
    automation.patch(NODE, &console).await.expect(422);
}

#[tokio::test]
async fn a_node_moves_to_a_site_with_the_networks_of_its_bmc() {
    let (_server, admin) = start().await;
    let in_site = |mut body: Value, site: &str| {
        body["spec"]["site"] = json!(site);
        body
    };
    for (site, rack, networks) in [
        ("near", "r8", json!(["10.78.0.0/16"])),
        ("far", "r9", json!(["10.80.0.0/16"])),
        ("new", "r10", json!([])),
    ] {
        let body = json!({ "spec": { "bmc_networks": networks } });
        admin
            .put(&format!("/v1/sites/{site}"), &body)
            .await
            .expect(201);
        let rack = format!("/v1/racks/{rack}");
        admin
            .put(&rack, &in_site(fleet::rack(), site))
            .await
            .expect(201);
    }
    let mut node = fleet::node(1);
    node["spec"]["macs"] = json!([{ "mac": "52:54:00:00:00:01" }]);
    node["spec"]["accept"] = json!(false);
    admin.put(NODE, &node).await.expect(201);
    let path = "/v1/nodes/n1/actions/move";
    for (site, rack) in [("far", "r9"), ("new", "r10")] {
        let body = json!({ "site": site, "rack": rack });
        let plan = admin
            .post(&format!("{path}?dry_run=true"), &body)
            .await
            .expect(200);
        let blockers = plan.body["blockers"].to_string();
        assert!(blockers.contains("bmc_networks"), "{blockers}");
        let refused = admin.post(path, &body).await;
        assert_eq!(refused.problem().0, 409, "{}", refused.text);
    }
    let body = json!({ "site": "near", "rack": "r8" });
    admin.post(path, &body).await.expect(202);
}

#[tokio::test]
async fn addresses_from_before_go_on_and_new_ones_need_networks() {
    let (server, admin) = start().await;
    admin.put(NODE, &fleet::node(1)).await.expect(201);
    store(&server, FORGET).await;
    let labels = json!({ "labels": { "row": "a" } });
    admin.patch(NODE, &labels).await.expect(200);
    let moved = json!({ "spec": { "rack_unit": 2 } });
    admin.patch(NODE, &moved).await.expect(200);
    let other = json!({ "spec": { "purpose": "bmc", "user": "root", "secret": "other" } });
    admin.put("/v1/credentials/other", &other).await.expect(201);
    for body in [
        with_bmc("10.78.0.2", 443, "bmc"),
        with_bmc("10.78.0.1", 8443, "bmc"),
        with_bmc("10.78.0.1", 443, "other"),
    ] {
        let refused = admin.put(NODE, &body).await;
        assert_eq!(refused.status, 422, "{}", refused.text);
        assert!(refused.text.contains("no_networks"), "{}", refused.text);
        assert!(refused.text.contains("bmc_networks"), "{}", refused.text);
    }
    // No site can name the network of such an address.
    for special in ["127.0.0.1", "169.254.0.9"] {
        let refused = admin.put(NODE, &with_bmc(special, 443, "bmc")).await;
        assert_eq!(refused.status, 422, "{}", refused.text);
        assert!(refused.text.contains("special_network"), "{}", refused.text);
        assert!(!refused.text.contains("bmc_networks"), "{}", refused.text);
    }
    admin.put(SITE, &fleet::site()).await.expect(200);
    let new = with_bmc("10.78.0.2", 443, "other");
    admin.put(NODE, &new).await.expect(200);
}

#[tokio::test]
async fn networks_that_leave_out_a_node_are_refused() {
    let (_server, admin) = start().await;
    let mut node = fleet::node(1);
    node["spec"]["console"] = json!({ "tcp": { "address": "10.78.1.1", "port": 7001 } });
    admin.put(NODE, &node).await.expect(201);
    for (path, networks, named) in [
        (
            SITE,
            json!({ "bmc_networks": ["10.78.0.128/25"] }),
            "1 node: n1 (BMC 10.78.0.1).",
        ),
        (
            SITE,
            json!({ "console_networks": ["10.78.1.128/25"] }),
            "1 node: n1 (console 10.78.1.1).",
        ),
        (
            "/v1/credentials/bmc",
            json!({ "networks": ["10.78.0.128/25"] }),
            "1 node: n1 (BMC 10.78.0.1).",
        ),
    ] {
        let refused = admin.patch(path, &json!({ "spec": networks })).await;
        assert_eq!(
            refused.problem(),
            (409, "breaks_nodes", ""),
            "{}",
            refused.text
        );
        assert!(refused.text.contains(named), "{}", refused.text);
    }
    let mut site = fleet::site();
    site["spec"]["bmc_networks"] = json!(["10.78.0.128/25"]);
    site["kind"] = json!("site");
    site["name"] = json!("lab");
    let plan = json!({ "objects": [site] });
    let told = admin.post("/v1/plan", &plan).await.expect(200).body["objects"][0].clone();
    assert_eq!(told["blockers"][0]["code"], "breaks_nodes", "{told}");
    assert_eq!(told["nodes"], json!(["n1"]), "{told}");
    for (path, networks) in [
        (
            SITE,
            json!({ "bmc_networks": ["10.78.0.0/25"], "console_networks": ["10.78.1.0/25"] }),
        ),
        (
            "/v1/credentials/bmc",
            json!({ "networks": ["10.78.0.1/32"] }),
        ),
    ] {
        let body = json!({ "spec": networks });
        admin.patch(path, &body).await.expect(200);
    }
}

#[tokio::test]
async fn a_credential_is_for_its_networks() {
    let (server, admin) = start().await;
    let spec =
        json!({ "purpose": "bmc", "user": "root", "secret": "a", "networks": ["10.78.0.0/30"] });
    let narrow = json!({ "spec": spec });
    admin
        .put("/v1/credentials/narrow", &narrow)
        .await
        .expect(201);
    let automation = server.caller(Role::Automation).await;
    let inside = with_bmc("10.78.0.2", 443, "narrow");
    automation.put(NODE, &inside).await.expect(201);
    let refused = automation
        .put(NODE, &with_bmc("10.78.0.9", 443, "narrow"))
        .await;
    assert_eq!(
        (refused.status, refused.problem().2),
        (422, "/spec/power/redfish/bmc/credential"),
        "{}",
        refused.text
    );
    for (spec, code) in [
        (
            json!({ "purpose": "stack", "secret": "a", "networks": ["10.78.0.0/30"] }),
            "not_of_purpose",
        ),
        (
            json!({ "purpose": "bmc", "user": "root", "secret": "a", "networks": ["127.0.0.0/8"] }),
            "special_network",
        ),
    ] {
        let refused = admin
            .put("/v1/credentials/wrong", &json!({ "spec": spec }))
            .await;
        assert_eq!(refused.status, 422, "{}", refused.text);
        assert!(refused.text.contains(code), "{}", refused.text);
    }
}

/// A row written around the checks: no password leaves the server.
#[tokio::test]
async fn no_order_has_a_password_for_an_address_outside() {
    let mut inside = World::start(1).await;
    inside.settle().await;
    assert_eq!(inside.state("n1").await, "available");

    for (change, told) in [
        (
            "UPDATE nodes SET bmc_address = '10.79.0.1'",
            "outside of the bmc_networks",
        ),
        (
            "UPDATE nodes SET bmc_address = '127.0.0.1'",
            "a special address",
        ),
    ] {
        let mut outside = World::start(1).await;
        store(&outside.server, change).await;
        outside.settle().await;
        assert_eq!(outside.state("n1").await, "failed");
        let reason = outside.value("n1", "reason").await.unwrap();
        assert!(reason.contains(told), "{reason}");
    }
}

#[tokio::test]
async fn an_agent_gets_the_networks_of_consoles_where_it_reads_them() {
    let (server, admin) = start().await;
    admin
        .put(NODE, &with_console("10.78.1.1"))
        .await
        .expect(201);
    let made = admin
        .post("/v1/sites/lab/agents", &json!({ "name": "a" }))
        .await
        .expect(201);
    let token = made.body["token"].as_str().unwrap().to_owned();
    let router = in_process(&server.app);
    let call = async |path: &str, reads: &str, body: Value| -> Value {
        let request = axum::http::Request::post(format!("/agent/v1/{path}"))
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .header(ORDERS, reads)
            .body(axum::body::Body::from(body.to_string()))
            .unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20)
            .await
            .unwrap();
        serde_json::from_slice(&bytes).unwrap()
    };
    let hello = json!({ "protocol": 1, "version": "0", "instance": "a" });
    let epoch = call("hello", &said(), hello).await["epoch"].clone();
    let poll = json!({ "epoch": epoch, "have": null, "wait_s": 0 });
    let today = call("site", &said(), poll.clone()).await;
    assert_eq!(today["console_networks"], json!([fleet::CONSOLE_NETWORK]));
    let older = call("site", &KINDS.join(","), poll.clone()).await;
    assert_eq!(older.get("console_networks"), None);
    assert_eq!(older["consoles"].as_array().unwrap().len(), 1);
    assert_ne!(today["revision"], older["revision"]);

    // An older agent gets no console outside.
    store(&server, "UPDATE nodes SET console_address = '127.0.0.1'").await;
    let older = call("site", &KINDS.join(","), poll.clone()).await;
    assert_eq!(older["consoles"], json!([]));
    let today = call("site", &said(), poll.clone()).await;
    assert_eq!(today["consoles"].as_array().unwrap().len(), 1);

    // The limits of an unreadable list are unknown, so no agent gets a console.
    let spoil =
        r#"UPDATE objects SET spec = spec || '{"console_networks": "all"}' WHERE kind = 'site'"#;
    store(&server, spoil).await;
    for reads in [said(), KINDS.join(",")] {
        let unreadable = call("site", &reads, poll.clone()).await;
        assert_eq!(unreadable["consoles"], json!([]));
        assert_eq!(unreadable.get("console_networks"), None);
    }
    let refused = admin.put(NODE, &with_console("10.78.1.2")).await;
    assert_eq!(refused.problem(), (409, "unreadable", ""));
}

async fn pinned(server: &Server) -> Option<String> {
    let pinned = sqlx::query_scalar("SELECT bmc_certificate FROM nodes WHERE name = 'n1'");
    pinned.fetch_one(&server.app.pool).await.unwrap()
}

async fn count_events(server: &Server, kind: &str) -> i64 {
    let count = sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = $1").bind(kind);
    count.fetch_one(&server.app.pool).await.unwrap()
}

#[tokio::test]
async fn a_pinned_certificate_stays_until_an_administrator_accepts_another() {
    let (server, admin) = start().await;
    let (old, new) = (Digest::of(b"old"), Digest::of(b"new"));
    let with_certificate = |certificate: Digest| {
        let mut node = with_bmc("10.78.0.2", 443, "bmc");
        node["spec"]["power"]["redfish"]["bmc"]["certificate"] = json!(certificate);
        node
    };
    admin.put(NODE, &fleet::node(1)).await.expect(201);
    sqlx::query("UPDATE nodes SET bmc_certificate = $1")
        .bind(old.to_string())
        .execute(&server.app.pool)
        .await
        .unwrap();
    let automation = server.caller(Role::Automation).await;
    let moved = with_bmc("10.78.0.2", 443, "bmc");
    automation.put(NODE, &moved).await.expect(200);
    assert_eq!(pinned(&server).await, Some(old.to_string()));
    assert_eq!(count_events(&server, "bmc.address_changed").await, 1);

    admin.put(NODE, &with_certificate(new)).await.expect(200);
    assert_eq!(pinned(&server).await, Some(new.to_string()));
    assert_eq!(count_events(&server, "bmc.certificate_accepted").await, 1);
    for role in [Role::Automation, Role::Operator] {
        let caller = server.caller(role).await;
        let refused = caller.put(NODE, &with_certificate(old)).await.expect(403);
        assert!(refused.text.contains("node.rotate-bmc"), "{}", refused.text);
    }
    assert_eq!(pinned(&server).await, Some(new.to_string()));
    // A way over manual power does not lose the pin.
    let mut by_hand = fleet::node(1);
    by_hand["spec"]["power"] = json!({ "manual": { "person": "ada" } });
    automation.put(NODE, &by_hand).await.expect(200);
    automation.put(NODE, &moved).await.expect(200);
    assert_eq!(pinned(&server).await, Some(new.to_string()));
}

#[tokio::test]
async fn another_certificate_of_a_bmc_is_an_event() {
    let mut world = World::start(1).await;
    let job = world.until_leased("n1", "boot_live").await;
    let message = "the BMC shows another certificate";
    let failure = Failure::fatal(FailureCode::BmcCertificateChanged, message);
    let outcome = Outcome::Failed { failure };
    world
        .agent
        .report(job.id, job.attempt, outcome)
        .await
        .unwrap();
    let kind = "bmc.certificate_changed";
    assert_eq!(count_events(&world.server, kind).await, 1);
    assert_eq!(count_events(&world.server, "bmc.address_changed").await, 0);
}
