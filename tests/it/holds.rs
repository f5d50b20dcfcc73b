//! Legal holds by the API: the right, the reason, the answer to a deletion, and the events.

use muster_api::tokens::Role;
use serde_json::json;

use crate::support::fleet;
use crate::support::server::{Caller, Server};

const HOLD: &str = "/v1/nodes/n1/hold";

async fn list_kinds(admin: &Caller) -> Vec<String> {
    let events = admin.get("/v1/nodes/n1/events").await.expect(200).body;
    let events = events["items"].as_array().unwrap();
    let kinds = events.iter().map(|event| event["kind"].as_str().unwrap());
    let kinds = kinds.filter(|kind| kind.starts_with("records."));
    kinds.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_node_is_held_by_a_right_with_a_reason_and_released_again() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    admin.get(HOLD).await.expect(404);
    let reason = json!({ "reason": " case 7 " });
    let held = admin.post(HOLD, &reason).await.expect(201);
    assert_eq!(held.header("location"), HOLD);
    assert_eq!(held.body["node"], "n1");
    assert_eq!(held.body["reason"], "case 7");
    let by = held.body["held_by"].as_str().unwrap();
    assert!(by.starts_with("token:admin"), "{by}");
    // The first reason stays.
    let again = admin.post(HOLD, &json!({ "reason": "case 8" })).await;
    assert_eq!(again.expect(200).body, held.body);
    assert_eq!(admin.get(HOLD).await.expect(200).body, held.body);
    let refused = admin.expecting(1).delete("/v1/nodes/n1").await;
    assert_eq!(refused.problem().1, "held", "{}", refused.text);

    // Without the right the same calls are refused, and the hold stays.
    let any = "\"1\"";
    for role in [Role::Operator, Role::ReleaseOwner, Role::Viewer] {
        let other = server.caller(role).await.header("if-match", any);
        other.get(HOLD).await.expect(403);
        other.post(HOLD, &reason).await.expect(403);
        let path = format!("{HOLD}?reason=over");
        other.delete(&path).await.expect(403);
    }
    assert_eq!(list_kinds(&admin).await, ["records.held"]);

    admin
        .delete(&format!("{HOLD}?reason=over"))
        .await
        .expect(428);
    let precise = admin.expecting(1);
    let unexplained = precise.delete(HOLD).await;
    assert_eq!(unexplained.problem(), (422, "unprocessable", "reason"));
    let path = format!("{HOLD}?reason=over");
    precise.delete(&path).await.expect(204);
    admin.get(HOLD).await.expect(404);
    precise.delete(&path).await.expect(404);
    let mut kinds = list_kinds(&admin).await;
    kinds.sort();
    assert_eq!(kinds, ["records.held", "records.released"]);
    precise.delete("/v1/nodes/n1").await.expect(204);
}

#[tokio::test]
async fn a_hold_needs_a_reason_and_a_known_node() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    for (reason, status) in [("", 422), ("  ", 422), ("case 7", 201)] {
        let reply = admin.post(HOLD, &json!({ "reason": reason })).await;
        assert_eq!(reply.status, status, "{reason:?}: {}", reply.text);
    }
    let long = json!({ "reason": "x".repeat(501) });
    assert_eq!(
        admin.post(HOLD, &long).await.problem(),
        (422, "unprocessable", "/reason")
    );
    let reason = json!({ "reason": "x" });
    let unknown = admin.post("/v1/nodes/n2/hold", &reason);
    unknown.await.expect(404);
}
