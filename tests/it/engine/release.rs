//! Release in every state: the node is wiped and available at the end, and the claim has ended.

use muster_core::gates::Verdict;
use muster_core::wire::result::Outcome;

use crate::simulated::World;

/// Runs a release to the end, and checks the result.
async fn comes_back(world: &mut World, name: &str) {
    world.settle().await;
    assert_eq!(world.state(name).await, "available");
    assert_eq!(
        world
            .admin
            .get(&format!("/v1/claims/c-{name}"))
            .await
            .status,
        404,
        "the claim is over"
    );
    assert!(world.machine(name, |machine| machine.empty()));
    assert_eq!(world.value(name, "wish").await, None);
    world.check().await;
}

/// The worker receives the release with a renewal, and the node moves after the end of the step.
#[tokio::test]
async fn in_the_middle_of_every_step_on_its_way_up() {
    let mut world = World::start(6).await;
    world.settle().await;
    let steps = [
        ("n1", "boot_live", "imaging"),
        ("n2", "write_image", "imaging"),
        ("n3", "converge", "installing"),
        ("n4", "gates", "validating"),
        ("n5", "reboot", "installing"),
        ("n6", "admit", "admitting"),
    ];
    for (name, kind, state) in steps {
        world.claim(name).await.expect(201);
        let job = world.until_leased(name, kind).await;
        assert_eq!(world.state(name).await, state);
        assert!(!world.agent.renew(&job).await.unwrap());
        let release = world.release(name).await.expect(202);
        world.engine().await;
        assert_eq!(
            world.state(name).await,
            state,
            "not before the step has stopped"
        );
        assert!(
            world.agent.renew(&job).await.unwrap(),
            "the renewal brings the cancellation"
        );
        world
            .agent
            .report(job.id, job.attempt, Outcome::Cancelled)
            .await
            .unwrap();
        comes_back(&mut world, name).await;
        assert_eq!(world.operation(&release).await, "succeeded");
        let wipes: Vec<i64> = world.machine(name, |machine| {
            machine
                .log
                .iter()
                .filter(|done| done.act == "wipe")
                .map(|done| done.epoch)
                .collect()
        });
        assert_eq!(wipes, [2], "{name} is wiped once, for its release");
    }
}

#[tokio::test]
async fn an_unleased_step_stops_at_once_and_a_late_success_is_ignored() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n2").await.expect(201);
    let job = world.until_leased("n2", "write_image").await;
    world.claim("n1").await.expect(201);
    world.engine().await;
    assert_eq!(world.state("n1").await, "imaging");
    world.release("n1").await.expect(202);
    world.release("n2").await.expect(202);
    world.engine().await;
    // The write had a permit before: the write succeeds, and the node is wiped.
    let released = world.agent.work(&job).await;
    assert!(released.is_ok(), "{released:?}");
    comes_back(&mut world, "n1").await;
    comes_back(&mut world, "n2").await;
}

#[tokio::test]
async fn from_where_it_rests() {
    let mut world = World::start(4).await;
    world.settle().await;
    world.fail("n2", "converge", false, 1);
    world.gates("n3", &[Verdict::Fail]);
    for name in ["n1", "n2", "n3", "n4"] {
        world.claim(name).await.expect(201);
    }
    world.settle().await;
    world.ask("n4", "maintain").await.expect(202);
    world.settle().await;
    for (name, state) in [
        ("n1", "in_service"),
        ("n2", "failed"),
        ("n3", "quarantined"),
        ("n4", "maintenance"),
    ] {
        assert_eq!(world.state(name).await, state);
        let release = world.release(name).await.expect(202);
        comes_back(&mut world, name).await;
        assert_eq!(world.operation(&release).await, "succeeded");
        world.claim(name).await.expect(201);
        assert!(
            world.release(name).await.status == 202,
            "and can be claimed again"
        );
    }
    world.settle().await;
}

#[tokio::test]
async fn while_it_drains_for_something_else() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.ask("n1", "drain").await.expect(202);
    let job = world.until_leased("n1", "drain").await;
    let release = world.release("n1").await.expect(202);
    world.engine().await;
    world.agent.work(&job).await.unwrap();
    comes_back(&mut world, "n1").await;
    assert_eq!(
        world.operation(&release).await,
        "succeeded",
        "and not before the node is clean"
    );
    assert_eq!(
        world.states("n1").await[6..],
        [
            "in_service",
            "draining",
            "wiping",
            "inspecting",
            "available"
        ]
    );
}

#[tokio::test]
async fn an_undrain_that_comes_too_late_is_refused_and_forgotten() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.ask("n1", "drain").await.expect(202);
    let job = world.until_leased("n1", "remove").await;
    let undrain = world.ask("n1", "undrain").await.expect(202);
    world.engine().await;
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&undrain).await.as_str()
        ),
        ("maintenance", "failed")
    );
    world.ask("n1", "resume").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.check().await;
}

#[tokio::test]
async fn an_undrain_ends_when_the_removal_fails() {
    let mut world = World::serving(1, |_, body| body).await;
    world.ask("n1", "drain").await.expect(202);
    world.fail("n1", "remove", false, 1);
    let job = world.until_leased("n1", "remove").await;
    let undrain = world.ask("n1", "undrain").await.expect(202);
    world.engine().await;
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    // After the failed drain, the person requests the undrain again.
    assert_eq!(
        (world.state("n1").await, world.operation(&undrain).await),
        ("failed".to_owned(), "failed".to_owned())
    );
    world.ask("n1", "undrain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.check().await;
}

#[tokio::test]
async fn a_protected_node_is_not_released() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world
        .admin
        .patch(
            "/v1/nodes/n1",
            &serde_json::json!({ "spec": { "protected": true } }),
        )
        .await
        .expect(200);
    assert_eq!(world.release("n1").await.problem(), (409, "protected", ""));
    assert_eq!(
        world.ask("n1", "drain").await.problem(),
        (409, "protected", "")
    );
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert!(!world.machine("n1", |machine| machine.empty()));
    world
        .admin
        .patch(
            "/v1/nodes/n1",
            &serde_json::json!({ "spec": { "protected": false } }),
        )
        .await
        .expect(200);
    world.release("n1").await.expect(202);
    comes_back(&mut world, "n1").await;
}
