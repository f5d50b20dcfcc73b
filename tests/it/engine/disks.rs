//! What may be on a node's disks: never somebody else's to claim, whatever way round people take.

use crate::simulated::World;

/// A node whose data was not wiped: the release failed at the wipe.
async fn unsanitised() -> World {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.fail("n1", "wipe", false, 1);
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        world.value("n1", "unsanitised").await.as_deref(),
        Some("true")
    );
    assert!(!world.machine("n1", |machine| machine.empty()));
    world
}

#[tokio::test]
async fn no_way_round_leads_an_unsanitised_node_to_a_claim() {
    let mut world = unsanitised().await;
    let recover = world.ask("n1", "recover").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&recover).await.as_str()
        ),
        ("quarantined", "failed")
    );
    // By retirement.
    world.ask("n1", "retire").await.expect(202);
    world.settle().await;
    world.ask("n1", "reinstate").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "quarantined");
    assert!(
        world
            .value("n1", "reason")
            .await
            .unwrap()
            .starts_with("unsanitised")
    );
    // By a wipe that cannot begin, and what a person may ask of the node then.
    for aside in ["quarantine", "maintain"] {
        world.fail("n1", "boot_live", false, 1);
        world.ask("n1", "wipe").await.expect(202);
        world.settle().await;
        assert_eq!(
            world.value("n1", "failed_phase").await.as_deref(),
            Some("wiping")
        );
        world.ask("n1", aside).await.expect(202);
        world.settle().await;
        let back = if aside == "maintain" {
            "resume"
        } else {
            "recover"
        };
        world.ask("n1", back).await.expect(202);
        world.settle().await;
        assert_eq!(world.state("n1").await, "quarantined", "{aside}");
        world.check().await;
    }
    // By the database's own word, should everything before it be wrong.
    let forced = sqlx::query("UPDATE nodes SET state = 'available' WHERE name = 'n1'");
    forced.execute(&world.server.app.pool).await.unwrap();
    assert_eq!(world.claim("n1").await.problem(), (409, "unsanitised", ""));
    let undone = sqlx::query("UPDATE nodes SET state = 'quarantined' WHERE name = 'n1'");
    undone.execute(&world.server.app.pool).await.unwrap();
    world.ask("n1", "wipe").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    assert_eq!(
        world.value("n1", "unsanitised").await.as_deref(),
        Some("false")
    );
    world.check().await;
    world.claim("n1").await.expect(201);
}

#[tokio::test]
async fn a_disk_that_no_permit_can_name_is_refused_with_the_reason() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.machine("n1", |machine| machine.nameless_disk = true);
    let release = world.release("n1").await.expect(202);
    world.settle().await;
    let reason = world.value("n1", "reason").await.unwrap();
    assert!(
        reason.starts_with("unsanitised: disk sdz has no serial"),
        "{reason}"
    );
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.operation(&release).await.as_str()
        ),
        ("quarantined", "failed")
    );
    assert!(!world.machine("n1", |machine| {
        machine.log.iter().any(|done| done.act == "wipe")
    }));
    // The disk is out: the wipe finds every disk that is there now.
    world.machine("n1", |machine| machine.nameless_disk = false);
    world.ask("n1", "wipe").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.check().await;
}

#[tokio::test]
async fn a_disk_that_came_since_the_inspection_is_wiped_too() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    let dirty = muster_lab::simulated::machine::Disk {
        image: true,
        marker: None,
    };
    world.machine("n1", |machine| machine.disks.insert("NEW-n1".into(), dirty));
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    assert!(world.machine("n1", |machine| machine.empty()));
    world.check().await;
}

#[tokio::test]
async fn what_an_installed_system_says_of_its_disks_decides_nothing() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    // Root on the node hides a disk from the inventory; the live image sees it all the same.
    let hidden = world
        .machine("n1", |machine| machine.disks.remove("DATA-n1"))
        .unwrap();
    world.ask("n1", "inspect").await.expect(202);
    world.settle().await;
    world.machine("n1", |machine| {
        machine.disks.insert("DATA-n1".into(), hidden)
    });
    world.release("n1").await.expect(202);
    let job = world.until_leased("n1", "wipe").await;
    let muster_core::wire::job::JobSpec::Wipe { plan, .. } = &job.spec else {
        panic!("{job:?}")
    };
    assert_eq!(plan.disk_serials, ["DATA-n1", "DECOY-n1", "ROOT-n1"]);
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    world.check().await;
}

#[tokio::test]
async fn protection_stops_what_destroys_at_the_last_moment() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.claim("n2").await.expect(201);
    // Before the step begins: it waits, and says for what.
    let boot = world.until_leased("n1", "boot_live").await;
    world.protect("n1", true).await;
    world.agent.work(&boot).await.unwrap();
    let why = world.admin.get("/v1/nodes/n1/why").await.expect(200).body;
    assert_eq!(why["waiting_for"], "the node's protection to be removed");
    // After it began: its permit is refused.
    let job = world.until_leased("n2", "write_image").await;
    world.protect("n2", true).await;
    let outcome = world.agent.work(&job).await.unwrap();
    assert!(
        format!("{outcome:?}").contains("the node is protected"),
        "{outcome:?}"
    );
    assert!(
        world.machine("n1", |machine| machine.empty())
            && world.machine("n2", |machine| machine.empty())
    );
    for name in ["n1", "n2"] {
        world.protect(name, false).await;
    }
    world.engine().await;
    world.ask("n2", "retry").await.expect(202);
    world.settle().await;
    assert_eq!(
        (
            world.state("n1").await.as_str(),
            world.state("n2").await.as_str()
        ),
        ("in_service", "in_service")
    );
    world.check().await;
}
