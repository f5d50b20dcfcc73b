//! Requests for a replacement: the limit of releases, refusals, the dry run, the console.

use muster_api::tokens::Role;
use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

/// Claimed nodes and two spare nodes. The engine does not run.
async fn claimed(count: u8) -> (Server, Caller) {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, count + 2).await;
    for number in 1..=count {
        let claim = json!({ "name": format!("c{number}"), "spec": { "pool": "gpu", "node": format!("n{number}") } });
        admin.post("/v1/claims", &claim).await.expect(201);
    }
    (server, admin)
}

async fn replace(caller: &Caller, number: u8, body: Value) -> Reply {
    caller
        .expecting(1)
        .post(&format!("/v1/claims/c{number}/actions/replace"), &body)
        .await
}

#[tokio::test]
async fn it_counts_as_the_release_that_it_will_be() {
    let (server, admin) = claimed(3).await;
    let body =
        json!({ "name": "ci", "role": "operator", "expires_in_s": 86400, "releases_per_hour": 1 });
    let made = admin.post("/v1/tokens", &body).await.expect(201).body;
    let ci = server.with(Some(made["secret"].as_str().unwrap().to_owned()));
    replace(&ci, 1, json!({})).await.expect(202);
    let told = ci
        .expecting(1)
        .post("/v1/claims/c2/actions/replace?dry_run=true", &json!({}))
        .await;
    assert_eq!(told.problem().1, "second_person");
    let keyed = ci.header("idempotency-key", "k");
    let wanted = json!({ "node": "n5", "reason": "its fan rattles" });
    let held = replace(&keyed, 2, wanted.clone()).await.expect(409);
    assert_eq!(held.problem().1, "second_person");
    assert_eq!(
        ci.expecting(1).delete("/v1/claims/c3").await.problem().1,
        "second_person",
        "a release beside it too"
    );
    let release = ci.expecting(1).delete("/v1/claims/c2").await;
    assert_eq!(
        release.problem().1,
        "approval_open",
        "what waits for a claim is one thing: {}",
        release.text
    );
    let open = admin.get("/v1/approvals").await.expect(200).body;
    let asked = open["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["claim"] == "c2")
        .unwrap()
        .clone();
    assert_eq!(
        (&asked["replaces"], &asked["reason"]),
        (&json!(true), &json!("its fan rattles"))
    );
    let other = server.caller(Role::Operator).await;
    assert!(
        other
            .get("/claims")
            .await
            .expect(200)
            .text
            .contains("Approve the replacement")
    );
    let path = format!("/v1/approvals/{}/approve", asked["id"].as_str().unwrap());
    other.post(&path, &json!({})).await.expect(200);
    let claim = admin.get("/v1/claims/c2").await.expect(200).body;
    assert_eq!(
        (
            &claim["status"]["state"],
            &claim["status"]["node"],
            &claim["status"]["replacement"]["node"]
        ),
        (&json!("bound"), &json!("n2"), &json!("n5")),
        "the node that was named, and nothing is released yet"
    );
    let begun = replace(&keyed, 2, wanted).await.expect(202);
    let told = begun.body["progress"]["message"].as_str().unwrap();
    assert!(
        told.ends_with("as the replacement for n2: its fan rattles"),
        "the reason is kept: {told}"
    );
}

#[tokio::test]
async fn what_cannot_be_replaced_says_why() {
    let (server, admin) = claimed(2).await;
    expect_refusals(&admin).await;
    let protect = |protected: bool| {
        let update =
            sqlx::query("UPDATE nodes SET protected = $1 WHERE name = 'n1'").bind(protected);
        update.execute(&server.app.pool)
    };
    protect(true).await.unwrap();
    assert_eq!(replace(&admin, 1, json!({})).await.problem().1, "protected");
    protect(false).await.unwrap();
    assert_eq!(
        server
            .caller(Role::Viewer)
            .await
            .expecting(1)
            .post("/v1/claims/c1/actions/replace", &json!({}))
            .await
            .status,
        403
    );

    expect_plan(&admin).await;
    replace(&admin, 1, json!({ "node": "n4" }))
        .await
        .expect(202);
    assert_eq!(
        replace(&admin, 1, json!({ "node": "n3" }))
            .await
            .problem()
            .1,
        "replacing"
    );
    let coming = admin.get("/v1/claims/c1").await.body["status"]["replacement"]["claim"]
        .as_str()
        .unwrap()
        .to_owned();
    let own = admin
        .expecting(1)
        .post(&format!("/v1/claims/{coming}/actions/replace"), &json!({}))
        .await;
    assert_eq!(own.problem().1, "replacing");
    expect_no_spare(&admin).await;
}

/// Refuses a replacement without or with a wrong generation, and with a wrong body.
async fn expect_refusals(admin: &Caller) {
    assert_eq!(
        admin
            .post("/v1/claims/c1/actions/replace", &json!({}))
            .await
            .status,
        428
    );
    assert_eq!(
        admin
            .expecting(7)
            .post("/v1/claims/c1/actions/replace", &json!({}))
            .await
            .status,
        412
    );
    for (body, problem) in [
        (json!({ "node": "n9" }), (422, "unprocessable", "/node")),
        (json!({ "node": "n1" }), (422, "unprocessable", "/node")),
        (json!({ "node": "n2" }), (409, "node_claimed", "")),
        (
            json!({ "message": "x" }),
            (400, "invalid_request", "/message"),
        ),
    ] {
        assert_eq!(
            replace(admin, 1, body.clone()).await.problem(),
            problem,
            "{body}"
        );
    }
}

/// A dry run shows the effect on both nodes.
async fn expect_plan(admin: &Caller) {
    let plan = admin
        .expecting(1)
        .post("/v1/claims/c1/actions/replace?dry_run=true", &json!({}))
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&plan["effect"], plan["changes"].as_array().unwrap().len()),
        (&json!("wipe"), 3)
    );
    assert!(
        plan["changes"][2]
            .as_str()
            .unwrap()
            .starts_with("n1: is then drained"),
        "{plan}"
    );
}

/// A claim by labels needs a spare node with the labels.
async fn expect_no_spare(admin: &Caller) {
    let claim =
        json!({ "name": "odd", "spec": { "pool": "gpu", "selector": { "parity": "odd" } } });
    assert_eq!(
        admin.post("/v1/claims", &claim).await.expect(201).body["status"]["node"],
        "n3"
    );
    let lost = admin
        .expecting(1)
        .post("/v1/claims/odd/actions/replace", &json!({}))
        .await;
    assert_eq!(
        (lost.problem().1, lost.text.contains("parity")),
        ("no_spare", true),
        "{}",
        lost.text
    );
}

#[tokio::test]
async fn the_console_shows_the_plan_before_it_replaces() {
    let (_server, admin) = claimed(1).await;
    let form = admin.header("content-type", "application/x-www-form-urlencoded");
    let post = async |body: &str| {
        form.send(reqwest::Method::POST, "/ui/claims/c1/replace", body.into())
            .await
    };
    assert!(
        admin
            .get("/claims")
            .await
            .expect(200)
            .text
            .contains("action=\"/ui/claims/c1/replace\"")
    );
    let shown = post("").await.expect(200).text;
    for word in [
        "n2: its root disk is written",
        "n1: is then drained",
        "Replace n1",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert_eq!(
        admin.get("/v1/claims/c1").await.body["status"]["replacement"],
        Value::Null,
        "only shown"
    );
    assert_eq!(post("step=replace&generation=1&typed=n7").await.status, 422);
    assert_eq!(post("step=replace&generation=9&typed=n1").await.status, 412);
    let refused = post("node=n9").await;
    assert_eq!(
        (
            refused.status,
            refused.text.contains("There is no node called")
        ),
        (422, true),
        "{}",
        refused.text
    );
    assert_eq!(
        post("step=replace&generation=1&typed=n1&node=n3")
            .await
            .status,
        303
    );
    assert_eq!(
        admin.get("/v1/claims/c1").await.body["status"]["replacement"]["node"],
        "n3"
    );
}
