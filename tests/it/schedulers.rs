//! Nodes that take no jobs, by the scheduler's report. The server marks the nodes and emits events.
//! A drain by the health check starts a recovery, and a drain by others stays.

use jiff::SignedDuration;
use muster_core::clusters::DrainReason;
use muster_core::gates::Verdict;
use muster_core::ids::ObjectId;
use muster_core::wire::job::JobSpec;
use muster_core::wire::scheduler::{ClusterLook, NodeOut, SchedulerReport, SchedulerWatch};
use serde_json::{Value, json};

use crate::simulated::World;

const UNFIT: &str = "muster: gate node.profile: profile.misses is 1 misses, wanted == 0";

/// Nodes in service, in a pool with a recovery ladder.
async fn serving(nodes: u8) -> World {
    World::serving(nodes, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] =
                json!({ "sweep": "smoke", "recovery": { "rungs": ["collect", "restart_services"] } });
        }
        body
    })
    .await
}

async fn watched(world: &World) -> SchedulerWatch {
    let report = SchedulerReport {
        epoch: world.agent.epoch,
        looks: vec![],
    };
    world
        .agent
        .call("/agent/v1/scheduler", &report)
        .await
        .unwrap()
}

/// Reports the nodes out in the scheduler, 60 s after the last report.
pub(crate) async fn say(world: &mut World, out: &[(&str, &str, Option<&str>)]) {
    let cluster = watched(world).await.clusters[0].id;
    say_of(world, cluster, out).await;
}

async fn say_of(world: &mut World, cluster: ObjectId, out: &[(&str, &str, Option<&str>)]) {
    world
        .server
        .app
        .clock
        .advance(SignedDuration::from_secs(60));
    let node = |(name, state, reason): &(&str, &str, Option<&str>)| NodeOut {
        name: (*name).to_owned(),
        state: (*state).to_owned(),
        reason: reason.map(str::to_owned),
    };
    let looks = vec![ClusterLook {
        cluster,
        out: out.iter().map(node).collect(),
    }];
    let report = SchedulerReport {
        epoch: world.agent.epoch,
        looks,
    };
    let _watch: SchedulerWatch = world
        .agent
        .call("/agent/v1/scheduler", &report)
        .await
        .unwrap();
}

async fn told(world: &World, kind: &str) -> i64 {
    let query = sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = $1").bind(kind);
    query.fetch_one(&world.server.app.pool).await.unwrap()
}

async fn status(world: &World, name: &str) -> Value {
    world
        .admin
        .get(&format!("/v1/nodes/{name}"))
        .await
        .expect(200)
        .body["status"]
        .clone()
}

#[tokio::test]
async fn a_drain_of_somebody_else_is_marked_and_told_and_left_alone() {
    let mut world = serving(2).await;
    assert_eq!(
        watched(&world).await.clusters.len(),
        1,
        "the site's one cluster"
    );
    for _ in 0..3 {
        say(
            &mut world,
            &[
                ("n1", "draining", Some("broken fan")),
                ("nobody", "down", None),
            ],
        )
        .await;
        world.settle().await;
    }
    say(&mut world, &[("n1", "drained", Some("broken fan"))]).await;
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            told(&world, "scheduler.out").await
        ),
        ("in_service", 1)
    );
    let seen = status(&world, "n1").await;
    assert!(
        seen["conditions"].to_string().contains("out_in_scheduler"),
        "{seen}"
    );
    assert!(
        seen["why"]["sentence"].to_string().contains("broken fan"),
        "{seen}"
    );
    assert!(
        !status(&world, "n2").await["conditions"]
            .to_string()
            .contains("out_in_scheduler")
    );
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    assert!(
        page.contains("out in scheduler") && page.contains("broken fan"),
        "{page}"
    );
    let listed = world
        .admin
        .get("/v1/nodes?filter=out_in_scheduler%3Dtrue")
        .await
        .expect(200)
        .body;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    // Without an answer of the scheduler, the marks of the nodes stay.
    let _watch = watched(&world).await;
    assert_eq!(told(&world, "scheduler.back").await, 0);
    say(&mut world, &[]).await;
    world.settle().await;
    assert_eq!(told(&world, "scheduler.back").await, 1);
    let seen = status(&world, "n1").await;
    assert!(
        !seen["why"]["sentence"].to_string().contains("broken fan"),
        "{seen}"
    );
    world.check().await;
}

#[tokio::test]
async fn a_node_drained_by_others_fails_its_sweep_and_stays_unchanged() {
    let mut world = serving(1).await;
    for _ in 0..2 {
        say(&mut world, &[("n1", "drained", Some("broken fan"))]).await;
    }
    let before = world.machine("n1", |machine| machine.log.len());
    world.gates("n1", &[Verdict::Fail]);
    let swept = world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&swept).await.as_str()
        ),
        ("in_service", "succeeded")
    );
    let path = format!("/v1/operations/{}", swept.body["id"].as_str().unwrap());
    let told = world.admin.get(&path).await.expect(200).text;
    assert!(
        told.contains("stays in service") && told.contains("broken fan"),
        "{told}"
    );
    assert_eq!(
        world
            .admin
            .get("/v1/nodes/n1/recoveries")
            .await
            .expect(200)
            .body["items"],
        json!([])
    );
    assert_eq!(
        world.machine("n1", |machine| machine.log.len()),
        before,
        "nothing was powered"
    );
    world.check().await;
}

#[tokio::test]
async fn a_node_that_its_health_check_had_drained_is_recovered_and_serves_again() {
    let mut world = serving(1).await;
    say(&mut world, &[("n1", "drained", Some(UNFIT))]).await;
    world.settle().await;
    assert_eq!(
        world.state("n1").await,
        "in_service",
        "seen once, it may be of before"
    );
    say(&mut world, &[("n1", "drained", Some(UNFIT))]).await;
    world.settle().await;
    assert_eq!(
        world.state("n1").await,
        "in_service",
        "drained, recovered, verified, admitted"
    );
    let all = world
        .admin
        .get("/v1/nodes/n1/recoveries")
        .await
        .expect(200)
        .body["items"]
        .clone();
    assert_eq!(
        (all[0]["signature"].as_str(), all[0]["ended"].as_str()),
        (Some("gate:node.profile"), Some("recovered"))
    );
    // The remaining row of the drain is older than the node's return to service.
    world.settle().await;
    let begun = async |world: &World| {
        world
            .admin
            .get("/v1/nodes/n1/recoveries")
            .await
            .expect(200)
            .body["items"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(begun(&world).await, 1);
    // The node fails again for the same reason, before any report without the drain. The second
    // report since the return to service counts as another fault.
    say(&mut world, &[("n1", "drained", Some(UNFIT))]).await;
    world.settle().await;
    assert_eq!(begun(&world).await, 1, "seen once since it serves");
    for _ in 0..2 {
        say(&mut world, &[("n1", "drained", Some(UNFIT))]).await;
        world.settle().await;
    }
    assert_eq!(begun(&world).await, 2);
    world.check().await;
}

#[tokio::test]
async fn a_report_of_a_cluster_of_nobodys_is_of_no_node() {
    let mut world = serving(1).await;
    say_of(
        &mut world,
        ObjectId::new(),
        &[("n1", "drained", Some(UNFIT))],
    )
    .await;
    let long = "x".repeat(10_000);
    say(&mut world, &[("n1", &long, Some(&long))]).await;
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            told(&world, "scheduler.out").await
        ),
        ("in_service", 1)
    );
    let kept: (String, String) = sqlx::query_as("SELECT state, reason FROM scheduler_outs")
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    assert_eq!((kept.0.len(), kept.1.len()), (60, 300));
}

#[tokio::test]
async fn a_node_that_is_on_its_way_out_is_drained_there_and_that_is_no_news() {
    let mut world = serving(2).await;
    world.ask("n2", "drain").await.expect(202);
    let job = world.until_leased("n2", "drain").await;
    let out = [
        ("n1", "drained", Some("broken fan")),
        ("n2", "draining", Some("muster: a test")),
    ];
    say(&mut world, &out).await;
    let kept = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM scheduler_outs")
        .fetch_one(&world.server.app.pool);
    assert_eq!(kept.await.unwrap(), 2, "it is drained there too");
    assert_eq!(told(&world, "scheduler.out").await, 1, "of n1 alone");
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(world.state("n2").await, "maintenance");
}

#[tokio::test]
async fn an_orphaned_drain_of_muster_is_lifted() {
    let mut world = serving(1).await;
    let ours = DrainReason::Leaving.as_str();
    let admits = async |world: &World| {
        let query =
            "SELECT count(*) FROM jobs j JOIN nodes n ON n.id = j.node_id AND n.visit = j.visit
             WHERE j.step = 'admit' AND j.state = 'succeeded' AND n.state = 'in_service'";
        let count: i64 = sqlx::query_scalar(query)
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap();
        count
    };
    say(&mut world, &[("n1", "drained", Some(ours))]).await;
    world.settle().await;
    assert_eq!(admits(&world).await, 0, "the report may be older");
    say(&mut world, &[("n1", "drained", Some(ours))]).await;
    let job = world.until_leased("n1", "admit").await;
    let JobSpec::Admit { lifts, .. } = &job.spec else {
        panic!("{job:?}")
    };
    assert_eq!(*lifts, Some(DrainReason::Leaving), "no other drain");
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(admits(&world).await, 1);
    // The scheduler still reports the drain. The server does not ask the scheduler again, and the
    // node's status shows the drain.
    say(&mut world, &[("n1", "drained", Some(ours))]).await;
    world.settle().await;
    assert_eq!(admits(&world).await, 1);
    let seen = status(&world, "n1").await;
    assert!(seen["why"]["sentence"].to_string().contains(ours), "{seen}");
    say(&mut world, &[]).await;
    world.settle().await;
    let seen = status(&world, "n1").await;
    assert!(
        !seen["why"]["sentence"].to_string().contains(ours),
        "{seen}"
    );
    world.check().await;
}

#[tokio::test]
async fn an_orphaned_drain_is_lifted_by_its_own_reason_after_the_second_report() {
    for ours in DrainReason::ALL {
        let mut world = serving(1).await;
        say(&mut world, &[("n1", "drained", Some(ours.as_str()))]).await;
        // A reconcile pass between the reports lifts no drain.
        world.ask("n1", "inspect").await.expect(202);
        world.settle().await;
        let query = "SELECT count(*) FROM jobs j JOIN nodes n ON n.id = j.node_id AND n.visit = j.visit WHERE j.step = 'admit'";
        let asked: i64 = sqlx::query_scalar(query)
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap();
        assert_eq!(asked, 0, "the report may be older");
        say(&mut world, &[("n1", "drained", Some(ours.as_str()))]).await;
        let job = world.until_leased("n1", "admit").await;
        let JobSpec::Admit { lifts, .. } = &job.spec else {
            panic!("{job:?}")
        };
        assert_eq!(*lifts, Some(ours), "no other drain");
    }
}
