//! Erasing actions of all kinds, under the limit of releases.

use muster_api::tokens::Role;
use muster_core::effects;
use muster_core::lifecycle::state::Action;
use serde_json::json;

use super::{claimed, decision, delete, token};
use crate::support::server::{Caller, Reply, Server};

/// Requests an erasing action on a node. The node is prepared for the action by [`standing`].
async fn erase(caller: &Caller, action: Action, number: u8) -> Reply {
    let because = json!({ "reason": "a test" });
    match action {
        Action::Release => delete(caller, number).await,
        action => {
            caller
                .expecting(1)
                .post(&format!("/v1/nodes/n{number}/actions/{action}"), &because)
                .await
        }
    }
}

/// Prepares a node for every erasing action. `n1` is claimed and can be released, and `n2` serves
/// and can be installed anew. `n3` has no claim and can be wiped.
async fn standing(server: &Server) {
    for statement in [
        "UPDATE claims SET state = 'released', released_at = now() WHERE name = 'c3'",
        "UPDATE nodes SET wish = NULL, operation_id = NULL",
        "UPDATE nodes SET state = 'in_service', in_cluster = true WHERE name = 'n2'",
        "UPDATE nodes SET state = 'quarantined', reason = 'a test' WHERE name = 'n3'",
        "UPDATE operations SET state = 'cancelled', finished_at = now() WHERE finished_at IS NULL",
    ] {
        sqlx::query(statement)
            .execute(&server.app.pool)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn erasures_beyond_the_limit_wait_for_a_second_person() {
    let (server, admin) = claimed(3, json!({})).await;
    standing(&server).await;
    let nothing = token(&server, &admin, "nothing", 0).await;
    let node = |action: Action| match action {
        Action::Release => 1,
        Action::Reinstall => 2,
        Action::Wipe => 3,
        other => panic!("{other} erases disks: say of which node it is asked"),
    };
    for action in effects::ERASES {
        let held = erase(&nothing, *action, node(*action)).await;
        assert_eq!(held.problem().1, "second_person", "{action}: {}", held.text);
        assert_eq!(
            erase(&nothing, *action, node(*action)).await.header("link"),
            held.header("link"),
            "{action}: asked once"
        );
        let path = format!("/v1/nodes/n2/actions/{action}?dry_run=true");
        if *action == Action::Reinstall {
            assert_eq!(
                nothing
                    .post(&path, &json!({ "reason": "a test" }))
                    .await
                    .problem()
                    .1,
                "second_person"
            );
        }
    }
    let open = admin.get("/v1/approvals").await.expect(200).body["items"]
        .as_array()
        .unwrap()
        .clone();
    let actions: Vec<&str> = open
        .iter()
        .map(|one| one["action"].as_str().unwrap_or("release"))
        .collect();
    assert_eq!(
        actions,
        effects::ERASES
            .iter()
            .map(|action| action.as_str())
            .collect::<Vec<_>>()
    );
    let begun = admin
        .get("/v1/operations?filter=state%21%3Dcancelled&count=exact")
        .await
        .expect(200);
    let erasing = begun.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["kind"] != "accept")
        .count();
    assert_eq!(erasing, 0, "nothing was begun: {}", begun.text);

    // An erasure counts toward the limit of every kind of erasure.
    let one = token(&server, &admin, "one", 1).await;
    erase(&one, Action::Reinstall, 2).await.expect(202);
    for action in [Action::Release, Action::Wipe] {
        assert_eq!(
            erase(&one, action, node(action)).await.problem().1,
            "second_person",
            "{action}"
        );
    }
}

#[tokio::test]
async fn an_approval_acts_for_the_requester_unless_the_node_moved_on() {
    let (server, admin) = claimed(3, json!({ "releases_per_hour": 0 })).await;
    standing(&server).await;
    // The pool's limit applies to every person.
    assert_eq!(
        erase(&admin, Action::Reinstall, 2).await.problem().1,
        "second_person"
    );
    let nothing = token(&server, &admin, "nothing", 0).await;
    assert_eq!(
        erase(&nothing, Action::Wipe, 3).await.problem().1,
        "second_person"
    );
    let open = admin
        .get("/v1/approvals?filter=action%3Dreinstall")
        .await
        .expect(200)
        .body["items"]
        .clone();
    assert_eq!(
        (open[0]["node"].as_str(), open[0]["reason"].as_str()),
        (Some("n2"), Some("a test"))
    );
    let other = server.caller(Role::Operator).await;
    assert!(
        other
            .get("/claims")
            .await
            .expect(200)
            .text
            .contains("Approve the new installation")
    );
    assert_eq!(
        admin
            .post(&decision(&open[0], "approve"), &json!({}))
            .await
            .status,
        403
    );
    let told = other
        .post(
            &format!("{}?dry_run=true", decision(&open[0], "approve")),
            &json!({}),
        )
        .await
        .expect(200);
    assert_eq!(told.body["state"], "approved");
    let agreed = other
        .post(&decision(&open[0], "approve"), &json!({}))
        .await
        .expect(200);
    let operation = format!(
        "/v1/operations/{}",
        agreed.body["operation"].as_str().unwrap()
    );
    let operation = admin.get(&operation).await.expect(200).body;
    assert_eq!(
        (operation["kind"].as_str(), operation["actor"].as_str()),
        (Some("reinstall"), open[0]["requested_by"].as_str())
    );
    expect_decided(&server, &admin, &other).await;
}

/// A request for an assignment of the node does not apply to the next assignment.
async fn expect_decided(server: &Server, admin: &Caller, other: &Caller) {
    let open = admin
        .get("/v1/approvals?filter=node%3Dn3")
        .await
        .expect(200)
        .body["items"]
        .clone();
    sqlx::query("UPDATE nodes SET epoch = epoch + 1 WHERE name = 'n3'")
        .execute(&server.app.pool)
        .await
        .unwrap();
    assert_eq!(
        other
            .post(&decision(&open[0], "approve"), &json!({}))
            .await
            .problem()
            .1,
        "decided"
    );
    other
        .post(&decision(&open[0], "deny"), &json!({}))
        .await
        .expect(200);
}
