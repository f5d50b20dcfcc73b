//! What is asked of a node in the middle of something else, and where that leads: edges that neither a life that goes well nor a failure takes.

use muster_lab::simulated::machine::Disk;
use serde_json::json;

use crate::simulated::World;

/// One node that is claimed and serves.
async fn serving() -> World {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world
}

impl World {
    /// Asks it of `n1`, and where it then went from the state it was in until all rests.
    async fn led(&mut self, action: &str) -> Vec<String> {
        let before = self.states("n1").await.len();
        self.ask("n1", action).await.expect(202);
        self.settle().await;
        self.check().await;
        self.states("n1").await[before..].to_vec()
    }

    async fn maintained(&mut self) {
        self.ask("n1", "maintain").await.expect(202);
        self.settle().await;
        assert_eq!(self.state("n1").await, "maintenance");
    }
}

/// A sweep or a comparison may wait its turn for long: nobody is kept from taking the node out meanwhile, by the API or by its page.
#[tokio::test]
async fn a_look_that_waits_disables_no_button() {
    let mut world = serving().await;
    for look in ["inspect", "check-drift", "sweep"] {
        world.ask("n1", look).await.expect(202);
        let page = world.admin.get("/nodes/n1").await.expect(200).text;
        assert!(
            page.contains("id=\"act-quarantine\"") && page.contains("id=\"act-drain\""),
            "{look}: {page}"
        );
    }
    world.ask("n1", "drain").await.expect(202);
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    assert!(
        page.contains("id=\"no-quarantine\">it was asked to drain and is not done"),
        "{page}"
    );
    world.settle().await;
}

#[tokio::test]
async fn whoever_quarantines_a_node_on_its_way_has_it_at_once() {
    for state in ["imaging", "installing", "validating", "admitting"] {
        let mut world = World::start(1).await;
        world.settle().await;
        world.claim("n1").await.expect(201);
        world.until("n1", state).await;
        assert_eq!(world.led("quarantine").await, ["quarantined"], "{state}");
        let claim = world.admin.get("/v1/claims/c-n1").await.expect(200).body;
        assert_eq!(
            claim["status"]["state"], "bound",
            "it is its claim's as before"
        );
    }
}

#[tokio::test]
async fn out_of_maintenance_it_goes_where_it_is_asked_to() {
    let mut world = serving().await;
    let rest = ["installing", "validating", "admitting", "in_service"];
    world.maintained().await;
    assert_eq!(world.led("converge").await, rest);
    world.maintained().await;
    assert_eq!(
        world.led("reinstall").await,
        [&["imaging"], &rest[..]].concat()
    );
    world.maintained().await;
    assert_eq!(world.led("quarantine").await, ["quarantined"]);

    let mut world = World::start(1).await;
    world.settle().await;
    world.maintained().await;
    assert_eq!(world.led("retire").await, ["retired"]);
}

#[tokio::test]
async fn an_undo_after_the_removal_leads_through_the_gates() {
    let mut world = serving().await;
    world.release("n1").await.expect(202);
    let job = world.until_leased("n1", "remove").await;
    world.undo("n1").await.expect(202);
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    let states = world.states("n1").await;
    assert!(
        states.ends_with(&["draining", "validating", "admitting", "in_service"].map(String::from)),
        "{states:?}"
    );
    world.check().await;
}

/// A claimed node in whose place a disk was swapped, on its way back to its claim.
async fn repaired() -> World {
    let mut world = serving().await;
    world.maintained().await;
    let parts = json!([{ "kind": "disk", "old": "DATA-n1", "new": "NEW-n1" }]);
    let body = json!({ "reason": "media errors", "parts": parts });
    world.advance(60);
    world
        .admin
        .post("/v1/nodes/n1/actions/replace-parts", &body)
        .await
        .expect(202);
    world.machine("n1", |machine| {
        machine.disks.remove("DATA-n1");
        machine.disks.insert("NEW-n1".into(), Disk::default());
    });
    world
}

#[tokio::test]
async fn a_claim_ended_during_an_inspection_has_its_disks_wiped() {
    let mut world = repaired().await;
    world.until("n1", "inspecting").await;
    let before = world.states("n1").await.len();
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(
        world.states("n1").await[before..],
        ["wiping", "inspecting", "available"]
    );
    assert!(world.machine("n1", |machine| machine.empty()));
    world.check().await;
}

#[tokio::test]
async fn a_claim_that_ends_while_its_node_is_repaired_has_its_disks_wiped() {
    let mut world = World::declare(1, |path, mut body| {
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] = json!({ "recovery": { "rungs": ["reboot"] } });
        }
        body
    })
    .await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.ask("n1", "recover").await.expect(202);
    world.until("n1", "repairing").await;
    world.release("n1").await.expect(202);
    world.settle().await;
    let states = world.states("n1").await;
    assert!(
        states.ends_with(&["repairing", "wiping", "inspecting", "available"].map(String::from)),
        "{states:?}"
    );
    world.check().await;
}
