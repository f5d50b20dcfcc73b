//! Root disks written by ladders, within the hourly limit of the pool.

use muster_core::gates::Verdict;
use serde_json::json;

use super::watched;
use crate::simulated::World;

fn images(world: &World, name: &str) -> usize {
    world.machine(name, |machine| {
        let acts = machine.log.iter();
        acts.filter(|done| done.act == "image").count()
    })
}

/// A root disk written by a ladder counts like a reinstallation by a person.
#[tokio::test]
async fn ladders_write_images_within_the_hourly_limit_of_their_pool() {
    let mut world = World::serving(2, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] = watched(&["reimage"]);
            body["spec"]["releases_per_hour"] = json!(1);
        }
        body
    })
    .await;
    for name in ["n1", "n2"] {
        world.gates(name, &[Verdict::Fail]);
        world.ask(name, "sweep").await.expect(202);
        world.settle().await;
    }
    assert_eq!(
        (world.state("n1").await.as_str(), images(&world, "n1")),
        ("in_service", 2)
    );
    assert_eq!(
        (world.state("n2").await.as_str(), images(&world, "n2")),
        ("quarantined", 1)
    );
    let reason = world.value("n2", "reason").await.unwrap();
    assert!(reason.contains("the limit of 1"), "{reason}");
    let reinstall = world.ask("n1", "reinstall").await;
    assert_eq!(reinstall.problem().1, "second_person");

    world.advance(3601);
    // A recovery by a person tests the node first; a failing gate then leads to the ladder.
    world.gates("n2", &[Verdict::Fail]);
    world.ask("n2", "recover").await.expect(202);
    world.settle().await;
    assert_eq!(
        (world.state("n2").await.as_str(), images(&world, "n2")),
        ("in_service", 2)
    );
    world.check().await;
}
