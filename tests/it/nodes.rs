//! Nodes: registration, addresses, actions, filters.

use muster_api::tokens::Role;
use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::Server;

fn names(page: &Value) -> Vec<&str> {
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_registered_node_is_asked_to_be_accepted_unless_it_should_wait() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let node = admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    assert_eq!(node.body["status"]["state"], "discovered");
    let operation = node.body["status"]["operation"]
        .as_str()
        .unwrap()
        .to_owned();
    let operation = admin
        .get(&format!("/v1/operations/{operation}"))
        .await
        .expect(200);
    assert_eq!(
        (
            operation.body["kind"].as_str(),
            operation.body["state"].as_str()
        ),
        (Some("accept"), Some("queued"))
    );
    assert_eq!(operation.body["target"]["name"], "n1");
    assert_eq!(node.body["status"]["addresses"][0]["address"], "10.77.0.11");

    let mut waiting = fleet::node(2);
    waiting["spec"]["accept"] = json!(false);
    let node = admin.put("/v1/nodes/n2", &waiting).await.expect(201);
    assert_eq!(node.body["status"]["operation"], json!(null));
    let asked = admin
        .post("/v1/nodes/n2/actions/accept", &json!({}))
        .await
        .expect(202);
    assert!(asked.header("location").starts_with("/v1/operations/"));
    let busy = admin.post("/v1/nodes/n2/actions/accept", &json!({})).await;
    assert_eq!(busy.problem(), (409, "busy", ""));
    assert_eq!(busy.header("retry-after"), "5");
    assert!(
        busy.header("link").contains("/v1/operations/"),
        "{:?}",
        busy.headers
    );
}

#[tokio::test]
async fn actions_are_refused_with_the_states_that_allow_them() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    fleet::available(&server, &admin, 1).await;
    let refused = admin.post("/v1/nodes/n1/actions/undrain", &json!({})).await;
    assert_eq!(refused.problem(), (409, "state", ""));
    assert_eq!(
        refused.body["detail"],
        "n1 is available; undrain is possible in: draining, failed."
    );
    assert_eq!(
        admin
            .post("/v1/nodes/n1/actions/explode", &json!({}))
            .await
            .problem()
            .0,
        404
    );
    assert_eq!(
        admin
            .post("/v1/nodes/n1/actions/release", &json!({}))
            .await
            .problem()
            .0,
        404
    );
    assert_eq!(
        admin
            .post("/v1/nodes/n1/actions/quarantine", &json!({}))
            .await
            .problem(),
        (422, "unprocessable", "/reason")
    );
    let because = json!({ "reason": "smells of smoke" });
    admin
        .post("/v1/nodes/n1/actions/quarantine", &because)
        .await
        .expect(202);
    let why = admin.get("/v1/nodes/n1/why").await.expect(200);
    assert_eq!(
        why.body["sentence"],
        "n1 is available since 2026-01-05 08:00:00 UTC; requested action: quarantine."
    );
    let timeline = admin.get("/v1/nodes/n1/timeline").await.expect(200);
    assert!(
        timeline
            .text
            .contains("n1: quarantine requested: smells of smoke"),
        "{}",
        timeline.text
    );

    admin.put("/v1/nodes/n2", &fleet::node(2)).await.expect(201);
    sqlx::query(
        "UPDATE nodes SET state = 'available', wish = NULL, protected = true WHERE name = 'n2'",
    )
    .execute(&server.app.pool)
    .await
    .unwrap();
    assert_eq!(
        admin
            .post("/v1/nodes/n2/actions/inspect", &json!({}))
            .await
            .problem(),
        (409, "protected", "")
    );
    assert_eq!(
        admin.expecting(1).delete("/v1/nodes/n2").await.problem(),
        (409, "protected", "")
    );
}

#[tokio::test]
async fn what_protects_a_node_is_taken_away_only_by_who_may() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let mut held = fleet::node(1);
    held["spec"]["protected"] = json!(true);
    admin.put("/v1/nodes/n1", &held).await.expect(201);
    // A token with the right to write nodes is stopped at a mistake.
    let automation = server.caller(Role::Automation).await;
    held["labels"] = json!({ "row": "b" });
    automation.put("/v1/nodes/n1", &held).await.expect(200);
    let refused = automation.put("/v1/nodes/n1", &fleet::node(1)).await;
    assert_eq!(refused.problem(), (403, "forbidden", ""));
    assert!(refused.text.contains("node.unprotect"), "{}", refused.text);
    assert_eq!(
        admin.get("/v1/nodes/n1").await.body["spec"]["protected"],
        true
    );
    server
        .caller(Role::Operator)
        .await
        .put("/v1/nodes/n1", &fleet::node(1))
        .await
        .expect(200);
}

#[tokio::test]
async fn an_action_overtakes_the_operation_before_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 1).await;
    let claim = admin
        .post(
            "/v1/claims",
            &json!({ "spec": { "pool": "gpu", "node": "n1" } }),
        )
        .await
        .expect(201);
    let claiming = claim.body["status"]["operation"]
        .as_str()
        .unwrap()
        .to_owned();
    admin
        .post(
            "/v1/nodes/n1/actions/quarantine",
            &json!({ "reason": "wrong rack" }),
        )
        .await
        .expect(202);
    let former = admin
        .get(&format!("/v1/operations/{claiming}"))
        .await
        .expect(200);
    assert_eq!(
        former.body["state"], "cancelled",
        "no operation stays open for ever"
    );
}

#[tokio::test]
async fn what_a_node_cannot_be_is_told_all_at_once() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let mut node = fleet::node(1);
    node["spec"]["rack_unit"] = json!(99);
    node["spec"]["profile"] = json!("none");
    node["spec"]["macs"][0]["address"] = json!("10.99.0.1");
    node["spec"]["power"]["redfish"]["bmc"]["credential"] = json!("none");
    let refused = admin.put("/v1/nodes/n1", &node).await.expect(422);
    let mut pointers: Vec<&str> = refused.body["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| fault["pointer"].as_str().unwrap())
        .collect();
    pointers.sort_unstable();
    let all = [
        "/spec/macs/0/address",
        "/spec/power/redfish/bmc/credential",
        "/spec/profile",
        "/spec/rack_unit",
    ];
    assert_eq!(pointers, all);
    node["spec"]["power"]["redfish"]["bmc"]["colour"] = json!(1);
    let unknown = admin.put("/v1/nodes/n1", &node).await;
    assert_eq!(
        unknown.problem(),
        (400, "invalid_request", "/spec/power/redfish/bmc/colour")
    );
}

#[tokio::test]
async fn what_is_anothers_is_refused_by_name() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let mut first = fleet::node(1);
    first["spec"]["serial"] = json!("S1");
    admin.put("/v1/nodes/n1", &first).await.expect(201);
    let mut same = fleet::node(2);
    same["spec"]["macs"][0]["mac"] = first["spec"]["macs"][0]["mac"].clone();
    assert_eq!(
        admin.put("/v1/nodes/n2", &same).await.problem(),
        (409, "mac_taken", "")
    );
    let mut same = fleet::node(2);
    same["spec"]["macs"][0]["address"] = json!("10.77.0.11");
    assert_eq!(
        admin.put("/v1/nodes/n2", &same).await.problem(),
        (409, "address_taken", "")
    );
    let mut same = fleet::node(2);
    same["spec"]["serial"] = json!("S1");
    assert_eq!(
        admin.put("/v1/nodes/n2", &same).await.problem(),
        (409, "serial_taken", "")
    );
    let mut same = fleet::node(2);
    same["spec"]["power"]["redfish"]["bmc"]["address"] = json!("10.78.0.1");
    assert_eq!(
        admin.put("/v1/nodes/n2", &same).await.problem(),
        (409, "bmc_taken", "")
    );
    assert_eq!(
        names(&admin.get("/v1/nodes").await.body),
        ["n1"],
        "nothing is half-created"
    );
}

/// Two nodes declared for the same machine: a power-off of the first would stop the second.
#[tokio::test]
async fn one_machine_behind_a_bmc_is_one_node() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let node = |number: u8, power: Value| {
        let mut node = fleet::node(number);
        node["spec"]["power"] = power;
        node
    };
    let redfish = |bmc: Value| json!({ "redfish": { "bmc": bmc } });
    let ipmi = |bmc: Value| json!({ "ipmi": { "bmc": bmc } });
    let at = "10.78.0.9";
    let first = redfish(json!({ "address": at, "credential": "bmc", "system": "blade-1" }));
    admin
        .put("/v1/nodes/n1", &node(1, first.clone()))
        .await
        .expect(201);
    assert_eq!(
        admin.put("/v1/nodes/n2", &node(2, first)).await.problem(),
        (409, "bmc_taken", "")
    );
    let second = redfish(json!({ "address": at, "credential": "bmc", "system": "blade-2" }));
    admin
        .put("/v1/nodes/n2", &node(2, second))
        .await
        .expect(201);
    // Beside systems with names, a node without a name would be the first system in the list of the BMC: in each order and with each protocol.
    let either = "Another node is behind this BMC, and one of the two does not say which machine it is: name `system` for each.";
    for which in [
        redfish(json!({ "address": at, "credential": "bmc" })),
        ipmi(json!({ "address": at, "credential": "bmc" })),
    ] {
        let refused = admin.put("/v1/nodes/n3", &node(3, which)).await;
        assert_eq!(refused.problem(), (409, "bmc_taken", ""));
        assert!(
            refused.body["detail"].as_str().unwrap().starts_with(either),
            "{}",
            refused.text
        );
        assert!(
            ["n1", "n2"].contains(&refused.body["existing"]["name"].as_str().unwrap()),
            "{}",
            refused.text
        );
    }
    let alone = redfish(json!({ "address": "10.78.0.20", "credential": "bmc" }));
    admin.put("/v1/nodes/n8", &node(8, alone)).await.expect(201);
    let beside =
        redfish(json!({ "address": "10.78.0.20", "credential": "bmc", "system": "blade-2" }));
    assert_eq!(
        admin
            .put("/v1/nodes/n9", &node(9, beside.clone()))
            .await
            .problem(),
        (409, "bmc_taken", "")
    );
    let named =
        redfish(json!({ "address": "10.78.0.20", "credential": "bmc", "system": "blade-1" }));
    admin.put("/v1/nodes/n8", &node(8, named)).await.expect(200);
    admin
        .put("/v1/nodes/n9", &node(9, beside))
        .await
        .expect(201);
    let bad = redfish(json!({ "address": at, "credential": "bmc", "system": "../1" }));
    assert_eq!(
        admin.put("/v1/nodes/n3", &node(3, bad)).await.problem(),
        (422, "unprocessable", "/spec/power/redfish/bmc/system")
    );

    let third = ipmi(json!({ "address": "10.78.0.10", "credential": "bmc" }));
    admin.put("/v1/nodes/n3", &node(3, third)).await.expect(201);
    let same = redfish(json!({ "address": "10.78.0.10", "credential": "bmc" }));
    assert_eq!(
        admin.put("/v1/nodes/n4", &node(4, same)).await.problem(),
        (409, "bmc_taken", "")
    );
    let simulator = ipmi(
        json!({ "address": "10.78.0.10", "port": 6230, "credential": "bmc", "firmware": "bios" }),
    );
    admin
        .put("/v1/nodes/n4", &node(4, simulator))
        .await
        .expect(201);
    let by_hand = json!({ "manual": { "person": "alice" } });
    for number in [5, 6] {
        admin
            .put(
                &format!("/v1/nodes/n{number}"),
                &node(number, by_hand.clone()),
            )
            .await
            .expect(201);
    }

    let long =
        json!({ "spec": { "purpose": "bmc", "user": "a-user-of-seventeen", "secret": "calvin" } });
    admin.put("/v1/credentials/long", &long).await.expect(201);
    let user = ipmi(json!({ "address": "10.78.0.11", "credential": "long" }));
    assert_eq!(
        admin.put("/v1/nodes/n7", &node(7, user)).await.problem(),
        (422, "unprocessable", "/spec/power/ipmi/bmc/credential")
    );
}

#[tokio::test]
async fn the_server_picks_the_lowest_free_address_and_keeps_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    for (number, address) in [(1, "10.77.0.2"), (2, "10.77.0.3")] {
        let mut node = fleet::node(number);
        node["spec"]["macs"][0]
            .as_object_mut()
            .unwrap()
            .remove("address");
        let node = admin
            .put(&format!("/v1/nodes/n{number}"), &node)
            .await
            .expect(201);
        assert_eq!(node.body["status"]["addresses"][0]["address"], address);
        assert_eq!(
            node.body["spec"]["macs"][0].get("address"),
            None,
            "what the server chose stands in the status"
        );
    }
    let relabelled = admin
        .patch("/v1/nodes/n2", &json!({ "labels": { "a": "b" } }))
        .await
        .expect(200);
    assert_eq!(
        relabelled.body["status"]["addresses"][0]["address"],
        "10.77.0.3"
    );
}

#[tokio::test]
async fn lists_are_filtered_by_the_grammar() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    fleet::available(&server, &admin, 4).await;
    sqlx::query("UPDATE nodes SET state = 'retired' WHERE name = 'n4'")
        .execute(&server.app.pool)
        .await
        .unwrap();
    for (filter, expected) in [
        ("state=available", &["n1", "n2", "n3"][..]),
        ("state!=available", &["n4"]),
        ("state=available AND label.parity=even", &["n2"]),
        ("name~\"n*\" AND rack=r1 AND state=retired", &["n4"]),
        ("rack=r9", &[]),
        ("rack!=r9 AND name=n1", &["n1"]),
        (
            "label.none!=x AND profile=virtual AND site~l*",
            &["n1", "n2", "n3", "n4"],
        ),
        ("name~n_", &[]),
        ("label.parity=\"' OR true --\"", &[]),
    ] {
        let encoded: String = filter.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let page = admin
            .get(&format!("/v1/nodes?filter={encoded}"))
            .await
            .expect(200);
        assert_eq!(names(&page.body), expected, "{filter}");
    }
    for (filter, status) in [
        ("colour%3Dred", 422),
        ("state%3Dasleep", 422),
        ("state", 400),
    ] {
        assert_eq!(
            admin
                .get(&format!("/v1/nodes?filter={filter}"))
                .await
                .problem()
                .0,
            status,
            "{filter}"
        );
    }
    let first = admin.get("/v1/nodes?limit=3").await.expect(200);
    let token = first.body["next_page_token"].as_str().unwrap();
    assert_eq!(
        names(
            &admin
                .get(&format!("/v1/nodes?limit=3&page_token={token}"))
                .await
                .body
        ),
        ["n4"]
    );
}

#[tokio::test]
async fn a_node_is_unregistered_only_when_nobody_needs_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 2).await;
    admin.delete("/v1/nodes/n1").await.expect(428);
    admin.expecting(1).delete("/v1/nodes/n1").await.expect(204);
    admin
        .post(
            "/v1/claims",
            &json!({ "spec": { "pool": "gpu", "node": "n2" } }),
        )
        .await
        .expect(201);
    assert_eq!(
        admin.expecting(1).delete("/v1/nodes/n2").await.problem(),
        (409, "node_claimed", "")
    );
    let moved = admin
        .patch(
            "/v1/nodes/n2",
            &json!({ "spec": { "macs": [{ "mac": "52:54:00:00:00:99" }] } }),
        )
        .await;
    assert_eq!(moved.problem(), (409, "node_claimed", ""));
}

#[tokio::test]
async fn lists_run_both_ways_are_counted_and_cut_to_what_is_asked() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    for number in 1..=5 {
        admin
            .put(&format!("/v1/nodes/n{number}"), &fleet::node(number))
            .await
            .expect(201);
    }
    for list in ["nodes", "racks"] {
        for name in ["r2", "r3", "r4", "r5"]
            .into_iter()
            .filter(|_| list == "racks")
        {
            admin
                .put(&format!("/v1/racks/{name}"), &fleet::rack())
                .await
                .expect(201);
        }
        let letter = &list[..1];
        let mut seen = Vec::new();
        let mut query = "sort=-name&limit=2".to_owned();
        loop {
            let page = admin.get(&format!("/v1/{list}?{query}")).await.expect(200);
            let names = page.body["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["name"].as_str().unwrap().to_owned());
            seen.extend(names);
            let Some(token) = page.body["next_page_token"].as_str() else {
                break;
            };
            let turned = admin
                .get(&format!("/v1/{list}?limit=2&page_token={token}"))
                .await;
            assert_eq!(
                turned.problem(),
                (400, "invalid_request", "page_token"),
                "a token is bound to its sort"
            );
            query = format!("sort=-name&limit=2&page_token={token}");
        }
        let expected: Vec<String> = (1..=5)
            .rev()
            .map(|number| format!("{letter}{number}"))
            .collect();
        assert_eq!(seen, expected);
        let counted = admin
            .get(&format!("/v1/{list}?limit=1&count=exact"))
            .await
            .expect(200);
        assert_eq!(counted.body["count"], 5);
        assert!(
            admin
                .get(&format!("/v1/{list}?count=estimate"))
                .await
                .expect(200)
                .body["count"]
                .is_number()
        );
        assert!(
            admin
                .get(&format!("/v1/{list}?count=none"))
                .await
                .expect(200)
                .body["count"]
                .is_null()
        );
        let cut = admin
            .get(&format!("/v1/{list}?limit=1&fields=spec.site,generation"))
            .await
            .expect(200);
        let item = cut.body["items"][0].as_object().unwrap();
        let members: Vec<&String> = item.keys().collect();
        assert_eq!(members.len(), 5, "{members:?}");
        assert_eq!(item["spec"], json!({ "site": "lab" }));
        for wrong in ["sort=updated_at", "count=many", "fields=colour", "fields="] {
            assert_eq!(
                admin.get(&format!("/v1/{list}?{wrong}")).await.problem().0,
                422,
                "{wrong}"
            );
        }
    }
    for (sort, first) in [("created_at", "n1"), ("-created_at", "n5")] {
        let page = admin
            .get(&format!("/v1/nodes?sort={sort}&limit=1&fields=id"))
            .await
            .expect(200)
            .body;
        let token = page["next_page_token"].as_str().unwrap();
        let second = admin
            .get(&format!("/v1/nodes?sort={sort}&limit=1&page_token={token}"))
            .await
            .expect(200)
            .body;
        let after = if first == "n1" { "n2" } else { "n4" };
        assert_eq!(
            (&page["items"][0]["name"], &second["items"][0]["name"]),
            (&json!(first), &json!(after))
        );
    }
    for (filter, count) in [
        ("rack~r*", 5),
        ("rack!%3Dr1", 0),
        ("rack!%3Dnone", 5),
        ("rack%3Dr2", 0),
        ("name~n*", 5),
    ] {
        let found = admin
            .get(&format!("/v1/nodes?count=exact&filter={filter}"))
            .await
            .expect(200);
        assert_eq!(found.body["count"], count, "{filter}");
    }
    let odd = admin
        .get("/v1/nodes?count=exact&filter=label.parity%3Dodd")
        .await
        .expect(200);
    assert_eq!(odd.body["count"], 3);
    assert!(
        admin
            .get("/v1/nodes?count=estimate&filter=rack%3Dr1")
            .await
            .expect(200)
            .body["count"]
            .is_number()
    );
}
