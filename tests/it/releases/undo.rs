//! Undo of a release, until the wipe of the disks begins.

use serde_json::json;

use crate::simulated::World;

/// Nodes after a release and a drain. The next step is the wipe.
async fn drained(nodes: u8) -> World {
    let mut world = World::serving(nodes, |_, body| body).await;
    for number in 1..=nodes {
        world.release(&format!("n{number}")).await.expect(202);
    }
    for _ in 0..10 {
        world.pass().await;
    }
    world
}

fn wiped(world: &World, name: &str) -> usize {
    world.machine(name, |machine| {
        machine.log.iter().filter(|done| done.act == "wipe").count()
    })
}

#[tokio::test]
async fn the_disks_are_kept_for_the_pools_window_and_then_they_are_not() {
    let mut world = drained(1).await;
    assert_eq!(world.state("n1").await, "wiping");
    let acts = world.machine("n1", |machine| machine.log.len());
    world.advance(14 * 60);
    for _ in 0..5 {
        world.pass().await;
    }
    assert_eq!(
        world.machine("n1", |machine| machine.log.len()),
        acts,
        "not even powered"
    );
    let why = world.admin.get("/v1/nodes/n1/why").await.expect(200).text;
    assert!(
        why.contains("the disks are kept until") && why.contains("claim undo"),
        "{why}"
    );
    let claim = world.admin.get("/v1/claims/c-n1").await.expect(200).body;
    assert!(claim["status"]["undo_until"].is_string(), "{claim}");
    world.advance(61);
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(&world, "n1")),
        ("available", 1)
    );
    assert_eq!(
        world.undo("n1").await.status,
        404,
        "there is nothing left to take back"
    );
    world.check().await;
}

#[tokio::test]
async fn an_undone_release_goes_back_through_the_gates() {
    let mut world = drained(1).await;
    let undo = world.undo("n1").await.expect(202);
    assert_eq!(
        world.undo("n1").await.expect(202).body["id"],
        undo.body["id"],
        "the same call, the same operation"
    );
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(world.operation(&undo).await, "succeeded");
    assert_eq!(
        world.states("n1").await[6..],
        [
            "in_service",
            "draining",
            "wiping",
            "validating",
            "admitting",
            "in_service"
        ]
    );
    assert_eq!(wiped(&world, "n1"), 0);
    let claim = world.admin.get("/v1/claims/c-n1").await.expect(200).body;
    assert_eq!(
        (
            claim["status"]["state"].as_str(),
            claim["status"]["epoch"].as_i64()
        ),
        (Some("bound"), Some(3))
    );
    // The OS was written under the first epoch, and accepts logins of the first epoch.
    assert_eq!(world.value("n1", "os_epoch").await.as_deref(), Some("1"));
    world.check().await;
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(&world, "n1")),
        ("available", 1)
    );
    world.check().await;
}

#[tokio::test]
async fn undone_before_and_while_it_drains_it_stays_in_the_scheduler() {
    let mut world = World::start(2).await;
    world.settle().await;
    for name in ["n1", "n2"] {
        world.claim(name).await.expect(201);
    }
    world.settle().await;
    world.release("n1").await.expect(202);
    world.undo("n1").await.expect(202);
    world.release("n2").await.expect(202);
    world.until_leased("n2", "drain").await;
    world.undo("n2").await.expect(202);
    world.engine().await;
    world.advance(31);
    world.expire_leases().await;
    world.settle().await;
    for name in ["n1", "n2"] {
        assert_eq!(
            (world.state(name).await.as_str(), wiped(&world, name)),
            ("in_service", 0),
            "{name}"
        );
        assert_eq!(world.value(name, "wish").await, None);
    }
    world.check().await;
}

#[tokio::test]
async fn undone_before_it_left_where_it_rested_it_rests_there_again() {
    let mut world = World::start(2).await;
    world.settle().await;
    for (name, action, state) in [
        ("n1", "quarantine", "quarantined"),
        ("n2", "maintain", "maintenance"),
    ] {
        world.claim(name).await.expect(201);
        world.settle().await;
        world.ask(name, action).await.expect(202);
        world.settle().await;
        assert_eq!(world.state(name).await, state);
        world.release(name).await.expect(202);
        let claim = world
            .admin
            .get(&format!("/v1/claims/c-{name}"))
            .await
            .expect(200)
            .body;
        assert!(claim["status"]["undo_until"].is_string(), "{claim}");
        let undo = world.undo(name).await.expect(202);
        world.settle().await;
        assert_eq!(
            (
                world.state(name).await.as_str(),
                world.operation(&undo).await.as_str()
            ),
            (state, "succeeded")
        );
        let claim = world
            .admin
            .get(&format!("/v1/claims/c-{name}"))
            .await
            .expect(200)
            .body;
        assert_eq!(
            (&claim["status"]["state"], &claim["status"]["undo_until"]),
            (&json!("bound"), &json!(null))
        );
        assert_eq!(
            (wiped(&world, name), world.value(name, "wish").await),
            (0, None)
        );
    }
    world.ask("n2", "resume").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    world.check().await;
}

#[tokio::test]
async fn erased_now_there_is_nothing_to_undo() {
    let mut world = drained(2).await;
    world
        .admin
        .expecting(1)
        .delete("/v1/claims/c-n1?erase_now=true")
        .await
        .expect(202);
    world.pass().await;
    assert_eq!(world.undo("n1").await.problem().1, "not_undoable");
    // The undo window of `n2` is over, and the wipe has begun.
    world.advance(16 * 60);
    world.until_leased("n2", "boot_live").await;
    assert_eq!(world.undo("n2").await.problem().1, "not_undoable");
    assert_eq!(world.undo("n3").await.status, 404);
}
