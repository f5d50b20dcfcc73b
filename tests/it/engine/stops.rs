//! Cancel in every phase, undrain, and lost outcomes.

use muster_core::clusters::DrainReason;
use muster_core::wire::job::JobSpec;
use serde_json::json;

use crate::simulated::World;
use crate::support::server::Reply;

/// The last step before the state of the stop, and the state.
const PHASES: [(&str, &str); 6] = [
    ("inventory", "inspecting"),
    ("write_image", "imaging"),
    ("converge", "installing"),
    ("gates", "validating"),
    ("admit", "admitting"),
    ("wipe", "wiping"),
];

/// Brings a node to the leased step of a phase. Returns the reply with the operation.
async fn at(world: &mut World, kind: &str) -> (Reply, muster_core::wire::job::Job) {
    world.settle().await;
    let asked = match kind {
        "inventory" => world.ask("n1", "inspect").await.expect(202),
        "wipe" => {
            world.claim("n1").await.expect(201);
            world.settle().await;
            world.release("n1").await.expect(202)
        }
        _ => world.claim("n1").await.expect(201),
    };
    let job = world.until_leased("n1", kind).await;
    (asked, job)
}

#[tokio::test]
async fn a_stop_ends_every_phase_where_it_is_and_a_retry_goes_on() {
    for (kind, phase) in PHASES {
        let mut world = World::start(1).await;
        let (asked, job) = at(&mut world, kind).await;
        assert_eq!(world.state("n1").await, phase);
        world.cancel(&asked).await.expect(202);
        world.agent.work(&job).await.unwrap();
        world.settle().await;
        let stopped = (
            world.state("n1").await,
            world.value("n1", "failed_phase").await.unwrap(),
        );
        assert_eq!(stopped, ("failed".to_owned(), phase.to_owned()));
        assert!(
            world
                .value("n1", "reason")
                .await
                .unwrap()
                .ends_with(": stopped on request")
        );
        assert_eq!(world.operation(&asked).await, "cancelled");
        assert_eq!(
            world.cancel(&asked).await.problem().0,
            409,
            "what is over cannot be stopped"
        );
        world.check().await;
        world.ask("n1", "retry").await.expect(202);
        world.settle().await;
        let end = if matches!(kind, "inventory" | "wipe") {
            "available"
        } else {
            "in_service"
        };
        assert_eq!(world.state("n1").await, end, "{phase}");
        world.check().await;
    }
}

#[tokio::test]
async fn a_stop_between_two_steps_is_not_forgotten() {
    let mut world = World::start(1).await;
    let (asked, job) = at(&mut world, "write_image").await;
    world.agent.work(&job).await.unwrap();
    // The step is done, and the next step not begun: no job can carry the stop.
    world.cancel(&asked).await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&asked).await.as_str()
        ),
        ("failed", "cancelled")
    );
    assert!(
        !world
            .history("n1")
            .await
            .contains(&"step.succeeded converge".to_owned())
    );
    world.check().await;
}

#[tokio::test]
async fn a_stop_ends_the_pauses_between_the_rounds_of_a_step() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.fail("n1", "write_image", true, 1);
    let asked = world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "write_image").await;
    world.agent.work(&job).await.unwrap();
    world.engine().await;
    world.cancel(&asked).await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&asked).await.as_str()
        ),
        ("failed", "cancelled")
    );
    let written = world.machine("n1", |machine| {
        machine.log.iter().any(|done| done.act == "image")
    });
    assert!(!written);
}

#[tokio::test]
async fn what_was_asked_and_not_begun_is_taken_back() {
    let mut world = World::start(1).await;
    world.settle().await;
    let asked = world.ask("n1", "quarantine").await.expect(202);
    world.cancel(&asked).await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&asked).await.as_str()
        ),
        ("available", "cancelled")
    );
    world.ask("n1", "inspect").await.expect(202);
}

#[tokio::test]
async fn a_failed_drain_is_undone() {
    let mut world = World::serving(1, |_, body| body).await;
    world.fail("n1", "drain", false, 1);
    world.ask("n1", "drain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "failed");
    world.fail("n1", "admit", false, 1);
    let refused = world.ask("n1", "undrain").await.expect(202);
    world.settle().await;
    assert_eq!(
        (world.state("n1").await, world.operation(&refused).await),
        ("failed".to_owned(), "failed".to_owned())
    );
    let undrain = world.ask("n1", "undrain").await.expect(202);
    let admit = world.until_leased("n1", "admit").await;
    let JobSpec::Admit { lifts, .. } = &admit.spec else {
        panic!("{:?}", admit.spec.kind())
    };
    assert_eq!(*lifts, Some(DrainReason::Leaving), "no drain of others");
    world.agent.work(&admit).await.unwrap();
    world.settle().await;
    assert_eq!(
        (world.state("n1").await, world.operation(&undrain).await),
        ("in_service".to_owned(), "succeeded".to_owned())
    );
    // After a later failure the node has to pass the gates.
    world.fail("n1", "converge", false, 1);
    world.ask("n1", "converge").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "failed");
    let late = world.ask("n1", "undrain").await;
    assert_eq!(late.problem(), (409, "state", ""));
    world.check().await;
}

#[tokio::test]
async fn a_drain_that_is_stopped_or_undrained_puts_the_node_back() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    for stop in [true, false] {
        let drain = world.ask("n1", "drain").await.expect(202);
        let job = world.until_leased("n1", "drain").await;
        let undrain = match stop {
            true => world.cancel(&drain).await.expect(202),
            false => world.ask("n1", "undrain").await.expect(202),
        };
        world.engine().await;
        assert!(
            world.agent.renew(&job).await.unwrap(),
            "the renewal brings the word"
        );
        world.agent.work(&job).await.unwrap();
        let admit = world.until_leased("n1", "admit").await;
        let JobSpec::Admit { lifts, .. } = &admit.spec else {
            panic!("{:?}", admit.spec.kind())
        };
        assert_eq!(
            *lifts,
            Some(DrainReason::Leaving),
            "not what its health check had it drained for meanwhile"
        );
        world.agent.work(&admit).await.unwrap();
        world.settle().await;
        assert_eq!(world.state("n1").await, "in_service");
        assert_eq!(world.operation(&drain).await, "cancelled");
        assert_eq!(
            world.operation(&undrain).await,
            if stop { "cancelled" } else { "succeeded" }
        );
        assert!(world.rack().scheduler.members.contains("n1"));
        assert!(!world.machine("n1", |machine| machine.empty()));
        world.check().await;
    }
    assert_eq!(
        world.states("n1").await[6..],
        [
            "in_service",
            "draining",
            "in_service",
            "draining",
            "in_service"
        ]
    );
}

#[tokio::test]
async fn a_stopped_release_waits_for_a_person_and_goes_nowhere_else() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    let release = world.release("n1").await.expect(202);
    let job = world.until_leased("n1", "drain").await;
    assert_eq!(
        world.ask("n1", "quarantine").await.problem(),
        (409, "releasing", "")
    );
    world.cancel(&release).await.expect(202);
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(
        world.value("n1", "failed_phase").await.as_deref(),
        Some("draining")
    );
    for action in ["quarantine", "maintain", "replace-parts"] {
        assert_ne!(
            world.ask("n1", action).await.status,
            202,
            "{action}: jobs may run on it"
        );
    }
    world.ask("n1", "retry").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.check().await;
}

#[tokio::test]
async fn an_outcome_nobody_heard_is_unknown_until_it_was_looked_at() {
    let mut world = World::start(1).await;
    let (asked, job) = at(&mut world, "write_image").await;
    let path = format!(
        "/v1/operations/{}",
        asked.body["status"]["operation"].as_str().unwrap()
    );
    world.advance(60);
    world.expire_leases().await;
    world.engine().await;
    let operation = world.admin.get(&path).await.expect(200).body;
    assert_eq!(
        (operation["state"].as_str(), operation["done"].as_bool()),
        (Some("unknown"), Some(false))
    );
    let told =
        "the outcome of write_image is unknown, and the job's spool on the node will show it";
    assert!(
        operation["progress"]["message"]
            .as_str()
            .unwrap()
            .contains("the job's spool on the node"),
        "{operation}"
    );
    let why = world.admin.get("/v1/nodes/n1/why").await.expect(200).text;
    assert!(
        why.contains("the job's spool on the node to show how this step ended: write the image"),
        "{why}"
    );
    let events = world
        .admin
        .get("/v1/nodes/n1/events")
        .await
        .expect(200)
        .text;
    assert!(events.contains(told), "{events}");
    // The late outcome has no effect; the next agent observes the node, and decides.
    assert!(world.agent.work(&job).await.is_err());
    let again = world.until_leased("n1", "write_image").await;
    assert_eq!(
        world.admin.get(&path).await.expect(200).body["state"],
        "running"
    );
    world.agent.work(&again).await.unwrap();
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&asked).await.as_str()
        ),
        ("in_service", "succeeded")
    );
    let written = world.machine("n1", |machine| {
        machine
            .log
            .iter()
            .filter(|done| done.act == "image")
            .count()
    });
    assert_eq!(written, 1, "looked at, not written twice");
    world.check().await;
}

#[tokio::test]
async fn an_unknown_outcome_can_be_stopped() {
    let mut world = World::start(1).await;
    let (asked, _silent) = at(&mut world, "converge").await;
    world.advance(60);
    world.expire_leases().await;
    world.cancel(&asked).await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&asked).await.as_str()
        ),
        ("failed", "cancelled")
    );
    let listed = world
        .admin
        .get("/v1/operations?state=unknown")
        .await
        .expect(200);
    assert_eq!(listed.body["items"], json!([]));
    world.check().await;
}

/// All writers lock the node first: a stop with locked jobs would wait for the engine, and the engine for the stop.
#[tokio::test]
async fn a_stop_waits_for_the_node_before_it_touches_a_job() {
    let mut world = World::start(1).await;
    let (asked, _job) = at(&mut world, "write_image").await;
    let pool = world.server.app.pool.clone();
    let mut turn = pool.begin().await.unwrap();
    sqlx::query("SELECT FROM nodes FOR UPDATE")
        .execute(&mut *turn)
        .await
        .unwrap();
    let admin = world.admin.clone();
    let path = format!(
        "/v1/operations/{}/cancel",
        asked.body["status"]["operation"].as_str().unwrap()
    );
    let stop = tokio::spawn(async move { admin.post(&path, &json!({})).await });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while sqlx::query_scalar::<_, i64>(waiting)
        .fetch_one(&pool)
        .await
        .unwrap()
        == 0
    {
        assert!(
            std::time::Instant::now() < deadline,
            "the stop does not wait for the node"
        );
    }
    sqlx::query("SELECT FROM jobs FOR UPDATE NOWAIT")
        .execute(&mut *turn)
        .await
        .unwrap();
    sqlx::query("SELECT FROM operations FOR UPDATE NOWAIT")
        .execute(&mut *turn)
        .await
        .unwrap();
    turn.commit().await.unwrap();
    assert_eq!(stop.await.unwrap().status, 202);
}
