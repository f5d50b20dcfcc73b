//! Limits of releases per hour. Beyond the limit, a second person decides.

use muster_api::tokens::Role;
use serde_json::{Value, json};

use super::{claimed, decision, delete, token};
use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

#[tokio::test]
async fn beyond_the_limit_of_an_hour_a_second_person_decides() {
    let (server, admin) = claimed(5, json!({})).await;
    let (ci, also_ci) = (
        token(&server, &admin, "ci", 2).await,
        token(&server, &admin, "ci-2", 2).await,
    );
    delete(&ci, 1).await.expect(202);
    delete(&ci, 2).await.expect(202);
    let held = ask_twice(&ci).await;
    // A token with a limit cannot create a token with a higher limit.
    let more = |most: u32| json!({ "name": format!("m{most}"), "role": "operator", "expires_in_s": 600, "releases_per_hour": most });
    assert_eq!(ci.post("/v1/tokens", &more(3)).await.problem().0, 403);
    ci.post("/v1/tokens", &more(2)).await.expect(201);
    assert_eq!(
        delete(&ci, 1).await.status,
        202,
        "what is being released stays so"
    );
    // The limit counts all tokens of a person together.
    assert_eq!(delete(&also_ci, 4).await.problem().1, "second_person");
    let open = admin.get("/v1/approvals").await.expect(200).body;
    let [third, fourth] = open["items"].as_array().unwrap().as_slice() else {
        panic!("{open}")
    };
    assert!(held.header("link").contains(third["id"].as_str().unwrap()));
    assert_eq!(
        (third["claim"].as_str(), third["requested_by"].as_str()),
        (Some("c3"), Some("token:ci"))
    );
    let approve = decision(third, "approve");
    expect_forbidden(&server, &admin, [&ci, &also_ci], &approve).await;

    // A second person decides on the page.
    let other = server.caller(Role::Operator).await;
    approve_on_page(&other, &ci, third).await;
    let claim = admin.get("/v1/claims/c3").await.expect(200).body;
    assert_eq!(claim["status"]["state"], "releasing");
    assert_eq!(
        other
            .post(&decision(third, "deny"), &json!({}))
            .await
            .problem()
            .1,
        "decided"
    );
    other
        .post(&decision(fourth, "deny"), &json!({}))
        .await
        .expect(200);
    assert_eq!(
        admin.get("/v1/claims/c4").await.expect(200).body["status"]["state"],
        "bound"
    );
    assert_eq!(
        admin.get("/v1/approvals").await.expect(200).body["items"]
            .as_array()
            .unwrap()
            .len(),
        0
    );

    // An hour later the same token releases again.
    server
        .app
        .clock
        .advance(jiff::SignedDuration::from_mins(61));
    delete(&ci, 5).await.expect(202);
}

/// Two requests beyond the limit open a single approval. Returns the first answer.
async fn ask_twice(ci: &Caller) -> Reply {
    let held = delete(ci, 3).await.expect(409);
    assert_eq!(held.problem().1, "second_person");
    assert_eq!(
        delete(ci, 3).await.header("link"),
        held.header("link"),
        "asked once"
    );
    let link = held
        .header("link")
        .split(['<', '>'])
        .nth(1)
        .unwrap()
        .to_owned();
    let asked = ci.get(&link).await.expect(200).body;
    assert_eq!(
        (asked["claim"].as_str(), asked["state"].as_str()),
        (Some("c3"), Some("open"))
    );
    held
}

/// The requesting person and a viewer may not approve the release of `c3`.
async fn expect_forbidden(
    server: &Server,
    admin: &Caller,
    [ci, also_ci]: [&Caller; 2],
    approve: &str,
) {
    for same in [ci, also_ci, admin] {
        assert_eq!(same.post(approve, &json!({})).await.status, 403);
    }
    let claim = admin.get("/v1/claims/c3").await.expect(200).body;
    assert_eq!(claim["status"]["state"], "bound");
    assert_eq!(
        server
            .caller(Role::Viewer)
            .await
            .post(approve, &json!({}))
            .await
            .status,
        403
    );
}

/// Approves a release on the page of claims. The requester sees the open request.
async fn approve_on_page(other: &Caller, ci: &Caller, third: &Value) {
    let page = other.get("/claims").await.expect(200).text;
    assert!(
        page.contains("Waiting for a second person") && page.contains("Approve the release"),
        "{page}"
    );
    assert!(
        ci.get("/claims")
            .await
            .expect(200)
            .text
            .contains("somebody else must agree")
    );
    let form = other.header("content-type", "application/x-www-form-urlencoded");
    let address = format!("/ui/approvals/{}/approve", third["id"].as_str().unwrap());
    assert_eq!(
        form.send(reqwest::Method::POST, &address, Vec::new())
            .await
            .status,
        303
    );
}

#[tokio::test]
async fn concurrent_releases_respect_the_limit_and_undone_ones_do_not_count() {
    let (server, admin) = claimed(8, json!({ "releases_per_hour": 3 })).await;
    let other = server.caller(Role::Operator).await;
    let all = (1..=8).map(|number| {
        let caller = if number % 2 == 0 {
            admin.clone()
        } else {
            other.clone()
        };
        tokio::spawn(async move { delete(&caller, number).await.status })
    });
    let mut statuses = Vec::new();
    for one in all.collect::<Vec<_>>() {
        statuses.push(one.await.unwrap());
    }
    assert_eq!(
        statuses.iter().filter(|status| **status == 202).count(),
        3,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|status| **status == 409).count(),
        5,
        "{statuses:?}"
    );
    sqlx::query(
        "UPDATE operations SET state = 'cancelled', finished_at = now() WHERE kind = 'release'",
    )
    .execute(&server.app.pool)
    .await
    .unwrap();
    let left = statuses.iter().position(|status| *status == 409).unwrap();
    delete(&admin, u8::try_from(left + 1).unwrap())
        .await
        .expect(202);
}

#[tokio::test]
async fn who_may_not_agree_to_a_release_may_not_loosen_the_pools_limits_either() {
    let (server, _) = claimed(1, json!({ "releases_per_hour": 3, "undo_window_s": 600 })).await;
    let automation = server.caller(Role::Automation).await;
    let pool = |limit: Value, window: u32| {
        let mut body = fleet::pool();
        body["spec"]["releases_per_hour"] = limit;
        body["spec"]["undo_window_s"] = json!(window);
        body
    };
    automation
        .put("/v1/pools/gpu", &pool(json!(2), 900))
        .await
        .expect(200);
    for (limit, window) in [(json!(3), 900), (Value::Null, 900), (json!(2), 899)] {
        let mut body = pool(limit, window);
        if body["spec"]["releases_per_hour"].is_null() {
            body["spec"]
                .as_object_mut()
                .unwrap()
                .remove("releases_per_hour");
        }
        let refused = automation.put("/v1/pools/gpu", &body).await;
        assert_eq!(refused.problem().1, "forbidden", "{body}");
        assert!(refused.text.contains("approval.decide"), "{}", refused.text);
    }
    server
        .caller(Role::Operator)
        .await
        .put("/v1/pools/gpu", &pool(json!(9), 60))
        .await
        .expect(200);
}
