//! Nodes left out of a run, and the return of all nodes to the scheduler.

use muster_core::clusters::DrainReason;
use muster_core::wire::scheduler::{ClusterLook, NodeOut, SchedulerReport, SchedulerWatch};
use serde_json::json;

use super::{NODES, begin, found, given_back, operation, pairs, serving, told, verdicts};

#[tokio::test]
async fn a_node_that_keeps_its_jobs_is_left_out_and_serves_on() {
    let mut world = serving().await;
    world.fail("n3", "drain", true, 1);
    world.ask("n5", "drain").await.expect(202);
    let id = begin(&world).await;
    world.settle().await;
    let run = found(&world, &id).await;
    let why = |name: &str| {
        let end = run["ends"]
            .as_array()
            .unwrap()
            .iter()
            .find(|end| end["node"] == name)
            .unwrap();
        (
            end["verdict"].as_str().unwrap().to_owned(),
            end["why"].as_str().unwrap_or_default().to_owned(),
        )
    };
    assert_eq!(
        why("n3"),
        (
            "left_out".into(),
            "its scheduler did not hold it: the simulated drain failed".into()
        )
    );
    assert_eq!(
        why("n5"),
        ("left_out".into(), "it was asked to drain".into())
    );
    assert_eq!(why("n1").0, "good");
    assert_eq!(
        (world.state("n3").await.as_str(), run["state"].as_str()),
        ("in_service", Some("done"))
    );
    given_back(&world).await;
}

#[tokio::test]
async fn a_node_requested_elsewhere_leaves_and_its_results_are_void() {
    let mut world = serving().await;
    // A slow network of `n6` stands for the effects of a drain.
    world.rack().fabric.slow.insert("n6".into());
    let id = begin(&world).await;
    let job = world.until_leased("n1", "pair").await;
    world.ask("n6", "drain").await.expect(202);
    world.engine().await;
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    let run = found(&world, &id).await;
    let first = pairs(&run)
        .iter()
        .find(|pair| pair["a"] == "n1" && pair["round"] == 1)
        .unwrap();
    assert_eq!(
        (&first["b"], &first["verdict"]),
        (&json!("n6"), &json!("error")),
        "{first:#}"
    );
    let end = run["ends"]
        .as_array()
        .unwrap()
        .iter()
        .find(|end| end["node"] == "n6")
        .unwrap();
    assert_eq!(
        (&end["verdict"], &end["why"]),
        (&json!("unknown"), &json!("it is draining"))
    );
    assert_eq!(world.state("n6").await, "maintenance");
    assert_eq!(
        verdicts(&run)
            .iter()
            .filter(|(_, verdict)| *verdict == "good")
            .count(),
        5
    );
    given_back(&world).await;
}

#[tokio::test]
async fn a_run_that_is_stopped_or_out_of_time_gives_everybody_back() {
    for (late, state, operation_state) in
        [(false, "stopped", "cancelled"), (true, "overdue", "failed")]
    {
        let mut world = serving().await;
        let id = begin(&world).await;
        let job = world.until_leased("n1", "pair").await;
        match late {
            true => world.advance(2 * 3600 + 1),
            false => drop(
                world
                    .admin
                    .post(&format!("/v1/operations/{id}/cancel"), &json!({}))
                    .await
                    .expect(202),
            ),
        }
        world.engine().await;
        assert_eq!(
            found(&world, &id).await["state"],
            "running",
            "nobody gets jobs while they are measured"
        );
        world.agent.work(&job).await.unwrap();
        world.settle().await;
        let run = found(&world, &id).await;
        assert_eq!(run["state"], state, "{run:#}");
        assert!(
            verdicts(&run)
                .iter()
                .all(|(_, verdict)| *verdict != "blamed"),
            "{run:#}"
        );
        assert_eq!(operation(&world, &id).await["state"], operation_state);
        for name in NODES {
            assert_eq!(world.state(name).await, "in_service", "{name}");
        }
        given_back(&world).await;
    }
}

/// The operation of a run ends after the return of the last node. The next run may then be
/// requested.
#[tokio::test]
async fn a_run_is_over_when_everybody_is_given_back() {
    let mut world = serving().await;
    let id = begin(&world).await;
    let job = loop {
        let job = world.until_leased("n1", "admit").await;
        if found(&world, &id).await["state"] == "done" {
            break job;
        }
        world.agent.work(&job).await.unwrap();
    };
    world.engine().await;
    let told = operation(&world, &id).await;
    assert_eq!(
        (told["state"].as_str(), told["done"].as_bool()),
        (Some("running"), Some(false)),
        "{told}"
    );
    let message = told["progress"]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "15 pairs of 6 nodes: no fault found; the nodes return to the scheduler"
    );
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    let told = operation(&world, &id).await;
    assert_eq!(
        (&told["state"], &told["progress"]["message"]),
        (
            &json!("succeeded"),
            &json!("15 pairs of 6 nodes: no fault found")
        )
    );
    given_back(&world).await;
    let again = begin(&world).await;
    assert_eq!(
        found(&world, &again).await["ends"]
            .as_array()
            .unwrap()
            .len(),
        6,
        "everybody takes part"
    );
}

#[tokio::test]
async fn a_scheduler_that_takes_no_node_back_keeps_no_run_open_for_ever() {
    let mut world = serving().await;
    // The server asks the scheduler once a minute. The run's operation waits for ten minutes.
    world.fail("n3", "admit", false, 15);
    let id = begin(&world).await;
    world.settle().await;
    let told = operation(&world, &id).await;
    assert_eq!(told["state"], "succeeded", "{told}");
    let message = told["progress"]["message"].as_str().unwrap();
    assert!(
        message.ends_with("; 1 nodes not yet resumed by the scheduler, retried: n3"),
        "{message}"
    );
    given_back(&world).await;
}

#[tokio::test]
async fn that_a_scheduler_shows_a_held_node_drained_is_no_news() {
    let mut world = serving().await;
    begin(&world).await;
    world.engine().await;
    let epoch = world.agent.epoch;
    let nothing = SchedulerReport {
        epoch,
        looks: vec![],
    };
    let watch: SchedulerWatch = world
        .agent
        .call("/agent/v1/scheduler", &nothing)
        .await
        .unwrap();
    let shown = |reason: &str| {
        let held = NodeOut {
            name: "n1".into(),
            state: "drained".into(),
            reason: Some(reason.into()),
        };
        SchedulerReport {
            epoch,
            looks: vec![ClusterLook {
                cluster: watch.clusters[0].id,
                out: vec![held],
            }],
        }
    };
    let _watch: SchedulerWatch = world
        .agent
        .call(
            "/agent/v1/scheduler",
            &shown(DrainReason::Measurement.as_str()),
        )
        .await
        .unwrap();
    assert_eq!(told(&world, "scheduler.out").await, 0);
    // A drain by the node's health check is news, also during the run.
    let unfit = shown("muster: gate kernel.new: kernel.xid_fatal is 1 events");
    let _watch: SchedulerWatch = world
        .agent
        .call("/agent/v1/scheduler", &unfit)
        .await
        .unwrap();
    assert_eq!(told(&world, "scheduler.out").await, 1);
    world.settle().await;
    given_back(&world).await;
}
