//! Replacements with crashes at every step, and with a delete of the claim at the same time.

use super::{claim, message, serving, wiped};
use crate::simulated::Fuel;

#[tokio::test]
async fn replaced_and_deleted_at_once_no_node_is_left_behind() {
    for round in 0..6 {
        let mut world = serving(2).await;
        if round % 2 == 0 {
            world.replace("n1").await.expect(202);
            world.until("n2", "admitting").await;
        }
        let app = world.server.app.clone();
        let engine =
            tokio::spawn(async move { muster_server::engine::run_until_idle(&app).await.unwrap() });
        let (replaced, deleted) = tokio::join!(world.replace("n1"), world.release("n1"));
        engine.await.unwrap();
        assert_eq!(deleted.status, 202, "{}", deleted.text);
        assert!(
            [202, 404, 409].contains(&replaced.status),
            "{}",
            replaced.text
        );
        world.settle().await;
        for name in ["n1", "n2"] {
            assert_eq!(
                world.state(name).await,
                "available",
                "{name} in round {round}"
            );
        }
        world.check().await;
    }
}

#[tokio::test]
async fn killed_at_every_step_it_comes_to_the_same_end() {
    let mut world = serving(2).await;
    world.fuel = Fuel::OneMore(1);
    let replace = world.replace("n1").await.expect(202);
    let mut passes = 0;
    while claim(&world, "c-n1").await["status"]["node"] == "n1" {
        passes += 1;
        assert!(passes < 2000, "it does not get there");
        assert!(world.state("n1").await == "in_service" || world.state("n2").await == "in_service");
        if !world.pass().await {
            world.advance(31);
            world.expire_leases().await;
        }
        world.restart_server().await;
    }
    assert_eq!(world.operation(&replace).await, "succeeded");
    world.fuel = Fuel::Forever;
    world.expire_leases().await;
    world.settle().await;
    assert_eq!(
        (world.state("n1").await.as_str(), wiped(&world, "n1")),
        ("available", 1)
    );
    assert_eq!(
        (world.state("n2").await.as_str(), wiped(&world, "n2")),
        ("in_service", 0)
    );
    world.check().await;
}

#[tokio::test]
async fn a_change_after_service_survives_a_crash_of_the_server() {
    let mut world = serving(2).await;
    let replace = world.replace("n1").await.expect(202);
    let admit = world.until_leased("n2", "admit").await;
    // The transaction of the report puts `n2` in service. A later transaction changes the claim.
    world.agent.work(&admit).await.unwrap();
    assert_eq!(
        (
            world.state("n2").await.as_str(),
            world.state("n1").await.as_str()
        ),
        ("in_service", "in_service")
    );
    assert_eq!(
        world.operation(&replace).await,
        "running",
        "not over before the claim has it"
    );
    assert_eq!(claim(&world, "c-n1").await["status"]["node"], "n1");
    world.restart_server().await;
    world.engine().await;
    assert_eq!(claim(&world, "c-n1").await["status"]["node"], "n2");
    assert_eq!(world.operation(&replace).await, "succeeded");

    // A cancel between the two transactions ends the replacement.
    world.settle().await;
    let back = world.replace("n1").await.expect(202);
    let admit = world.until_leased("n1", "admit").await;
    world.agent.work(&admit).await.unwrap();
    world.cancel(&back).await.expect(202);
    world.settle().await;
    assert_eq!(world.operation(&back).await, "cancelled");
    let told = message(&world, &back).await;
    assert!(told.contains("c-n1 keeps n2"), "{told}");
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.state("n2").await.as_str()
        ),
        ("available", "in_service")
    );
    world.check().await;
}
