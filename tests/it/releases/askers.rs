//! Requests for a second person: by authors without the right to end an undo window, and by authors
//! after the loss of the right.

use muster_api::tokens::Role;
use serde_json::{Value, json};

use super::{claimed, decision, delete, token};
use crate::support::server::{Caller, Reply, Server};

async fn erase_now(caller: &Caller, number: u8) -> Reply {
    let path = format!("/v1/claims/c{number}?erase_now=true");
    caller.expecting(1).delete(&path).await
}

async fn open_requests(admin: &Caller) -> Vec<Value> {
    let open = admin.get("/v1/approvals").await.expect(200).body;
    open["items"].as_array().unwrap().clone()
}

async fn events(server: &Server, kind: &str) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = $1")
        .bind(kind)
        .fetch_one(&server.app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn to_end_an_undo_window_needs_what_shortening_it_needs() {
    let (server, admin) = claimed(3, json!({ "undo_window_s": 86400 })).await;
    // The disks of a node that has served are kept.
    sqlx::query("UPDATE nodes SET state = 'in_service', in_cluster = true, os_host_key = 'k', unsanitised = true")
        .execute(&server.app.pool)
        .await
        .unwrap();
    let (operator, automation) = (
        server.caller(Role::Operator).await,
        server.caller(Role::Automation).await,
    );
    erase_now(&operator, 1).await.expect(202);
    let plan = json!({ "objects": [{ "kind": "claim", "name": "c2", "absent": true, "erase_now": true }] });
    let planned = operator.post("/v1/plan", &plan).await.expect(200);
    assert!(!planned.text.contains("second_person"), "{}", planned.text);

    let planned = automation.post("/v1/plan", &plan).await;
    assert!(planned.text.contains("second_person"), "{}", planned.text);
    let held = erase_now(&automation, 2).await.expect(409);
    assert_eq!(held.problem().1, "second_person");
    assert!(held.text.contains("approval.decide"), "{}", held.text);
    // Automation releases with the disks kept. The end of the window needs the second person.
    delete(&automation, 3).await.expect(202);
    assert_eq!(erase_now(&automation, 3).await.problem().1, "second_person");
    let status = admin.get("/v1/claims/c3").await.expect(200).body["status"].clone();
    assert!(status["undo_until"].is_string(), "{status}");
    for one in open_requests(&admin).await {
        let approve = decision(&one, "approve");
        operator.post(&approve, &json!({})).await.expect(200);
    }
    let status = admin.get("/v1/claims/c3").await.expect(200).body["status"].clone();
    assert!(status["undo_until"].is_null(), "{status}");

    // Without a window, the release erases the disks anyway.
    let (server, _) = claimed(1, json!({ "undo_window_s": 0 })).await;
    let automation = server.caller(Role::Automation).await;
    erase_now(&automation, 1).await.expect(202);
}

#[tokio::test]
async fn what_erases_disks_names_the_version_that_was_read() {
    let (server, admin) = claimed(3, json!({ "undo_window_s": 900 })).await;
    for statement in [
        "UPDATE nodes SET state = 'in_service', in_cluster = true, os_host_key = 'k', unsanitised = true, wish = NULL, operation_id = NULL WHERE name = 'n3'",
        "UPDATE operations SET state = 'cancelled', finished_at = now() WHERE finished_at IS NULL AND node_id = (SELECT id FROM nodes WHERE name = 'n3')",
    ] {
        sqlx::query(statement)
            .execute(&server.app.pool)
            .await
            .unwrap();
    }
    let any = admin.header("if-match", "*");
    let because = json!({ "reason": "a test" });
    let reinstall = "/v1/nodes/n3/actions/reinstall";
    for refused in [
        any.delete("/v1/claims/c1").await,
        any.delete("/v1/claims/c1?erase_now=true").await,
        any.post("/v1/claims/c2/actions/replace", &json!({})).await,
        any.post(reinstall, &because).await,
        any.post("/v1/nodes/n3/actions/wipe", &because).await,
    ] {
        let refused = refused.expect(400);
        assert_eq!(refused.body["errors"][0]["code"], "etag_required");
        assert!(refused.text.contains("ETag"), "{}", refused.text);
    }
    let dry_run = any.delete("/v1/claims/c1?dry_run=true").await;
    dry_run.expect(200);
    let node = admin.get("/v1/nodes/n3").await.expect(200).body["generation"].as_i64();
    let read = admin.expecting(node.unwrap());
    read.post(reinstall, &because).await.expect(202);
    delete(&admin, 1).await.expect(202);
    // A removal that erases no disk takes any version.
    any.delete("/v1/pools/gpu").await.expect(409);
}

#[tokio::test]
async fn requests_of_an_ended_token_and_person_are_withdrawn() {
    let (server, admin) = claimed(4, json!({})).await;
    let second = server.caller(Role::Operator).await;
    let now = server.app.clock.now();
    let mut conn = server.app.pool.acquire().await.unwrap();
    for name in ["ada", "bob"] {
        muster_server::db::users::insert(&mut conn, name, "no hash", "operator", now)
            .await
            .unwrap();
    }
    let mut askers = Vec::new();
    for name in ["revoked", "of-ada", "of-bob", "stays"] {
        askers.push(token(&server, &admin, name, 0).await);
    }
    for (name, person) in [("of-ada", "user:ada"), ("of-bob", "user:bob")] {
        sqlx::query("UPDATE tokens SET person = $2 WHERE name = $1")
            .bind(name)
            .bind(person)
            .execute(&server.app.pool)
            .await
            .unwrap();
    }
    server.seal_rows().await;
    for (number, asker) in (1..).zip(&askers) {
        let held = delete(asker, number).await.expect(409);
        assert_eq!(held.problem().1, "second_person");
    }
    let until = now + jiff::SignedDuration::from_hours(48);
    let waiver = json!({ "node": "n1", "gate": "node.profile", "reason": "a part is on its way", "until": until });
    let waiver = askers[0].post("/v1/waivers", &waiver).await.expect(201);
    assert_eq!(open_requests(&admin).await.len(), 5);

    let revoked = admin.expecting(1).delete("/v1/tokens/revoked").await;
    revoked.expect(204);
    let disable = "/v1/users/ada/actions/disable";
    admin.post(disable, &json!({})).await.expect(200);
    let left = open_requests(&admin).await;
    let authors: Vec<_> = left.iter().map(|one| &one["requested_by"]).collect();
    assert_eq!(authors, ["token:of-bob", "token:stays"]);
    assert_eq!(events(&server, "approval.withdrawn").await, 3);
    let path = format!("/v1/waivers/{}", waiver.body["id"].as_str().unwrap());
    assert_eq!(admin.get(&path).await.body["state"], "denied");

    // A request of an author with the right is approved, and work begins.
    let approve = decision(&left[1], "approve");
    second.post(&approve, &json!({})).await.expect(200);
    for claim in ["c1", "c2"] {
        let claim = admin.get(&format!("/v1/claims/{claim}")).await.expect(200);
        assert_eq!(claim.body["status"]["state"], "bound");
    }
    // A request past its end is not withdrawn.
    server
        .app
        .clock
        .advance(jiff::SignedDuration::from_hours(25));
    let disable = "/v1/users/bob/actions/disable";
    admin.post(disable, &json!({})).await.expect(200);
    assert_eq!(events(&server, "approval.withdrawn").await, 3);
}

#[tokio::test]
async fn an_approval_asks_again_whether_the_author_has_the_right() {
    let (server, admin) = claimed(3, json!({})).await;
    let second = server.caller(Role::Operator).await;
    let now = server.app.clock.now();
    let mut conn = server.app.pool.acquire().await.unwrap();
    muster_server::db::users::insert(&mut conn, "ada", "no hash", "operator", now)
        .await
        .unwrap();
    for (number, name) in [(1, "one"), (2, "two"), (3, "three")] {
        let asker = token(&server, &admin, name, 0).await;
        let held = delete(&asker, number).await.expect(409);
        assert_eq!(held.problem().1, "second_person");
    }
    let run = async |statement: &'static str| {
        let run = sqlx::query(statement).execute(&server.app.pool);
        run.await.unwrap();
        server.seal_rows().await;
    };
    run("UPDATE tokens SET person = 'user:ada' WHERE name = 'two'").await;
    let open = open_requests(&admin).await;
    let approve = async |number: usize| {
        let approve = decision(&open[number], "approve");
        second.post(&approve, &json!({})).await
    };
    approve(0).await.expect(200);

    // The person behind the token is a viewer now.
    run("UPDATE users SET role = 'viewer' WHERE name = 'ada'").await;
    let refused = approve(1).await.expect(409);
    assert_eq!(refused.problem().1, "asker_lost_rights");
    assert!(refused.text.contains("claim.release"), "{}", refused.text);
    // The token is past its end.
    run("UPDATE tokens SET expires_at = created_at + interval '1 second' WHERE name = 'three'")
        .await;
    server
        .app
        .clock
        .advance(jiff::SignedDuration::from_secs(60));
    let refused = approve(2).await.expect(409);
    assert_eq!(refused.problem().1, "asker_lost_rights");
    assert!(refused.text.contains("past its end"), "{}", refused.text);
    for claim in ["c2", "c3"] {
        let claim = admin.get(&format!("/v1/claims/{claim}")).await.expect(200);
        assert_eq!(claim.body["status"]["state"], "bound");
    }
    // The second person may deny both.
    for one in &open[1..] {
        let deny = decision(one, "deny");
        second.post(&deny, &json!({})).await.expect(200);
    }
}
