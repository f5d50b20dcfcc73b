//! The course of a replacement: the new node, the change of the claim, the release, the undo.

use muster_core::gates::Verdict;
use serde_json::{Value, json};

use super::{claim, message, serving, wiped};
use crate::simulated::World;
use crate::support::server::Reply;

#[tokio::test]
async fn the_node_that_comes_serves_before_the_other_goes() {
    let mut world = serving(2).await;
    let before = claim(&world, "c-n1").await;
    let replace = world.replace("n1").await.expect(202);
    assert_eq!(
        (&replace.body["kind"], &replace.body["target"]["name"]),
        (&json!("replace"), &json!("n2"))
    );
    assert_eq!(
        world.replace("n1").await.expect(202).body["id"],
        replace.body["id"],
        "asked again, it is the same"
    );
    world.until("n2", "validating").await;
    expect_both_shown(&world, &replace).await;

    world.until("n1", "draining").await;
    let after = claim(&world, "c-n1").await;
    assert_eq!(
        (&after["status"]["node"], &after["status"]["node_state"]),
        (&json!("n2"), &json!("in_service"))
    );
    assert_eq!(
        (&after["id"], &after["spec"], &after["generation"]),
        (&before["id"], &before["spec"], &json!(1))
    );
    assert_eq!(after["status"]["leaving"][0]["node"], "n1");
    assert!(
        after["status"]["leaving"][0]["undo_until"].is_string(),
        "{after}"
    );
    assert_eq!(world.operation(&replace).await, "succeeded");
    world.check().await;
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(&world, "n1")),
        ("available", 1)
    );
    assert_eq!(
        (world.state("n2").await.as_str(), wiped(&world, "n2")),
        ("in_service", 0)
    );
    assert_eq!(claim(&world, "c-n1").await["status"]["leaving"], json!([]));
    world.check().await;

    // The disks have the mark of the coming claim. The claim `c-n1` may write and wipe the disks.
    world.ask("n2", "reinstall").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        (world.state("n2").await.as_str(), wiped(&world, "n2")),
        ("available", 1)
    );
    world.check().await;
}

/// Before the change of the claim, the status shows both nodes, and `n1` serves.
async fn expect_both_shown(world: &World, replace: &Reply) {
    let meanwhile = claim(world, "c-n1").await;
    assert_eq!(
        (
            &meanwhile["status"]["node"],
            &meanwhile["status"]["replacement"]["node"],
            &meanwhile["status"]["ready"]
        ),
        (&json!("n1"), &json!("n2"), &json!(true)),
        "both are shown, and it serves"
    );
    assert_eq!(
        meanwhile["status"]["replacement"]["operation"],
        replace.body["id"]
    );
    let coming = claim(
        world,
        meanwhile["status"]["replacement"]["claim"]
            .as_str()
            .unwrap(),
    )
    .await;
    assert_eq!(
        (&coming["status"]["replaces"], &coming["status"]["ready"]),
        (&json!("c-n1"), &json!(false))
    );
    assert!(
        world
            .admin
            .get("/claims")
            .await
            .expect(200)
            .text
            .contains("→ <a href=\"/nodes/n2\"")
    );
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(world, "n1")),
        ("in_service", 0)
    );
}

#[tokio::test]
async fn the_node_that_was_replaced_can_be_taken_back_while_its_disks_are_kept() {
    let mut world = serving(2).await;
    world.replace("n1").await.expect(202);
    world.until("n1", "wiping").await;
    let leaving = claim(&world, "c-n1").await["status"]["leaving"][0]["claim"]
        .as_str()
        .unwrap()
        .to_owned();
    world
        .admin
        .post(&format!("/v1/claims/{leaving}/undo"), &json!({}))
        .await
        .expect(202);
    world.settle().await;
    for name in ["n1", "n2"] {
        assert_eq!(
            (world.state(name).await.as_str(), wiped(&world, name)),
            ("in_service", 0),
            "{name}"
        );
    }
    let own = claim(&world, &leaving).await;
    assert_eq!(
        (&own["status"]["node"], &own["spec"]["node"]),
        (&json!("n1"), &json!("n1"))
    );
    assert_eq!(
        own["status"]["replaces"],
        Value::Null,
        "it is one of its own now"
    );
    world.check().await;
}

#[tokio::test]
async fn cancelled_the_claim_keeps_its_node_and_the_other_goes_back() {
    let mut world = serving(2).await;
    let replace = world.replace("n1").await.expect(202);
    world.until("n2", "installing").await;
    world.cancel(&replace).await.expect(202);
    world.settle().await;
    assert_eq!(world.operation(&replace).await, "cancelled");
    let told = message(&world, &replace).await;
    assert!(told.contains("c-n1 keeps n1"), "{told}");
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(&world, "n1")),
        ("in_service", 0)
    );
    assert_eq!(
        (world.state("n2").await.as_str(), wiped(&world, "n2")),
        ("available", 1)
    );
    let kept = claim(&world, "c-n1").await;
    assert_eq!(
        (&kept["status"]["node"], &kept["status"]["replacement"]),
        (&json!("n1"), &Value::Null)
    );
    world.check().await;
    // After a second request, `n2` replaces `n1`.
    world.replace("n1").await.expect(202);
    world.settle().await;
    assert_eq!(claim(&world, "c-n1").await["status"]["node"], "n2");
    world.check().await;
}

#[tokio::test]
async fn a_node_that_does_not_get_to_service_takes_nothing_over() {
    let mut world = serving(3).await;
    world.gates("n2", &[Verdict::Fail]);
    let replace = world.replace("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.state("n2").await.as_str()
        ),
        ("in_service", "quarantined")
    );
    assert_eq!(world.operation(&replace).await, "failed");
    let told = message(&world, &replace).await;
    assert!(told.contains("c-n1 keeps n1"), "{told}");
    let kept = claim(&world, "c-n1").await;
    assert_eq!(
        (&kept["status"]["node"], &kept["status"]["replacement"]),
        (&json!("n1"), &Value::Null)
    );
    // The failed node keeps an ordinary claim, and a person can inspect the node.
    let holder = world.admin.get("/v1/nodes/n2").await.expect(200).body["status"]["claim"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        claim(&world, &holder).await["status"]["replaces"],
        Value::Null
    );
    assert_eq!(wiped(&world, "n2"), 0, "what it failed at can be looked at");
    let told: i64 =
        sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = 'claim.replacement_failed'")
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap();
    assert_eq!(told, 2, "once at each node");
    world.check().await;
    let again = world.replace("n1").await.expect(202);
    assert_eq!(again.body["target"]["name"], "n3");
    world.settle().await;
    assert_eq!(claim(&world, "c-n1").await["status"]["node"], "n3");
    world.check().await;
}

#[tokio::test]
async fn one_of_two_replacements_gets_the_last_spare() {
    let mut world = World::start(3).await;
    world.settle().await;
    for name in ["n1", "n2"] {
        world.claim(name).await.expect(201);
    }
    world.settle().await;
    let (one, other) = tokio::join!(world.replace("n1"), world.replace("n2"));
    let (won, lost) = if one.status == 202 {
        (one, other)
    } else {
        (other, one)
    };
    assert_eq!(
        (won.status, lost.problem().1),
        (202, "no_spare"),
        "{} {}",
        won.text,
        lost.text
    );
    for word in ["No node is to spare", "state=available", "--node"] {
        assert!(lost.text.contains(word), "{}", lost.text);
    }
    world.settle().await;
    let nodes = [claim(&world, "c-n1").await, claim(&world, "c-n2").await]
        .map(|one| one["status"]["node"].clone());
    assert_eq!(
        nodes.iter().filter(|node| **node == json!("n3")).count(),
        1,
        "{nodes:?}"
    );
    world.check().await;
}

#[tokio::test]
async fn a_claim_that_is_deleted_meanwhile_gives_both_nodes_back() {
    let mut world = serving(2).await;
    let replace = world.replace("n1").await.expect(202);
    world.until("n2", "installing").await;
    let plan = json!({ "objects": [{ "kind": "claim", "name": "c-n1", "absent": true }] });
    let plan = world.admin.post("/v1/plan", &plan).await.expect(200).body;
    assert_eq!(
        plan["objects"][0]["nodes"],
        json!(["n1", "n2"]),
        "both are named"
    );
    world.release("n1").await.expect(202);
    assert_eq!(world.operation(&replace).await, "cancelled");
    assert_eq!(world.replace("n1").await.problem().1, "releasing");
    world.settle().await;
    for name in ["n1", "n2"] {
        assert_eq!(
            (world.state(name).await.as_str(), wiped(&world, name)),
            ("available", 1),
            "{name}"
        );
    }
    world.check().await;
}
