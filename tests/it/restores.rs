//! Restores of the database to an earlier state. An agent, node or replica with later events opens
//! caution mode. Power acts and writes then wait for an administrator's confirmation.

use muster_api::tokens::Role;
use muster_core::wire::job::JobSpec;
use muster_core::wire::members::ClusterMembers;
use muster_core::wire::node::{Answer, Failure, FailureCode};
use muster_core::wire::result::Outcome;
use muster_server::tasks::marks;
use serde_json::json;

use crate::simulated::World;
use crate::support::postgres::Backup;
use muster_lab::simulated::agent::Stop;

impl World {
    fn backup(&self) -> Backup {
        Backup::of(&self.server.app.pool)
    }

    async fn caution(&self) -> Option<(String, String)> {
        let status = self.admin.get("/v1/caution").await.expect(200).body;
        let text = |name: &str| status["caution"][name].as_str().map(str::to_owned);
        text("id").zip(text("because"))
    }

    async fn confirm(&self) {
        let (id, _) = self.caution().await.unwrap();
        self.admin
            .post(
                "/v1/caution/confirm",
                &json!({ "id": id, "note": "compared" }),
            )
            .await
            .expect(200);
    }

    fn acts(&self, name: &str) -> usize {
        self.machine(name, |machine| machine.log.len())
    }

    /// Runs `count` passes of engine and agent, and advances the clock by 61 seconds after every
    /// pass.
    async fn rounds(&mut self, count: u32) {
        for _ in 0..count {
            self.pass().await;
            self.advance(61);
        }
    }
}

/// The node serves a claim. The restored database lists the node as available.
#[tokio::test]
async fn an_agent_that_knows_more_stops_what_would_destroy() {
    let mut world = World::start(2).await;
    world.settle().await;
    let backup = world.backup();
    world.claim("n1").await.expect(201);
    world.settle().await;
    let (acts, heard) = (world.acts("n1"), world.agent.heard.clone());
    assert!(heard.lock().unwrap().is_some());

    world.put_back(&backup).await;
    assert_eq!(world.state("n1").await, "available");
    world.claim("n1").await.expect(201);
    world.rounds(5).await;
    assert_eq!(world.acts("n1"), acts, "it was neither powered nor written");
    let (id, because) = world.caution().await.unwrap();
    assert!(
        because.contains("The agent first was told of the event"),
        "{because}"
    );

    // The node, the pages and the API report the caution.
    let why = world.admin.get("/v1/nodes/n1/why").await.expect(200).text;
    assert!(
        why.contains("caution mode") && why.contains("muster caution confirm"),
        "{why}"
    );
    // The reason is hidden here: a reader of the node may lack access to the witness's site.
    assert!(!why.contains("was told of the event"), "{why}");
    let page = world.admin.get("/nodes").await.expect(200).text;
    assert!(
        page.contains("the database is older than other systems remember") && page.contains(&id),
        "{page}"
    );
    let viewer = world
        .server
        .caller(Role::Viewer)
        .await
        .get("/")
        .await
        .expect(200)
        .text;
    assert!(
        viewer.contains("muster caution show") && !viewer.contains("/confirm"),
        "{viewer}"
    );

    // An administrator confirms the open caution by id, with a note.
    let body = |id: &str, note: &str| json!({ "id": id, "note": note });
    let operator = world.server.caller(Role::Operator).await;
    assert_eq!(
        operator
            .post("/v1/caution/confirm", &body(&id, "x"))
            .await
            .status,
        403
    );
    let other = uuid::Uuid::now_v7().to_string();
    assert_eq!(
        world
            .admin
            .post("/v1/caution/confirm", &body(&other, "x"))
            .await
            .problem()
            .1,
        "not_open"
    );
    assert_eq!(
        world
            .admin
            .post("/v1/caution/confirm", &body(&id, " "))
            .await
            .status,
        422
    );
    world
        .admin
        .post(
            "/v1/caution/confirm",
            &body(&id, "n1 is lost to us; its disk will tell"),
        )
        .await
        .expect(200);
    assert_eq!(world.caution().await, None);

    // The disk's marker names the lost claim, so muster-node refuses the write.
    let images = world.machine("n1", |machine| {
        machine
            .log
            .iter()
            .filter(|done| done.act == "image")
            .count()
    });
    world.settle().await;
    assert_eq!(world.state("n1").await, "failed");
    assert!(
        world
            .value("n1", "reason")
            .await
            .unwrap()
            .contains("in use by claim")
    );
    assert_eq!(
        world.machine("n1", |machine| machine
            .log
            .iter()
            .filter(|done| done.act == "image")
            .count()),
        images
    );
    // Node n2 reaches service. The agent's lost event opens no second caution.
    world.claim("n2").await.expect(201);
    world.settle().await;
    assert_eq!(
        (world.state("n2").await.as_str(), world.caution().await),
        ("in_service", None)
    );
}

/// The agent has applied member lists that the restored database lacks. New lists must have a
/// higher revision than the lost lists.
#[tokio::test]
async fn an_agent_that_goes_on_takes_no_list_of_before_for_the_newer_one() {
    let mut world = World::start(3).await;
    world.settle().await;
    let backup = world.backup();
    for lost in ["n1", "n2"] {
        world.claim(lost).await.expect(201);
        world.settle().await;
    }
    // The agent's process keeps running during the restore.
    let revision = world.rack().scheduler.revision;
    world.put_back(&backup).await;
    world.rounds(1).await;
    world.confirm().await;
    world.claim("n3").await.expect(201);
    world.settle().await;
    assert_eq!(
        world.state("n3").await,
        "in_service",
        "{:?}",
        world.value("n3", "reason").await
    );
    let scheduler = world.rack().scheduler.clone();
    assert!(scheduler.revision > revision && scheduler.lists("n3"));
    // A list with an older revision is ignored, so fenced nodes stay fenced.
    world.rack().configure(&ClusterMembers {
        revision: scheduler.revision - 1,
        nodes: Vec::new(),
    });
    assert_eq!(world.rack().scheduler.members, scheduler.members);
}

#[tokio::test]
async fn a_permit_of_before_is_void_and_its_job_begins_anew() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "write_image").await;
    let JobSpec::WriteImage { plan, .. } = &job.spec else {
        panic!("{job:?}")
    };
    let backup = world.backup();
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");

    world.put_back(&backup).await;
    // The lease and the permit from before the restore are still within the time limit.
    let refused = world.agent.redeem(&job, plan.permit, None).await;
    assert_eq!(refused, Err(Stop::Refused(503, "caution".into())));
    world.confirm().await;
    let refused = world.agent.redeem(&job, plan.permit, None).await;
    assert_eq!(refused, Err(Stop::Refused(409, "stale_attempt".into())));
    let again = world.until_leased("n1", "write_image").await;
    let JobSpec::WriteImage { plan: anew, .. } = &again.spec else {
        panic!("{again:?}")
    };
    assert!(again.id == job.id && again.attempt > job.attempt && anew.permit != plan.permit);
    match world.agent.redeem(&again, plan.permit, None).await.unwrap() {
        Answer::Refused { reason } => {
            assert_eq!(reason, "the permit was minted for another job or round")
        }
        Answer::Granted { .. } => panic!("granted"),
    }
}

/// A leased job has a void permit, and no caution is open. The server still refuses the permit.
#[tokio::test]
async fn void_is_void_whoever_shows_it() {
    let mut world = World::start(1).await;
    let job = world.until_leased("n1", "boot_live").await;
    let JobSpec::BootLive(spec) = &job.spec else {
        panic!("{job:?}")
    };
    sqlx::query("UPDATE permits SET void = true")
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    match world.agent.redeem(&job, spec.permit, None).await.unwrap() {
        Answer::Refused { reason } => {
            assert_eq!(
                reason,
                "the permit was issued before the database was restored"
            )
        }
        Answer::Granted { .. } => panic!("granted"),
    }
    assert_eq!(world.acts("n1"), 0);
}

/// The agent's real client writes the latest event to disk before the answer is used. The client's
/// next process sends the event.
#[tokio::test]
async fn the_real_client_remembers_on_disk() {
    let mut world = World::start(1).await;
    let backup = world.backup();
    let job = world.until_leased("n1", "boot_live").await;
    let JobSpec::BootLive(spec) = &job.spec else {
        panic!("{job:?}")
    };
    let data_dir = tempfile::tempdir().unwrap();
    let server = world.real_client(data_dir.path()).await;
    let redeemed = server
        .redeem_permit(job.id, job.attempt, spec.permit, None)
        .await
        .unwrap();
    assert!(matches!(redeemed.answer, Answer::Granted { .. }));
    let written = std::fs::read_to_string(data_dir.path().join("latest-event")).unwrap();
    let known: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM events WHERE id = $1::uuid AND kind = 'permit.redeemed')",
    )
    .bind(&written)
    .fetch_one(&world.server.app.pool)
    .await
    .unwrap();
    assert!(known, "{written}");

    world.put_back(&backup).await;
    let next = world.real_client(data_dir.path()).await;
    next.lease_jobs(5, std::time::Duration::ZERO).await.unwrap();
    let (_, because) = world.caution().await.unwrap();
    assert!(because.contains(&written), "{because}");
    assert_ne!(
        std::fs::read_to_string(data_dir.path().join("latest-event")).unwrap(),
        written,
        "and learns anew"
    );
}

/// No agent received the event. The server recorded the event in a file beside the blobs.
#[tokio::test]
async fn a_replica_remembers_what_no_agent_was_told() {
    let mut world = World::start(1).await;
    world.settle().await;
    let backup = world.backup();
    marks::compare(&world.server.app).await.unwrap();
    world.claim("n1").await.expect(201);
    marks::compare(&world.server.app).await.unwrap();
    marks::compare(&world.server.app).await.unwrap();
    assert_eq!(world.caution().await, None);
    world.put_back(&backup).await;
    marks::compare(&world.server.app).await.unwrap();
    let (_, because) = world.caution().await.unwrap();
    assert!(
        because.starts_with("A server wrote down the event"),
        "{because}"
    );
    // After the confirmation, the server's file holds an event of the restored database.
    world.confirm().await;
    marks::compare(&world.server.app).await.unwrap();
    assert_eq!(world.caution().await, None);
}

/// The node has worked for a later epoch than the restored epoch.
#[tokio::test]
async fn a_node_that_knows_more_is_a_witness() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let backup = world.backup();
    world.settle().await;
    for _ in 0..2 {
        world.release("n1").await.expect(202);
        world.settle().await;
        world.claim("n1").await.expect(201);
        world.settle().await;
    }
    // The agent loses the latest event, and the server's directory has no recorded event.
    world.put_back(&backup).await;
    *world.agent.heard.lock().unwrap() = None;
    world.rounds(8).await;
    let (_, because) = world.caution().await.unwrap();
    assert!(
        because.contains("has worked for a later epoch"),
        "{because}"
    );
}

/// The owner of an installed system cannot stop the fleet with a false epoch.
#[tokio::test]
async fn an_installed_system_is_no_witness() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "converge").await;
    let failure = Failure {
        code: FailureCode::StaleOnNode,
        message: "epoch 99, it says".into(),
        retryable: false,
    };
    world
        .agent
        .report(job.id, job.attempt, Outcome::Failed { failure })
        .await
        .unwrap();
    world.settle().await;
    assert!(world.caution().await.is_none());
    assert_eq!(world.state("n1").await, "failed", "it alone");
}
