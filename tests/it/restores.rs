//! A database that is put back to an earlier state believes old things. Whoever remembers more says so, and nothing is powered or written
//! until an administrator has looked.

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

    /// So many rounds of everything that goes on by itself.
    async fn rounds(&mut self, count: u32) {
        for _ in 0..count {
            self.pass().await;
            self.advance(61);
        }
    }
}

/// The node serves somebody; the backup says that anybody may have it.
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

    // On the node, on every page, in the API.
    let why = world.admin.get("/v1/nodes/n1/why").await.expect(200).text;
    assert!(
        why.contains("caution mode") && why.contains("muster caution confirm"),
        "{why}"
    );
    // The node's readers may not see the site of the witness.
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

    // An administrator ends it, having looked at this one.
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

    // Even so the disk says whose it is, and muster-node does not write it.
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
    // The rest of the fleet goes on, and the agent is not heard to know more again.
    world.claim("n2").await.expect(201);
    world.settle().await;
    assert_eq!(
        (world.state("n2").await.as_str(), world.caution().await),
        ("in_service", None)
    );
}

/// The agent has lists of members that the database knows nothing of any more: they are older than every one that is made now.
#[tokio::test]
async fn an_agent_that_goes_on_takes_no_list_of_before_for_the_newer_one() {
    let mut world = World::start(3).await;
    world.settle().await;
    let backup = world.backup();
    for lost in ["n1", "n2"] {
        world.claim(lost).await.expect(201);
        world.settle().await;
    }
    // The same process of the agent goes on.
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
    // What was fenced stays fenced: a list of before is still not put back.
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
    // The lease of before still holds, and so would the permit.
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

/// A job that was leased, and lost its agent, before anybody knew: its permit has no time left to be granted in.
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

/// The agent's own client writes down what it was allowed before it goes on, and its next process shows it.
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

/// Nobody had told an agent: the server wrote it down beside the blobs.
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
    // What is remembered from now on is of the database as it is.
    world.confirm().await;
    marks::compare(&world.server.app).await.unwrap();
    assert_eq!(world.caution().await, None);
}

/// The node itself remembers a later epoch.
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
    // Its agent lost everything, and the directory of the server as well.
    world.put_back(&backup).await;
    *world.agent.heard.lock().unwrap() = None;
    world.rounds(8).await;
    let (_, because) = world.caution().await.unwrap();
    assert!(
        because.contains("has worked for a later epoch"),
        "{because}"
    );
}

/// Whoever has an installed system does not stop the whole fleet by it.
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
