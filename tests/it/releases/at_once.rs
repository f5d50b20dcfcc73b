//! Erasures at once, with the approval of a second person.

use muster_api::tokens::Role;
use serde_json::{Value, json};

use super::{claimed, decision, delete, token};
use crate::support::server::{Caller, Reply, Server};

/// Puts all nodes in service, with data on the disks.
async fn serve_all(server: &Server) {
    let serving = "UPDATE nodes SET state = 'in_service', in_cluster = true, os_host_key = 'k', unsanitised = true";
    sqlx::query(serving)
        .execute(&server.app.pool)
        .await
        .unwrap();
}

async fn erase_now(caller: &Caller, number: u8) -> Reply {
    caller
        .expecting(1)
        .delete(&format!("/v1/claims/c{number}?erase_now=true"))
        .await
}

async fn status(admin: &Caller, claim: &str) -> Value {
    admin
        .get(&format!("/v1/claims/{claim}"))
        .await
        .expect(200)
        .body["status"]
        .clone()
}

#[tokio::test]
async fn a_second_person_approves_an_immediate_erasure() {
    let (server, admin) = claimed(2, json!({ "undo_window_s": 900 })).await;
    serve_all(&server).await;
    let nothing = token(&server, &admin, "nothing", 0).await;
    for number in [1, 2] {
        assert_eq!(delete(&nothing, number).await.problem().1, "second_person");
    }
    // An approval of a release is no approval of an erasure at once.
    let other_action = erase_now(&nothing, 1).await.expect(409);
    assert_eq!(other_action.problem().1, "approval_open");
    let open = admin.get("/v1/approvals").await.expect(200).body["items"].clone();
    assert_eq!(open[0]["erase_now"], false);
    nothing
        .post(&decision(&open[0], "deny"), &json!({}))
        .await
        .expect(200);
    let held = erase_now(&nothing, 1).await.expect(409);
    assert_eq!(held.problem().1, "second_person");
    assert_eq!(
        erase_now(&nothing, 1).await.header("link"),
        held.header("link"),
        "asked once"
    );
    assert_eq!(delete(&nothing, 1).await.problem().1, "approval_open");

    // The page shows the erasure to the second person, and an event reports the erasure afterwards.
    let open = admin.get("/v1/approvals").await.expect(200).body["items"].clone();
    let [kept, erased] = open.as_array().unwrap().as_slice() else {
        panic!("{open}")
    };
    assert_eq!(
        (kept["erase_now"].as_bool(), erased["erase_now"].as_bool()),
        (Some(false), Some(true)),
        "{open}"
    );
    let other = server.caller(Role::Operator).await;
    let page = other.get("/claims").await.expect(200).text;
    assert!(
        page.contains("Approve the release and the erasing of its disks at once"),
        "{page}"
    );
    assert!(page.contains("Approve the release<"), "{page}");
    for (one, claim, undone) in [(kept, "c2", 202), (erased, "c1", 409)] {
        other
            .post(&decision(one, "approve"), &json!({}))
            .await
            .expect(200);
        let status = status(&admin, claim).await;
        assert_eq!(status["state"], "releasing");
        assert_eq!(status["undo_until"].is_string(), undone == 202, "{status}");
        assert_eq!(
            admin
                .post(&format!("/v1/claims/{claim}/undo"), &json!({}))
                .await
                .status,
            undone,
            "{claim}"
        );
    }
    let told = admin.get("/v1/nodes/n1/events").await.expect(200).text;
    assert!(
        told.contains("approved the release, with the disks erased at once, of n1"),
        "{told}"
    );
}

/// The approval was for a release with an undo, so an erasure at once needs a second approval.
#[tokio::test]
async fn what_is_kept_after_a_release_is_not_erased_beyond_the_limit() {
    let (server, admin) = claimed(2, json!({ "undo_window_s": 900 })).await;
    serve_all(&server).await;
    let (nothing, other) = (
        token(&server, &admin, "nothing", 0).await,
        server.caller(Role::Operator).await,
    );
    let only = async |word: &str| {
        let open = admin.get("/v1/approvals").await.expect(200).body["items"].clone();
        let [one] = open.as_array().unwrap().as_slice() else {
            panic!("{open}")
        };
        other
            .post(&decision(one, word), &json!({}))
            .await
            .expect(200)
    };
    let kept =
        async |number: u8| status(&admin, &format!("c{number}")).await["undo_until"].is_string();
    assert_eq!(delete(&nothing, 1).await.problem().1, "second_person");
    only("approve").await;
    for number in [1, 2] {
        // The administrator releases the second claim, not the token without releases.
        if number == 2 {
            delete(&admin, 2).await.expect(202);
        }
        assert_eq!(
            erase_now(&nothing, number).await.problem().1,
            "second_person"
        );
        assert!(kept(number).await);
        assert_eq!(
            erase_now(&nothing, number).await.problem().1,
            "second_person",
            "asked once"
        );
        match number {
            // An undo of the release also withdraws the open request for an erasure.
            1 => {
                admin
                    .post("/v1/claims/c1/undo", &json!({}))
                    .await
                    .expect(202);
                assert_eq!(
                    admin.get("/v1/approvals").await.expect(200).body["items"],
                    json!([])
                );
            }
            _ => {
                only("approve").await;
                assert!(!kept(number).await);
            }
        }
    }
    let told = admin.get("/v1/nodes/n2/events").await.expect(200).body["items"].clone();
    let erased = told
        .as_array()
        .unwrap()
        .iter()
        .find(|event| event["kind"] == "claim.erase_now");
    let erased = erased.unwrap_or_else(|| panic!("{told}"));
    assert_eq!(
        (&erased["actor"], &erased["detail"]["claim"]),
        (&json!("token:nothing"), &json!("c2"))
    );
}
