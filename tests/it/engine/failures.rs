//! What does not go well: nodes that miss their profile, gates, steps that fail, steps that fail for good.

use muster_core::gates::Verdict;

use crate::simulated::World;

#[tokio::test]
async fn a_node_with_too_little_memory_is_quarantined_with_the_sentence() {
    let mut world = World::start(1).await;
    world.machine("n1", |machine| machine.memory_mib = 1024);
    world.settle().await;
    assert_eq!(world.states("n1").await, ["inspecting", "quarantined"]);
    let sentence = "the hardware differs from the profile: memory: wanted 1800 MiB, found 1024 MiB";
    assert_eq!(world.value("n1", "reason").await.unwrap(), sentence);
    let why = world.admin.get("/v1/nodes/n1/why").await.expect(200);
    assert!(why.text.contains(sentence), "{}", why.text);
    assert_eq!(
        world.claim("n1").await.problem(),
        (409, "node_not_available", "")
    );
    // Mended by a person, it is looked at again.
    world.machine("n1", |machine| machine.memory_mib = 2048);
    world.ask("n1", "recover").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.check().await;
}

#[tokio::test]
async fn a_gate_that_fails_quarantines_and_one_that_errs_is_asked_once_more() {
    let mut world = World::start(3).await;
    world.settle().await;
    world.gates("n1", &[Verdict::Fail]);
    world.gates("n2", &[Verdict::Error]);
    world.gates("n3", &[Verdict::Error, Verdict::Error]);
    let claims = [
        world.claim("n1").await.expect(201),
        world.claim("n2").await.expect(201),
        world.claim("n3").await.expect(201),
    ];
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    assert_eq!(
        world.value("n1", "reason").await.unwrap(),
        "gate node.profile: it was made to end as fail"
    );
    assert_eq!(world.state("n2").await, "in_service");
    assert_eq!(world.state("n3").await, "failed");
    assert_eq!(
        world.value("n3", "failed_phase").await.unwrap(),
        "validating"
    );
    assert_eq!(
        world.value("n3", "reason").await.unwrap(),
        "gate node.profile: it was made to end as error"
    );
    for (claim, state) in claims.iter().zip(["failed", "succeeded", "failed"]) {
        assert_eq!(world.operation(claim).await, state);
    }
    let runs: Vec<String> = sqlx::query_scalar(
        "SELECT n.name || ' ' || r.verdict FROM gate_runs r JOIN nodes n ON n.id = r.node_id ORDER BY n.name, r.id",
    )
    .fetch_all(&world.server.app.pool)
    .await
    .unwrap();
    // Each time that they ran is kept: before and after the boot of one that passes.
    assert_eq!(
        runs,
        [
            "n1 fail",
            "n2 unknown",
            "n2 pass",
            "n2 pass",
            "n3 unknown",
            "n3 unknown"
        ]
    );
    assert!(
        !world
            .history("n1")
            .await
            .contains(&"node.advanced admitting".to_owned())
    );
    assert_eq!(
        world
            .rack()
            .scheduler
            .members
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        ["n2"]
    );
    world.check().await;
}

#[tokio::test]
async fn a_step_is_retried_with_back_off_then_fails_its_phase() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.fail("n1", "write_image", true, 3);
    world.claim("n1").await.expect(201);
    let mut pauses = Vec::new();
    for round in 1..=3 {
        let job = world.until_leased("n1", "write_image").await;
        let began = world.server.app.clock.now();
        world.agent.work(&job).await.unwrap();
        world.engine().await;
        if round < 3 {
            assert!(
                world.agent.lease(1, 0).await.unwrap().is_empty(),
                "not before its pause is over"
            );
            let next: jiff_sqlx::Timestamp =
                sqlx::query_scalar("SELECT not_before FROM jobs WHERE state = 'queued'")
                    .fetch_one(&world.server.app.pool)
                    .await
                    .unwrap();
            pauses.push(next.to_jiff().duration_since(began).as_secs());
        }
    }
    assert_eq!(pauses, [10, 20]);
    assert_eq!(world.state("n1").await, "failed");
    assert_eq!(world.value("n1", "failed_phase").await.unwrap(), "imaging");
    assert_eq!(
        world.value("n1", "reason").await.unwrap(),
        "write the image: the simulated write_image failed"
    );
    let permits: i64 = sqlx::query_scalar("SELECT count(*) FROM permits WHERE kind = 'image'")
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    assert_eq!(permits, 3, "every round has a permit of its own");
    world.check().await;

    let retry = world.ask("n1", "retry").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(world.operation(&retry).await, "succeeded");
    assert_eq!(
        world.states("n1").await[2..],
        [
            "imaging",
            "failed",
            "imaging",
            "installing",
            "validating",
            "admitting",
            "in_service"
        ]
    );
    world.check().await;
}

#[tokio::test]
async fn a_failure_that_cannot_pass_is_not_retried() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.fail("n1", "converge", false, 1);
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.value("n1", "failed_phase").await.as_deref()
        ),
        ("failed", Some("installing"))
    );
    assert!(
        !world
            .history("n1")
            .await
            .contains(&"step.retried converge".to_owned())
    );
}

#[tokio::test]
async fn a_wipe_that_failed_keeps_the_node_from_everybody() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.fail("n1", "wipe", false, 1);
    let release = world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    assert_eq!(
        world.value("n1", "reason").await.unwrap(),
        "unsanitised: the simulated wipe failed"
    );
    assert_eq!(world.operation(&release).await, "failed");
    // What cannot be granted is refused, and does not stand in the way of what can.
    let recover = world.ask("n1", "recover").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&recover).await.as_str()
        ),
        ("quarantined", "failed")
    );
    world.ask("n1", "wipe").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.check().await;
}

#[tokio::test]
async fn a_release_that_fails_on_its_way_waits_for_a_person() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    // The drain fails: the node must not be wiped under the jobs that run on it.
    world.fail("n1", "drain", false, 1);
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.value("n1", "failed_phase").await.as_deref()
        ),
        ("failed", Some("draining"))
    );
    world.ask("n1", "retry").await.expect(202);
    // The machine cannot be booted for its wipe: tried three times, and not for ever.
    world.fail("n1", "boot_live", true, 3);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.value("n1", "failed_phase").await.as_deref()
        ),
        ("failed", Some("wiping"))
    );
    world.ask("n1", "retry").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    assert_eq!(
        world.states("n1").await[7..],
        [
            "draining",
            "failed",
            "draining",
            "wiping",
            "failed",
            "wiping",
            "inspecting",
            "available"
        ]
    );
    world.check().await;
}

#[tokio::test]
async fn a_scheduler_that_is_away_is_waited_for_wherever_the_node_is() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.fail("n1", "admit", false, 1);
    world.claim("n1").await.expect(201);
    world.claim("n2").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "failed");
    world.fail("n1", "remove", false, 7);
    world.ask("n1", "quarantine").await.expect(202);
    world.settle().await;
    assert_eq!(
        world.state("n1").await,
        "quarantined",
        "out of the scheduler first, however long that takes"
    );
    world.fail("n1", "remove", false, 7);
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.state("n2").await.as_str()
        ),
        ("available", "in_service")
    );
    world.check().await;
}

#[tokio::test]
async fn a_node_that_cannot_be_read_keeps_nobody_else_waiting() {
    let mut world = World::start(2).await;
    world.settle().await;
    let break_it = "UPDATE nodes SET profile_id = (SELECT id FROM objects WHERE name = 'slurm') WHERE name = 'n1'";
    sqlx::query(break_it)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    world.ask("n1", "inspect").await.expect(202);
    world.ask("n2", "inspect").await.expect(202);
    world.until("n2", "inspecting").await;
    world.until("n2", "available").await;
    assert_eq!(world.state("n1").await, "available");
    assert_eq!(
        world.value("n1", "waiting_for").await.unwrap(),
        "an error in Muster, which is in the server's log"
    );
    let mend_it = "UPDATE nodes SET profile_id = (SELECT profile_id FROM nodes WHERE name = 'n2') WHERE name = 'n1'";
    sqlx::query(mend_it)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    let job = world.until_leased("n1", "boot_live").await;
    // What was done counts, though nobody can say what comes after it.
    sqlx::query(break_it)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    world.agent.work(&job).await.unwrap();
    let state = sqlx::query_scalar("SELECT state FROM jobs WHERE id = $1").bind(job.id.0);
    let state: String = state.fetch_one(&world.server.app.pool).await.unwrap();
    assert_eq!(state, "succeeded");
    world.engine().await;
    assert_eq!(
        world.value("n1", "waiting_for").await.unwrap(),
        "an error in Muster, which is in the server's log"
    );
    sqlx::query(mend_it)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    world.settle().await;
    world.check().await;
}

#[tokio::test]
async fn a_cancelled_operation_stops_where_it_is() {
    let mut world = World::start(1).await;
    world.settle().await;
    let claim = world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "boot_live").await;
    let operation = claim.body["status"]["operation"].as_str().unwrap();
    world
        .admin
        .post(
            &format!("/v1/operations/{operation}/cancel"),
            &serde_json::json!({}),
        )
        .await
        .expect(202);
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.value("n1", "failed_phase").await.as_deref()
        ),
        ("failed", Some("imaging"))
    );
    assert_eq!(
        world.value("n1", "reason").await.unwrap(),
        "boot the live image: stopped on request"
    );
    world.ask("n1", "retry").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
}
