//! Agents that die, return, or are replaced. Started work continues, and no act is done twice.

use jiff::SignedDuration;
use muster_core::facts::Firmware;
use muster_core::values::Mac;
use muster_core::wire::PROTOCOL;
use muster_core::wire::bmc::Power;
use muster_core::wire::calls::{
    ActReply, LogLine, RenewJob, Renewed, Seen, Sighting, Sightings, SiteConfig, SitePoll,
};
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::node::{Answer, Failure, FailureCode, Plan, Progress, Work};
use muster_core::wire::result::{JobResult, Outcome};
use serde_json::json;

use crate::simulated::Fuel;
use crate::simulated::World;
use muster_lab::simulated::agent::{Agent, IMMORTAL, Stop};
use muster_lab::simulated::machine;

fn stale(code: &str) -> Result<(), Stop> {
    Err(Stop::Refused(409, code.into()))
}

/// The highest attempt and round of each step of a node.
async fn attempts(world: &World, name: &str) -> Vec<(String, i32, i32)> {
    let query = "SELECT j.step, j.attempt, j.round FROM jobs j JOIN nodes n ON n.id = j.node_id WHERE n.name = $1 ORDER BY j.id";
    sqlx::query_as(query)
        .bind(name)
        .fetch_all(&world.server.app.pool)
        .await
        .unwrap()
}

/// A whole life of a node under dying agents.
async fn life_with(fuel: Fuel) -> World {
    let mut world = World::start(1).await;
    world.fuel = fuel;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.check().await;
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.check().await;
    let states = world.states("n1").await;
    let life = [
        "inspecting",
        "available",
        "imaging",
        "installing",
        "validating",
        "admitting",
        "in_service",
        "draining",
        "wiping",
        "inspecting",
        "available",
    ];
    assert_eq!(states, life, "no death shows in the way the node went");
    world
}

#[tokio::test]
async fn every_job_outlives_an_agent_killed_in_its_nth_step() {
    for steps in 0..7 {
        let world = life_with(Fuel::First(steps)).await;
        let attempts = attempts(&world, "n1").await;
        if steps < 2 {
            assert!(
                attempts.iter().all(|(_, attempt, _)| *attempt > 1),
                "{attempts:?}"
            );
        }
        let log = world.machine("n1", |machine| machine.log.clone());
        let count = |act| log.iter().filter(|done| done.act == act).count();
        assert_eq!(
            (count("image"), count("wipe")),
            (1, 1),
            "killed in step {steps}: {log:?}"
        );
    }
}

#[tokio::test]
async fn a_job_outlives_agents_that_each_live_one_step_longer() {
    let world = life_with(Fuel::OneMore(0)).await;
    let attempts = attempts(&world, "n1").await;
    let most = attempts
        .iter()
        .map(|(_, attempt, _)| *attempt)
        .max()
        .unwrap();
    assert!(most >= 5, "{attempts:?}");
    let log = world.machine("n1", |machine| machine.log.clone());
    assert_eq!(
        log.iter()
            .filter(|done| matches!(&*done.act, "image" | "wipe"))
            .count(),
        2,
        "{log:?}"
    );
}

/// The order has the declared BMC, with the password for the agent alone.
#[tokio::test]
async fn an_order_names_the_bmc_as_it_was_declared() {
    let declared = |path: &str, mut body: serde_json::Value| {
        match path {
            "/v1/nodes/n1" => {
                body["spec"]["power"] =
                    json!({ "ipmi": { "bmc": { "address": "10.78.0.1", "credential": "bmc" } } })
            }
            "/v1/nodes/n2" => body["spec"]["power"]["redfish"]["bmc"]["system"] = json!("blade-2"),
            _ => {}
        }
        body
    };
    let world = World::declare(2, declared).await;
    let mut orders = std::collections::BTreeMap::new();
    while orders.len() < 2 {
        assert!(world.engine().await > 0, "both boot first");
        for job in world.agent.lease(100, 0).await.unwrap() {
            let JobSpec::BootLive(spec) = job.spec else {
                panic!("{job:?}")
            };
            orders.insert(job.node_name, spec.power);
        }
    }
    let orders: Vec<Power> = orders.into_values().collect();
    let [Power::Ipmi(ipmi), Power::Redfish(redfish)] = orders.as_slice() else {
        panic!("{orders:?}")
    };
    assert_eq!(
        (ipmi.port, ipmi.user.as_str(), ipmi.password.reveal()),
        (623, "root", "calvin")
    );
    assert_eq!(ipmi.firmware, Firmware::Uefi);
    assert_eq!(
        (redfish.port, redfish.system.as_deref()),
        (443, Some("blade-2"))
    );
}

#[tokio::test]
async fn a_successor_observes_a_committed_act_and_does_not_repeat_it() {
    let mut world = World::start(1).await;
    let job = world.until_leased("n1", "boot_live").await;
    assert!(job.acts.is_empty());
    let early = world
        .agent
        .start_act(&job, "power_on", "power off")
        .await
        .unwrap_err();
    assert_eq!(early, stale("not_permitted").unwrap_err());
    let JobSpec::BootLive(spec) = &job.spec else {
        panic!("{job:?}")
    };
    assert_eq!(
        world.agent.redeem(&job, spec.permit, None).await.unwrap(),
        Answer::Granted {
            signature: String::new()
        }
    );
    assert_eq!(
        world
            .agent
            .start_act(&job, "power_on", "power off")
            .await
            .unwrap(),
        ActReply::Go
    );
    world.advance(7);
    let former = world.replace_agent(u32::MAX).await;
    let again = world.agent.lease(1, 0).await.unwrap().pop().unwrap();
    assert_eq!((again.id, again.attempt), (job.id, job.attempt + 1));
    let [act] = again.acts.as_slice() else {
        panic!("{:?}", again.acts)
    };
    assert_eq!(
        (
            act.act.as_str(),
            act.before.as_str(),
            act.attempt,
            act.age_s
        ),
        ("power_on", "power off", 1, 7)
    );
    assert_eq!(
        world
            .agent
            .start_act(&again, "power_on", "power off")
            .await
            .unwrap(),
        ActReply::Already(act.clone())
    );
    // The former agent is fenced.
    assert_eq!(
        former.start_act(&job, "reset", "").await.unwrap_err(),
        stale("stale_epoch").unwrap_err()
    );
    assert_eq!(
        former.renew(&job).await.unwrap_err(),
        stale("stale_epoch").unwrap_err()
    );
    assert_eq!(
        former.report(job.id, job.attempt, Outcome::Cancelled).await,
        stale("stale_epoch")
    );
    assert_eq!(
        former.lease(1, 0).await.unwrap_err(),
        stale("stale_epoch").unwrap_err()
    );
    let JobSpec::BootLive(spec) = &again.spec else {
        panic!("{again:?}")
    };
    assert_eq!(
        former.redeem(&job, spec.permit, None).await.unwrap_err(),
        stale("stale_epoch").unwrap_err()
    );
    // The machine was never switched on: the boot fails, and the next round may act again.
    world.agent.work(&again).await.unwrap();
    let next = world.until_leased("n1", "boot_live").await;
    assert!(next.acts.is_empty() && next.attempt > again.attempt);
    let JobSpec::BootLive(anew) = &next.spec else {
        panic!("{next:?}")
    };
    assert!(anew.nonce != spec.nonce && anew.permit != spec.permit);
    world.agent.work(&next).await.unwrap();
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.check().await;
}

#[tokio::test]
async fn a_lease_that_runs_out_hands_the_job_on_and_keeps_the_late_outcome_out() {
    let mut world = World::start(1).await;
    let second = world.agent.clone();
    let job = world.until_leased("n1", "boot_live").await;
    world.advance(20);
    world.agent.renew(&job).await.unwrap();
    world.advance(29);
    world.expire_leases().await;
    assert!(
        second.lease(1, 0).await.unwrap().is_empty(),
        "renewed 29 s ago"
    );
    world.advance(2);
    assert!(
        second.lease(1, 0).await.unwrap().is_empty(),
        "not before the server has seen it"
    );
    world.expire_leases().await;
    let again = second.lease(1, 0).await.unwrap().pop().unwrap();
    assert_eq!((again.id, again.attempt), (job.id, 2));
    let told = JobResult::Live {
        host_key: "late".into(),
        boot_id: "late".into(),
        address: [10, 77, 0, 11].into(),
        bmc_certificate: None,
        inventory: None,
    };
    assert_eq!(
        world
            .agent
            .report(job.id, job.attempt, Outcome::Succeeded { result: told })
            .await,
        stale("stale_attempt")
    );
    assert_eq!(
        world.agent.renew(&job).await.unwrap_err(),
        stale("stale_attempt").unwrap_err()
    );
    world.engine().await;
    assert_eq!(
        world.value("n1", "live_host_key").await,
        None,
        "nothing of it is kept"
    );
    assert!(
        world
            .history("n1")
            .await
            .ends_with(&["job.lease_expired".into(), "step.stale".into()]),
        "but what it said is"
    );
    second.work(&again).await.unwrap();
    // A job of the former agent, with the attempt of the present agent: refused.
    assert_eq!(
        world.agent.report(job.id, 2, Outcome::Cancelled).await,
        stale("stale_attempt")
    );
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.check().await;
}

#[tokio::test]
async fn an_outcome_counts_once_and_only_for_its_step() {
    let mut world = World::start(1).await;
    let job = world.until_leased("n1", "boot_live").await;
    let refused = world
        .agent
        .report(
            job.id,
            job.attempt,
            Outcome::Succeeded {
                result: JobResult::PoweredOff,
            },
        )
        .await;
    assert_eq!(refused, Err(Stop::Refused(422, "unprocessable".into())));
    world.agent.work(&job).await.unwrap();
    assert_eq!(
        world
            .agent
            .report(job.id, job.attempt, Outcome::Cancelled)
            .await,
        stale("stale_attempt")
    );
    let unknown = muster_core::ids::JobId::new();
    assert_eq!(
        world.agent.report(unknown, 1, Outcome::Cancelled).await,
        stale("stale_attempt")
    );
    world.settle().await;
    assert_eq!(
        world
            .history("n1")
            .await
            .iter()
            .filter(|line| *line == "step.succeeded boot_live")
            .count(),
        1
    );
}

#[tokio::test]
async fn a_second_hello_keeps_the_jobs_and_a_removal_loses_them() {
    let mut world = World::start(2).await;
    let second = world.second_agent().await;
    world.engine().await;
    let mine = world.agent.lease(1, 0).await.unwrap().pop().unwrap();
    assert!(
        second.lease(5, 0).await.unwrap().is_empty(),
        "one agent acts for a site, the other stands by"
    );
    world.agent.hello_again().await.unwrap();
    assert!(!world.agent.renew(&mine).await.unwrap());
    world
        .admin
        .header("if-match", "*")
        .delete("/v1/sites/lab/agents/first")
        .await
        .expect(204);
    assert_eq!(
        world.agent.renew(&mine).await.unwrap_err(),
        Stop::Refused(401, "certificate_required".into())
    );
    let handed_on: Vec<Job> = second.lease(5, 0).await.unwrap();
    assert_eq!(handed_on.len(), 2);
    assert!(
        handed_on
            .iter()
            .any(|job| (job.id, job.attempt) == (mine.id, 2))
    );
    for job in &handed_on {
        second.work(job).await.unwrap();
    }
    world.agent = second;
    world.settle().await;
    world.check().await;
}

/// The holder is cut off in the middle of a write, and the node continues. The standby takes over
/// after the lease and the longest call to a BMC, and not before. The server and the node refuse
/// all reports of the former agent.
#[tokio::test]
async fn of_two_agents_one_acts_and_the_other_takes_over_when_it_is_not_heard() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let second = world.second_agent().await;
    let job = world.until_leased("n1", "write_image").await;
    let poll = |agent: &Agent| SitePoll {
        epoch: agent.epoch,
        have: None,
        wait_s: 0,
    };
    let acts: SiteConfig = world
        .agent
        .call("/agent/v1/site", &poll(&world.agent))
        .await
        .unwrap();
    let stands_by: SiteConfig = second.call("/agent/v1/site", &poll(&second)).await.unwrap();
    assert_eq!(
        (acts.subnets.len(), stands_by.subnets.len()),
        (1, 0),
        "machines are answered by one of them"
    );

    world.advance(20);
    world.agent.renew(&job).await.unwrap();
    // The node has the plan and asks for the permit. Then the agent is cut off.
    world.agent.refuel(2);
    assert_eq!(world.agent.work(&job).await, Err(Stop::Dead));
    for (seconds, takes_over) in [(44, false), (2, false), (43, false), (3, true)] {
        world.advance(seconds);
        world.expire_leases().await;
        let jobs = second.lease(5, 0).await.unwrap();
        assert_eq!(!jobs.is_empty(), takes_over, "after {seconds} s more");
        let Some(again) = jobs.into_iter().next() else {
            continue;
        };
        assert_eq!((again.id, again.attempt), (job.id, 2));
        assert!(second.work(&again).await.is_ok());
    }
    let former = std::mem::replace(&mut world.agent, second);
    former.refuel(IMMORTAL);
    let refused = stale("stale_epoch").unwrap_err();
    assert_eq!(former.renew(&job).await.unwrap_err(), refused);
    assert_eq!(former.lease(1, 0).await.unwrap_err(), refused);
    assert_eq!(
        former.start_act(&job, "reset", "").await.unwrap_err(),
        refused
    );
    let JobSpec::WriteImage { plan, .. } = &job.spec else {
        panic!("{job:?}")
    };
    assert_eq!(
        former.redeem(&job, plan.permit, None).await.unwrap_err(),
        refused
    );
    assert_eq!(
        former
            .report(job.id, job.attempt, Outcome::Cancelled)
            .await
            .unwrap_err(),
        refused
    );
    let old = Plan {
        protocol: PROTOCOL,
        job: job.id,
        attempt: job.attempt,
        node: job.node,
        epoch: job.epoch,
        timeout_s: 60,
        work: Work::WriteImage(plan.clone()),
    };
    assert!(matches!(
        world.machine("n1", |machine| machine.run(&old)),
        machine::node_program::Heard::Stale
    ));
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    let images = |machine: &mut machine::Machine| {
        machine
            .log
            .iter()
            .filter(|done| done.act == "image")
            .count()
    };
    assert_eq!(world.machine("n1", images), 1);
    world.check().await;
    // The restarted agent stands by.
    let mut again = former.clone();
    again.epoch = former.hello_again().await.unwrap().epoch;
    assert!(again.lease(5, 0).await.unwrap().is_empty());
}

#[tokio::test]
async fn work_on_the_node_goes_on_without_its_agent_and_is_found_by_the_next() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "write_image").await;
    // The agent dies after the node got the permit: renewal, run, challenge and answer only.
    world.agent.refuel(4);
    assert_eq!(world.agent.work(&job).await, Err(Stop::Dead));
    assert_eq!(
        world.machine("n1", |machine| machine
            .log
            .iter()
            .filter(|done| done.act == "image")
            .count()),
        1
    );
    let former = world.replace_agent(u32::MAX).await;
    let again = world.until_leased("n1", "write_image").await;
    assert_eq!((again.id, again.attempt), (job.id, 2));
    world.agent.work(&again).await.unwrap();
    // A returning agent finds the node at work for the successor.
    former.refuel(u32::MAX);
    assert!(
        matches!(former.work(&job).await, Err(Stop::Refused(409, code)) if code == "stale_epoch")
    );
    world.advance(SignedDuration::from_mins(5).as_secs());
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    let images = |machine: &mut machine::Machine| {
        machine
            .log
            .iter()
            .filter(|done| done.act == "image")
            .count()
    };
    assert_eq!(world.machine("n1", images), 1);
    world.check().await;
}

#[tokio::test]
async fn what_a_machine_says_keeps_no_job_from_ending() {
    let mut world = World::start(1).await;
    let job = world.until_leased("n1", "boot_live").await;
    let at = world.server.app.clock.now();
    let progress = Progress {
        at,
        message: "half\0way".into(),
        done: Some(1),
        total: Some(2),
        unit: Some("\0".into()),
    };
    let log = vec![LogLine {
        at,
        text: "\0\u{1b}[31m".into(),
    }];
    let renew = RenewJob {
        epoch: world.agent.epoch,
        attempt: job.attempt,
        progress: Some(progress),
        log,
        waiting_for: Some("\0the firm\0ware".into()),
    };
    let path = format!("/agent/v1/jobs/{}/renew", job.id);
    assert_eq!(
        world.agent.call::<Renewed>(&path, &renew).await,
        Ok(Renewed { cancel: false })
    );
    assert_eq!(
        world.value("n1", "waiting_for").await.as_deref(),
        Some("the firmware")
    );
    let mac = world.machine("n1", |machine| machine.mac);
    let seen = |mac| Sighting {
        at,
        mac,
        what: Seen::Dhcp,
        uuid: Some("\0".repeat(500)),
        serial: Some("S\0".into()),
        detail: "\0".into(),
    };
    let sightings = Sightings {
        epoch: world.agent.epoch,
        sightings: vec![seen(mac), seen(Mac([2, 0, 0, 0, 0, 9]))],
    };
    world
        .agent
        .call::<()>("/agent/v1/sightings", &sightings)
        .await
        .unwrap();
    assert_eq!(world.state("unknown-020000000009").await, "discovered");
    let failure = Failure {
        code: FailureCode::Other("\0".repeat(100)),
        message: "\0long ".repeat(100_000),
        retryable: false,
    };
    world
        .agent
        .report(job.id, job.attempt, Outcome::Failed { failure })
        .await
        .unwrap();
    world.engine().await;
    assert_eq!(world.state("n1").await, "failed");
    let reason = world.value("n1", "reason").await.unwrap();
    assert!(
        reason.starts_with("boot the live image: long long") && reason.len() < 2100,
        "{reason}"
    );
}

#[tokio::test]
async fn a_second_fetch_of_a_boot_script_is_an_event_of_its_node() {
    let world = World::start(1).await;
    let mac = world.machine("n1", |machine| machine.mac);
    let at = world.server.app.clock.now();
    let seen = |mac| Sighting {
        at,
        mac,
        what: Seen::FetchedTwice,
        uuid: None,
        serial: None,
        detail: "asked from 10.77.0.99".into(),
    };
    let sightings = Sightings {
        epoch: world.agent.epoch,
        sightings: vec![seen(mac), seen(Mac([2, 0, 0, 0, 0, 9]))],
    };
    world
        .agent
        .call::<()>("/agent/v1/sightings", &sightings)
        .await
        .unwrap();
    let history = world.history("n1").await;
    assert!(
        history.contains(&"boot.fetched_twice".to_owned()),
        "{history:?}"
    );
    let nodes = world.admin.get("/v1/nodes").await.expect(200).body;
    assert_eq!(nodes["items"].as_array().unwrap().len(), 1, "{nodes}");
}

/// An outcome waits for the engine's turn and holds no lock that the engine needs, so no deadlock
/// follows.
#[tokio::test]
async fn an_outcome_takes_its_locks_in_the_order_of_the_engine() {
    let mut world = World::start(1).await;
    let job = world.until_leased("n1", "boot_live").await;
    let mut turn = world.server.app.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM nodes FOR UPDATE")
        .execute(&mut *turn)
        .await
        .unwrap();
    let (agent, reported) = (world.agent.clone(), job.clone());
    let report = tokio::spawn(async move {
        agent
            .report(reported.id, reported.attempt, Outcome::Cancelled)
            .await
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while sqlx::query_scalar::<_, i64>(waiting)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap()
        == 0
    {
        assert!(
            std::time::Instant::now() < deadline,
            "the outcome does not wait for the node"
        );
    }
    sqlx::query("SELECT FROM jobs FOR UPDATE NOWAIT")
        .execute(&mut *turn)
        .await
        .unwrap();
    turn.commit().await.unwrap();
    report.await.unwrap().unwrap();
}

/// For any number of nodes at once, the member list of a scheduler is read once, and no order
/// carries the list.
#[tokio::test]
async fn one_list_serves_all_that_are_admitted_together() {
    let mut world = World::start(10).await;
    world.settle().await;
    for number in 1..=10 {
        world.claim(&format!("n{number}")).await.expect(201);
    }
    let queued = "SELECT count(*) FROM jobs WHERE state = 'queued' AND step = 'admit'";
    for _ in 0..100 {
        world.engine().await;
        let admits: i64 = sqlx::query_scalar(queued)
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap();
        if admits == 10 {
            break;
        }
        for job in world.agent.lease(100, 0).await.unwrap() {
            world.agent.work(&job).await.unwrap();
        }
    }
    let admits = world.agent.lease(100, 0).await.unwrap();
    let kinds: Vec<_> = admits.iter().map(|job| job.spec.kind()).collect();
    assert_eq!(kinds, ["admit"; 10]);
    world.agent.work(&admits[0]).await.unwrap();
    let listed = world.rack().scheduler.clone();
    assert_eq!(listed.members.len(), 10, "{listed:?}");
    for job in &admits[1..] {
        world.agent.work(job).await.unwrap();
    }
    assert_eq!(
        world.rack().scheduler.revision,
        listed.revision,
        "another list was asked for"
    );
    // An agent reads a cluster only with a job for the cluster.
    let over = world.agent.list_members(&admits[0]).await;
    assert_eq!(over, Err(Stop::Refused(409, "stale_attempt".into())));
}
