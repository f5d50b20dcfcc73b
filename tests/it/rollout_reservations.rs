//! Reservations of the scheduler that keep long jobs from waiting nodes.

use muster_core::wire::failure::{Failure, FailureCode};
use muster_core::wire::scheduler::{JobsLook, JobsReply, JobsReport, Reservations, Wait};
use serde_json::json;

use crate::rollout_jobs::{LEAD_S, run_job};
use crate::rollouts::{at_once, marks, serving, settle, show, start, steer};
use crate::simulated::World;

/// Reports the jobs. Returns the nodes kept from long jobs.
async fn waits(world: &World) -> Vec<Wait> {
    let reply = world.agent.report_jobs().await.unwrap();
    let clusters = reply.clusters.into_iter();
    clusters.flat_map(|cluster| cluster.waits).collect()
}

#[tokio::test]
async fn the_scheduler_keeps_long_jobs_from_the_nodes_that_wait() {
    let mut world = serving(3, json!("100%")).await;
    run_job(&world, "17", Some(4 * 3600), &["n1", "n3"]);
    let mut few = at_once();
    few["budgets"] = json!({ "max_waiting": 1 });
    let name = start(&world, 2, &few).await;
    settle(&mut world).await;
    assert_eq!(
        marks(&show(&world, &name).await),
        ["waiting", "done", "not_begun"]
    );
    let expected = [Wait {
        lead_s: LEAD_S as u32,
        nodes: vec!["n1".to_owned()],
    }];
    assert_eq!(waits(&world).await, expected);
    // A halted rollout keeps no node from jobs.
    let reason = json!({ "reason": "the fabric is being measured" });
    steer(&world, &name, "halt", reason.clone())
        .await
        .expect(200);
    assert_eq!(waits(&world).await, []);
    steer(&world, &name, "resume", reason).await.expect(200);
    assert_eq!(waits(&world).await, expected);
    world.rack().scheduler.jobs.clear();
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
    assert_eq!(waits(&world).await, []);
}

/// A scheduler that refuses reservations: readers of the rollout see why, and events tell the beginning
/// and the end.
#[tokio::test]
async fn refused_reservations_are_shown_until_they_are_as_needed() {
    let mut world = serving(1, json!("100%")).await;
    run_job(&world, "17", Some(4 * 3600), &["n1"]);
    let name = start(&world, 2, &at_once()).await;
    settle(&mut world).await;
    let reply = world.agent.report_jobs().await.unwrap();
    let report = async |world: &World, failed: Option<&str>| {
        let failure =
            |said: &str| Reservations::Failed(Failure::fatal(FailureCode::SlurmRefused, said));
        let look = JobsLook {
            cluster: reply.clusters[0].cluster,
            jobs: world.rack().scheduler.jobs.clone(),
            reservations: Some(failed.map_or(Reservations::AsNeeded, failure)),
        };
        let report = JobsReport {
            epoch: world.agent.epoch,
            looks: vec![look],
        };
        let path = "/agent/v1/scheduler/jobs";
        let _: JobsReply = world.agent.call(path, &report).await.unwrap();
        show(world, &name).await["now"]["reservations_failed"].clone()
    };
    assert!(report(&world, None).await.is_null());
    let long = format!("Access/permission denied\n{}", "x".repeat(1000));
    let first = report(&world, Some(&long)).await;
    assert_eq!(first["code"], "slurm_refused");
    let sentence = first["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("Access/permission denied x") && sentence.len() == 400);
    world.advance(60);
    let second = report(&world, Some("Invalid node name specified")).await;
    assert_eq!(second["sentence"], "Invalid node name specified");
    assert_eq!(
        second["since"], first["since"],
        "the time of the first failure"
    );
    let path = format!("/rollouts/{name}");
    let page = world.admin.get(&path).await.text;
    assert!(page.contains("Invalid node name specified"), "{page}");
    // A report without a result, as of a new agent process, leaves the failure.
    let reply = world.agent.report_jobs().await.unwrap();
    assert!(reply.takes_reservations);
    let seen = show(&world, &name).await;
    assert_eq!(seen["now"]["reservations_failed"], second);
    // A halted rollout needs no reservation.
    let reason = json!({ "reason": "the fabric is being measured" });
    let halted = steer(&world, &name, "halt", reason.clone()).await;
    halted.expect(200);
    let seen = show(&world, &name).await;
    assert!(seen["now"]["reservations_failed"].is_null());
    steer(&world, &name, "resume", reason).await.expect(200);
    assert!(report(&world, None).await.is_null());
    let query = "SELECT kind FROM events WHERE kind LIKE 'cluster.reservations%' ORDER BY seq";
    let kinds: Vec<String> = sqlx::query_scalar(query)
        .fetch_all(&world.server.app.pool)
        .await
        .unwrap();
    assert_eq!(
        kinds,
        [
            "cluster.reservations_failed",
            "cluster.reservations_restored"
        ]
    );
}
