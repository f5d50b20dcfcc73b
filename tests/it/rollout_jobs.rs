//! Rollouts and the jobs of nodes: no node is closed long before the end of its last job.

use jiff::{SignedDuration, Timestamp};
use muster_core::ids::ObjectId;
use muster_core::wire::scheduler::{ClusterJob, JobsLook, JobsReply, JobsReport};
use muster_server::tasks::rollouts;
use serde_json::{Value, json};

use crate::rollouts::{at_once, marks, serving, settle, show, start, steer, taken};
use crate::simulated::World;

/// The default of `drain_lead_s`.
pub(crate) const LEAD_S: i64 = 900;

/// Runs a job of alice for so many seconds, or without an end. Returns the end.
pub(crate) fn run_job(
    world: &World,
    id: &str,
    seconds: Option<i64>,
    nodes: &[&str],
) -> Option<Timestamp> {
    let now = world.server.app.clock.now();
    let ends = seconds.map(|seconds| now + SignedDuration::from_secs(seconds));
    let job = ClusterJob {
        id: id.into(),
        user: "alice".into(),
        state: "RUNNING".into(),
        ends,
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        requeues: true,
    };
    world.rack().scheduler.jobs.push(job);
    ends
}

/// The code of the rule that keeps a node, and the sentence.
fn why(rollout: &Value, node: usize) -> (&str, &str) {
    let why = &rollout["nodes"][node]["why"];
    let text = |member: &str| why[member].as_str().unwrap_or_default();
    (text("code"), text("sentence"))
}

#[tokio::test]
async fn a_node_closes_shortly_before_its_last_job_ends_and_idle_nodes_first() {
    let mut world = serving(2, json!("100%")).await;
    run_job(&world, "16", Some(60), &["n1"]);
    let ends = run_job(&world, "17", Some(4 * 3600), &["n1", "elsewhere"]).unwrap();
    let name = start(&world, 2, &at_once()).await;
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(marks(&seen), ["waiting", "done"], "{seen:#}");
    let sentence = format!("job 17 of alice ends by {ends}");
    assert_eq!(why(&seen, 0), ("job", sentence.as_str()), "{seen:#}");
    assert_eq!(taken(&world).await, ["n2"]);
    assert_eq!(world.state("n1").await, "in_service");
    // Readers of the pool may be no readers of the node.
    let binding = &seen["now"]["binding"];
    assert_eq!(binding["code"], "job");
    assert!(!binding.to_string().contains("alice"), "{binding}");

    let left = ends.duration_since(world.server.app.clock.now()).as_secs();
    world.advance(left - LEAD_S - 60);
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["waiting", "done"]);
    world.advance(61);
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(done["state"], "done", "{done:#}");
    assert_eq!(taken(&world).await, ["n2", "n1"]);
    world.check().await;
}

#[tokio::test]
async fn nothing_is_taken_while_the_jobs_are_unknown() {
    let mut world = serving(2, json!("100%")).await;
    let name = start(&world, 2, &at_once()).await;
    let round = async |world: &World| {
        rollouts::round(&world.server.app).await.unwrap();
        show(world, &name).await
    };
    let never = round(&world).await;
    assert_eq!(marks(&never), ["not_begun"; 2], "{never:#}");
    assert_eq!(why(&never, 0).0, "jobs_unknown", "{never:#}");
    run_job(&world, "17", None, &["n2"]);
    world.agent.report_jobs().await.unwrap();
    world.advance(181);
    let stale = round(&world).await;
    assert_eq!(marks(&stale), ["not_begun"; 2], "{stale:#}");
    assert_eq!(why(&stale, 0).0, "jobs_unknown", "{stale:#}");
    world.agent.report_jobs().await.unwrap();
    world.advance(179);
    let fresh = round(&world).await;
    assert_eq!(marks(&fresh), ["changing", "waiting"], "{fresh:#}");
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(why(&seen, 1), ("job", "job 17 of alice has no end"));
    // Readers of the pool may be no readers of the node.
    let estimate = &seen["estimate"];
    assert!(estimate.to_string().contains("has no end"), "{estimate}");
    assert!(!estimate.to_string().contains("alice"), "{estimate}");
    world.rack().scheduler.jobs.clear();
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
    world.check().await;
}

#[tokio::test]
async fn a_look_from_before_the_node_serves_is_not_about_the_node() {
    let mut world = serving(2, json!("100%")).await;
    world.agent.report_jobs().await.unwrap();
    world.advance(10);
    world.ask("n1", "drain").await.expect(202);
    world.settle().await;
    world.ask("n1", "resume").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    let name = start(&world, 2, &at_once()).await;
    rollouts::round(&world.server.app).await.unwrap();
    let seen = show(&world, &name).await;
    assert_eq!(marks(&seen), ["not_begun", "changing"], "{seen:#}");
    assert_eq!(why(&seen, 0).0, "jobs_unknown", "{seen:#}");
}

#[tokio::test]
async fn the_drain_deadline_skips_the_node_or_asks_a_person() {
    for (then, mark) in [("skip", "skipped"), ("ask", "waiting")] {
        let mut world = serving(1, json!("100%")).await;
        run_job(&world, "17", None, &["n1"]);
        let mut drains = at_once();
        drains["drain"] = json!({ "deadline": { "after_s": 600, "then": then } });
        let name = start(&world, 2, &drains).await;
        settle(&mut world).await;
        assert_eq!(marks(&show(&world, &name).await), ["waiting"]);
        world.advance(601);
        settle(&mut world).await;
        let seen = show(&world, &name).await;
        assert_eq!(marks(&seen), [mark], "{seen:#}");
        if then == "ask" {
            assert_eq!(why(&seen, 0).0, "drain_deadline", "{seen:#}");
        }
        world.advance(60);
        settle(&mut world).await;
        let asked = async |world: &World| {
            let count = "SELECT count(*) FROM events WHERE kind = 'rollout.deadline_passed' AND node_id IS NOT NULL";
            let count = sqlx::query_scalar::<_, i64>(count).fetch_one(&world.server.app.pool);
            count.await.unwrap()
        };
        assert_eq!(asked(&world).await, i64::from(then == "ask"), "once");
        if then == "ask" {
            let later = json!({ "drain": { "deadline": { "after_s": 7200, "then": "ask" } } });
            let body = json!({ "policy": later, "reason": "a long job" });
            steer(&world, &name, "adjust", body).await.expect(200);
            settle(&mut world).await;
            world.advance(7200);
            settle(&mut world).await;
            assert_eq!(asked(&world).await, 2, "a later deadline passes too");
        }
        assert_eq!(taken(&world).await.len(), 0);
    }
}

#[tokio::test]
async fn after_the_drain_deadline_jobs_are_requeued_unless_they_cannot_be() {
    let mut world = serving(2, json!("100%")).await;
    run_job(&world, "17", None, &["n1"]);
    run_job(&world, "18", None, &["n2"]);
    world.rack().scheduler.jobs[1].requeues = false;
    let mut drains = at_once();
    drains["drain"] = json!({ "deadline": { "after_s": 600, "then": "requeue" } });
    let name = start(&world, 2, &drains).await;
    settle(&mut world).await;
    world.advance(599);
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["waiting", "waiting"]);
    assert!(world.rack().scheduler.requeued.is_empty());

    world.advance(2);
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(marks(&seen), ["done", "waiting"], "{seen:#}");
    assert_eq!(world.rack().scheduler.requeued, ["17"]);
    let sentence = "job 18 of alice cannot be requeued: a person ends the job or skips the node";
    assert_eq!(why(&seen, 1), ("cannot_requeue", sentence));
    settle(&mut world).await;
    let told = "SELECT count(*) FROM events WHERE kind = 'rollout.deadline_passed' AND detail ->> 'code' = 'cannot_requeue'";
    let told: i64 = sqlx::query_scalar(told)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    assert_eq!(told, 1, "once");

    world.rack().scheduler.jobs.clear();
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["done", "done"]);
    assert_eq!(world.rack().scheduler.requeued, ["17"]);
    world.check().await;
}

/// Asks for a requeue after 600 s of waiting, and lets a job without an end run on `n1`.
async fn start_requeuing(world: &mut World) -> String {
    run_job(world, "17", None, &["n1"]);
    let mut drains = at_once();
    drains["drain"] = json!({ "deadline": { "after_s": 600, "then": "requeue" } });
    let name = start(world, 2, &drains).await;
    settle(world).await;
    name
}

/// Lets the deadline pass, and closes `n1`. No agent has leased the drain then.
async fn close_at_deadline(world: &World) {
    world.advance(601);
    world.agent.report_jobs().await.unwrap();
    rollouts::round(&world.server.app).await.unwrap();
    world.engine().await;
    assert_eq!(world.state("n1").await, "draining");
}

#[tokio::test]
async fn an_act_of_a_person_takes_the_requeue_back() {
    let mut world = serving(1, json!("100%")).await;
    start_requeuing(&mut world).await;
    close_at_deadline(&world).await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "maintenance");
    assert!(world.rack().scheduler.requeued.is_empty());
    world.check().await;
}

#[tokio::test]
async fn a_halt_before_the_drain_takes_the_requeue_back() {
    let mut world = serving(1, json!("100%")).await;
    let name = start_requeuing(&mut world).await;
    close_at_deadline(&world).await;
    let reason = json!({ "reason": "a test" });
    steer(&world, &name, "halt", reason).await.expect(200);
    settle(&mut world).await;
    assert_eq!(world.state("n1").await, "in_service");
    assert!(world.rack().scheduler.requeued.is_empty());
    world.check().await;
}

#[tokio::test]
async fn a_refused_requeue_gives_the_node_back_and_is_tried_again() {
    let mut world = serving(1, json!("100%")).await;
    let name = start_requeuing(&mut world).await;
    world.fail("n1", "drain", false, 1);
    world.advance(601);
    settle(&mut world).await;
    assert_eq!(world.state("n1").await, "in_service");
    assert!(world.rack().scheduler.requeued.is_empty());
    // The pause after a failed drain, and the deadline of the new wait.
    for _ in 0..2 {
        world.advance(601);
        settle(&mut world).await;
    }
    assert_eq!(marks(&show(&world, &name).await), ["done"]);
    assert_eq!(world.rack().scheduler.requeued, ["17"]);
    world.check().await;
}

#[tokio::test]
async fn a_question_to_a_person_outlasts_a_time_without_a_list_of_jobs() {
    let mut world = serving(1, json!("100%")).await;
    start_requeuing(&mut world).await;
    world.rack().scheduler.jobs[0].requeues = false;
    world.advance(601);
    settle(&mut world).await;
    world.advance(240);
    rollouts::round(&world.server.app).await.unwrap();
    let code = "SELECT reason_code FROM rollout_nodes";
    let code = sqlx::query_scalar::<_, Option<String>>(code).fetch_one(&world.server.app.pool);
    assert_eq!(code.await.unwrap().as_deref(), Some("cannot_requeue"));
    settle(&mut world).await;
    let asked = "SELECT count(*) FROM events WHERE kind = 'rollout.deadline_passed'";
    let asked = sqlx::query_scalar::<_, i64>(asked).fetch_one(&world.server.app.pool);
    assert_eq!(asked.await.unwrap(), 1);
}

#[tokio::test]
async fn a_persons_drain_requeues_no_job() {
    let mut world = serving(1, json!("100%")).await;
    run_job(&world, "17", None, &["n1"]);
    world.ask("n1", "drain").await.expect(202);
    world.settle().await;
    let scheduler = world.rack().scheduler.clone();
    assert_eq!((scheduler.jobs.len(), scheduler.requeued.len()), (1, 0));
}

#[tokio::test]
async fn a_report_of_jobs_is_cut_and_counts_for_members_only() {
    let world = serving(2, json!("100%")).await;
    let long = "x".repeat(10_000);
    for number in 0..20 {
        run_job(&world, &format!("{number}{long}"), Some(number), &["n1"]);
    }
    run_job(&world, "21", None, &["n1", "nobody"]);
    world.agent.report_jobs().await.unwrap();
    let kept = async || {
        let query = "SELECT n.name, j.jobs, j.running, j.ctid::text FROM scheduler_jobs j JOIN nodes n ON n.id = j.node_id";
        let rows = sqlx::query_as::<_, (String, Value, i32, String)>(query);
        rows.fetch_all(&world.server.app.pool).await.unwrap()
    };
    let first = kept().await;
    let (node, jobs, running, _) = &first[0];
    assert_eq!((first.len(), node.as_str(), running), (1, "n1", &21));
    let jobs = jobs.as_array().unwrap();
    assert_eq!((jobs.len(), &jobs[0]["id"]), (8, &json!("21")));
    assert_eq!(jobs[1]["id"].as_str().unwrap().len(), 60);
    let requeues = |jobs: &[Value]| jobs.iter().all(|job| job["requeues"] == true);
    assert!(requeues(jobs));
    world.rack().scheduler.jobs[0].requeues = false;
    world.agent.report_jobs().await.unwrap();
    let cut = kept().await;
    let jobs = cut[0].1.as_array().unwrap();
    assert!(!requeues(jobs), "the job that stays is kept: {jobs:?}");
    world.rack().scheduler.jobs[0].requeues = true;
    world.agent.report_jobs().await.unwrap();
    let first = kept().await;
    world.advance(60);
    world.agent.report_jobs().await.unwrap();
    assert_eq!(kept().await, first, "an unchanged row is not written");
    let look = JobsLook {
        cluster: ObjectId::new(),
        jobs: vec![],
        reservations: None,
    };
    let report = JobsReport {
        epoch: world.agent.epoch,
        looks: vec![look],
    };
    let _: JobsReply = world
        .agent
        .call("/agent/v1/scheduler/jobs", &report)
        .await
        .unwrap();
    assert_eq!(kept().await, first, "a foreign cluster");
    world.rack().scheduler.jobs.clear();
    world.agent.report_jobs().await.unwrap();
    assert_eq!(kept().await.len(), 0);
}

#[tokio::test]
async fn the_event_of_a_stall_names_no_user() {
    let mut world = serving(1, json!("100%")).await;
    run_job(&world, "17", None, &["n1"]);
    start(&world, 2, &at_once()).await;
    settle(&mut world).await;
    world.advance(5 * 3600);
    settle(&mut world).await;
    let query = "SELECT summary || detail::text FROM events WHERE kind = 'rollout.stalled'";
    let told: Vec<String> = sqlx::query_scalar(query)
        .fetch_all(&world.server.app.pool)
        .await
        .unwrap();
    // Readers of the event may be no readers of the node.
    assert!(!told.is_empty());
    for told in told {
        assert!(
            told.contains("has no end") && !told.contains("alice"),
            "{told}"
        );
    }
}

/// A waiting node without jobs loses the time of its GPUs. Jobs end the loss.
#[tokio::test]
async fn gpu_time_lost_by_waiting_is_counted() {
    let mut world = serving(1, json!("100%")).await;
    let gpus = json!({ "spec": { "gpus": { "count": 8, "model": "H100" } } });
    let profile = "/v1/hardware_profiles/virtual";
    world.admin.patch(profile, &gpus).await.expect(200);
    run_job(&world, "17", None, &["n1"]);
    let name = start(&world, 2, &at_once()).await;
    settle(&mut world).await;
    let losses = async |world: &World| {
        world.agent.report_jobs().await.unwrap();
        let seen = show(world, &name).await;
        assert_eq!(marks(&seen), ["waiting"], "{seen:#}");
        let of_node = seen["nodes"][0]["lost_gpu_seconds"].clone();
        let of_node = of_node.as_u64().unwrap();
        let all = seen["now"]["losses"]["gpu_seconds"].as_u64();
        assert_eq!(all.unwrap_or_default(), of_node, "{seen:#}");
        of_node
    };
    assert_eq!(losses(&world).await, 0);
    let none = json!({ "spec": { "max_unavailable": 0 } });
    world.admin.patch("/v1/pools/gpu", &none).await.expect(200);
    world.rack().scheduler.jobs.clear();
    assert_eq!(losses(&world).await, 0);
    for minutes in 1..=60 {
        world.advance(60);
        assert_eq!(losses(&world).await, 8 * 60 * minutes);
    }
    run_job(&world, "18", None, &["n1"]);
    assert_eq!(losses(&world).await, 0);
    world.rack().scheduler.jobs.clear();
    assert_eq!(losses(&world).await, 0, "idle anew");
    world.advance(120);
    assert_eq!(losses(&world).await, 8 * 120);
    world.advance(3600);
    assert_eq!(losses(&world).await, 0, "the count begins anew after a gap");
}

/// A person requeues the jobs of a node that waits, with a policy that would wait for ever.
#[tokio::test]
async fn a_person_requeues_the_jobs_of_a_waiting_node() {
    let mut world = serving(2, json!("100%")).await;
    run_job(&world, "17", None, &["n1"]);
    run_job(&world, "18", None, &["n2"]);
    let name = start(&world, 2, &at_once()).await;
    let requeue = async |world: &World, node: &str| {
        let body = json!({ "node": node, "reason": "its user agrees" });
        steer(world, &name, "requeue", body).await
    };
    let early = requeue(&world, "n1").await.expect(409);
    assert_eq!(early.body["code"], "mark", "{}", early.text);
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["waiting", "waiting"]);
    let none = json!({ "node": "n1", "reason": " " });
    steer(&world, &name, "requeue", none).await.expect(422);
    requeue(&world, "n9").await.expect(422);
    requeue(&world, "n1").await.expect(200);
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["done", "waiting"]);
    assert_eq!(world.rack().scheduler.requeued, ["17"]);
    world.check().await;
}

/// The agreement is for one wait: after a halt, the node waits for its jobs again.
#[tokio::test]
async fn an_agreement_to_requeue_ends_with_the_wait() {
    let mut world = serving(1, json!("100%")).await;
    run_job(&world, "17", None, &["n1"]);
    let name = start(&world, 2, &at_once()).await;
    settle(&mut world).await;
    let body = json!({ "node": "n1", "reason": "its user agrees" });
    steer(&world, &name, "requeue", body).await.expect(200);
    let reason = json!({ "reason": "a test" });
    steer(&world, &name, "halt", reason.clone())
        .await
        .expect(200);
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["not_begun"]);
    steer(&world, &name, "resume", reason).await.expect(200);
    settle(&mut world).await;
    assert_eq!(marks(&show(&world, &name).await), ["waiting"]);
    assert!(world.rack().scheduler.requeued.is_empty());
}
