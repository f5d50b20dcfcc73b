//! Sizes of texts from machines: the log of a job, and the result of a step.

use muster_core::wire::calls::{LogLine, RenewJob, Renewed};
use muster_core::wire::job::Job;
use muster_core::wire::result::{JobResult, Outcome};

use crate::simulated::World;

/// The agent reports log lines of 4,000 characters with the numbers.
async fn log(world: &World, job: &Job, numbers: std::ops::Range<usize>) {
    let at = world.server.app.clock.now();
    let line = |number| LogLine {
        at,
        text: format!("line {number} {}", "x".repeat(4000)),
    };
    let renewal = RenewJob {
        epoch: world.agent.epoch,
        attempt: job.attempt,
        progress: None,
        log: numbers.map(line).collect(),
        waiting_for: None,
    };
    let path = format!("/agent/v1/jobs/{}/renew", job.id);
    let renewed = world.agent.call::<Renewed>(&path, &renewal).await;
    assert_eq!(renewed, Ok(Renewed { cancel: false }));
}

/// The beginnings of a job's lines, in order.
async fn lines(world: &World, job: &Job) -> Vec<String> {
    let query = "SELECT substring(text FROM 1 FOR 10) FROM job_logs WHERE job_id = $1 ORDER BY id";
    sqlx::query_scalar(query)
        .bind(job.id.0)
        .fetch_all(&world.server.app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_log_above_its_size_keeps_the_first_and_the_newest_lines() {
    let mut world = World::start(1).await;
    let job = world.until_leased("n1", "boot_live").await;
    log(&world, &job, 0..100).await;
    let whole = lines(&world, &job).await;
    assert_eq!(whole.len(), 100, "a log within its size stays whole");

    for start in [100, 500, 900] {
        log(&world, &job, start..start + 400).await;
        let kept = lines(&world, &job).await;
        assert!(kept.len() < 2 * 262, "{}", kept.len());
        assert_eq!(kept[..100], whole, "the first lines stay");
        let newest = format!("line {} ", start + 399);
        assert!(kept.last().unwrap().starts_with(&newest), "{kept:?}");
    }
    let kept = lines(&world, &job).await;
    let gaps: Vec<usize> = (0..kept.len())
        .filter(|at| kept[*at].starts_with('…'))
        .collect();
    assert_eq!(gaps.len(), 1, "{kept:?}");
    assert!(gaps[0] > 200 && gaps[0] < kept.len() - 100, "{gaps:?}");
}

#[tokio::test]
async fn a_result_that_is_too_large_ends_the_step_as_a_final_failure() {
    let mut world = World::start(1).await;
    let job = world.until_leased("n1", "boot_live").await;
    let result = JobResult::Live {
        host_key: "x".repeat(5 << 20),
        boot_id: "b".into(),
        address: std::net::Ipv4Addr::LOCALHOST,
        bmc_certificate: None,
        inventory: None,
    };
    world
        .agent
        .report(job.id, job.attempt, Outcome::Succeeded { result })
        .await
        .unwrap();
    let query =
        "SELECT failure ->> 'code' FROM jobs WHERE id = $1 AND state = 'failed' AND result IS NULL";
    let code: String = sqlx::query_scalar(query)
        .bind(job.id.0)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    assert_eq!(code, "result_too_large");
    world.engine().await;
    assert_eq!(world.state("n1").await, "failed", "no retry by itself");
}
