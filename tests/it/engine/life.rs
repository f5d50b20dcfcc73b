//! The life of a healthy node: states, steps and texts of the history.

use muster_core::wire::job::JobSpec;

use crate::simulated::World;
use muster_lab::simulated::machine::Running;

/// The events since the last look, a line for each stay in a state.
async fn chapters(world: &World, from: &mut usize) -> Vec<String> {
    let history = world.history("n1").await;
    let mut chapters: Vec<String> = Vec::new();
    for line in &history[*from..] {
        match line.strip_prefix("node.advanced ") {
            Some(state) => chapters.push(format!("{state}:")),
            None if chapters.is_empty() => chapters.push(line.clone()),
            None => {
                let last = chapters.last_mut().unwrap();
                *last = format!("{last} {line}");
            }
        }
    }
    *from = history.len();
    chapters
}

const BOOT_LIVE: &str =
    "step.queued boot_live permit.redeemed act.started power_on step.succeeded boot_live";
const LOOK: &str = "step.queued inventory step.succeeded inventory step.queued power_off permit.redeemed step.succeeded power_off";

#[tokio::test]
async fn a_whole_life_is_this_sequence_and_begins_again() {
    let mut world = World::start(1).await;
    let mut seen = 0;
    world.settle().await;
    assert_eq!(
        chapters(&world, &mut seen).await,
        [
            "node.registered node.action_requested accept".to_owned(),
            format!("inspecting: {BOOT_LIVE} {LOOK}"),
            "available:".to_owned(),
        ]
    );
    world.check().await;

    let claim = world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(chapters(&world, &mut seen).await, [
        "claim.created".to_owned(),
        format!("imaging: {BOOT_LIVE} step.queued write_image permit.redeemed step.succeeded write_image"),
        "installing: step.queued boot_disk permit.redeemed act.started reset step.succeeded boot_disk \
         step.queued converge step.succeeded converge step.queued reboot permit.redeemed act.started reboot step.succeeded reboot \
         step.queued recheck step.succeeded recheck".to_owned(),
        "validating: step.queued gates step.succeeded gates step.queued reboot_test permit.redeemed act.started reboot \
         step.succeeded reboot_test step.queued gates_after_reboot step.succeeded gates_after_reboot".to_owned(),
        "admitting: step.queued admit step.succeeded admit".to_owned(),
        "in_service:".to_owned(),
    ]);
    assert_eq!(world.operation(&claim).await, "succeeded");
    assert!(world.rack().scheduler.members.contains("n1"));
    let marker = world
        .machine("n1", |machine| {
            machine.disks[&machine.root()].marker.clone()
        })
        .unwrap();
    assert_eq!(
        (marker.epoch, marker.claim.to_string()),
        (1, claim.body["id"].as_str().unwrap().to_owned())
    );
    world.check().await;

    let release = world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        chapters(&world, &mut seen).await,
        [
            "claim.releasing".to_owned(),
            "draining: step.queued drain step.succeeded drain step.queued remove step.succeeded remove".to_owned(),
            "wiping: step.queued boot_live permit.redeemed act.started reset step.succeeded boot_live \
         step.queued inventory step.succeeded inventory step.queued wipe permit.redeemed step.succeeded wipe"
                .to_owned(),
            format!("inspecting: {LOOK}"),
            "available:".to_owned(),
        ]
    );
    assert_eq!(world.operation(&release).await, "succeeded");
    assert_eq!(
        world.admin.get("/v1/claims/c-n1").await.status,
        404,
        "its name is free"
    );
    world.check().await;

    // The first life leaves no obstacle for the second life.
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(world.value("n1", "epoch").await.unwrap(), "3");
    world.check().await;
}

#[tokio::test]
async fn what_a_node_waits_for_is_told_at_every_moment() {
    let mut world = World::start(1).await;
    world.engine().await;
    let why = async |world: &World| {
        world.admin.get("/v1/nodes/n1/why").await.expect(200).body["sentence"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(
        why(&world)
            .await
            .contains("the site's agent to take the job: boot the live image"),
        "{}",
        why(&world).await
    );
    let job = world.until_leased("n1", "boot_live").await;
    let leased = "waiting for: boot the live image (agent must act)";
    assert!(
        why(&world).await.contains(leased),
        "at once, not with the next turn: {}",
        why(&world).await
    );
    world.agent.renew(&job).await.unwrap();
    assert!(
        why(&world).await.contains("the simulated boot_live"),
        "{}",
        why(&world).await
    );
    world.engine().await;
    assert!(
        why(&world).await.contains("the simulated boot_live"),
        "{}",
        why(&world).await
    );
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert!(
        why(&world).await.contains("a claim"),
        "{}",
        why(&world).await
    );
}

#[tokio::test]
async fn a_claim_given_up_before_imaging_leaves_the_disks_alone() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let released = world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        world.states("n1").await,
        ["inspecting", "available", "inspecting", "available"]
    );
    assert_eq!(world.operation(&released).await, "succeeded");
    let done = world.machine("n1", |machine| {
        machine
            .log
            .iter()
            .map(|done| done.act.to_string())
            .collect::<Vec<_>>()
    });
    assert_eq!(done, ["power_on", "power_off", "power_on", "power_off"]);
    world.check().await;
    world.claim("n1").await.expect(201);
}

#[tokio::test]
async fn orders_name_exactly_what_they_are_for() {
    let mut world = World::start(2).await;
    world.settle().await;
    let claim = world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "write_image").await;
    let JobSpec::WriteImage { plan, login } = &job.spec else {
        panic!("{job:?}")
    };
    assert_eq!(
        (
            plan.disk_serial.as_str(),
            plan.hostname.as_str(),
            plan.network.address.as_str()
        ),
        ("ROOT-n1", "n1", "10.77.0.11/24")
    );
    assert_eq!(plan.principal, format!("muster:{}:1", job.node));
    assert_eq!(
        (plan.claim.to_string(), job.epoch),
        (claim.body["id"].as_str().unwrap().to_owned(), 1)
    );
    assert_eq!(
        login.host_key,
        world.machine("n1", |machine| machine.host_key())
    );
    world.agent.work(&job).await.unwrap();
    // Orders are stored nowhere: no key of a job, no password of a BMC.
    let stored: String = sqlx::query_scalar("SELECT string_agg(j::text, ' ') FROM jobs j")
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    let events: String = sqlx::query_scalar("SELECT string_agg(e::text, ' ') FROM events e")
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    for secret in ["calvin", "PRIVATE KEY"] {
        assert!(
            !stored.contains(secret) && !events.contains(secret),
            "{secret} is in the database"
        );
    }
    world.settle().await;
    // The members come from the profile. A node on the way out is in no list.
    world.claim("n2").await.expect(201);
    let admit = world.until_leased("n2", "admit").await;
    world.release("n1").await.expect(202);
    let remove = world.until_leased("n1", "remove").await;
    world.agent.work(&admit).await.unwrap();
    assert_eq!(world.state("n2").await, "in_service");
    let list = world.agent.list_members(&remove).await.unwrap();
    let JobSpec::Remove { revision, .. } = &remove.spec else {
        panic!("{remove:?}")
    };
    assert!(list.revision > *revision);
    assert_eq!(
        list.nodes
            .iter()
            .map(|node| node.name.as_str())
            .collect::<Vec<_>>(),
        ["n2"]
    );
    world.engine().await;
    let mut again = world.second_agent().await.lease(0, 0).await.unwrap();
    assert!(
        again.pop().is_none(),
        "nothing is leased to somebody without capacity"
    );
    world.agent.work(&remove).await.unwrap();
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
async fn a_list_made_while_a_node_leaves_does_not_put_it_back() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.release("n1").await.expect(202);
    let remove = world.until_leased("n1", "remove").await;
    // The other node has the newer list, so this list is written last in either order.
    world.claim("n2").await.expect(201);
    let admit = world.until_leased("n2", "admit").await;
    let list = world.agent.list_members(&admit).await.unwrap();
    assert_eq!(
        list.nodes
            .iter()
            .map(|node| node.name.as_str())
            .collect::<Vec<_>>(),
        ["n2"]
    );
    world.agent.work(&remove).await.unwrap();
    world.agent.work(&admit).await.unwrap();
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
async fn what_is_not_declared_fails_with_the_sentence_that_says_so() {
    let mut world = World::declare(1, |path, body| match path {
        "/v1/sites/lab" => crate::support::fleet::site(),
        _ => body,
    })
    .await;
    world.settle().await;
    assert_eq!(world.state("n1").await, "failed");
    assert_eq!(
        world.value("n1", "reason").await.unwrap(),
        "boot the live image: the site declares no live image (spec.live)"
    );
    assert_eq!(
        world.machine("n1", |machine| machine.running.clone()),
        Running::Off
    );
    world.check().await;
}
