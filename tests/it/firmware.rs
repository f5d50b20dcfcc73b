//! Firmware and BIOS settings from a stack to a machine: set before the image is written, compared
//! while the node serves, and reported with the found and the wanted value.

use muster_core::firmware::{BiosValue, BmcInventory, SeenFirmware};
use muster_core::wire::job::{Job, JobSpec};
use serde_json::{Value, json};

use crate::simulated::{Fuel, World};
use crate::support::fleet;

/// Adds firmware to the stack: a BMC version with an image, BIOS settings, and a NIC version
/// without an image, because the NIC is updated outside Muster.
fn wanting(path: &str, mut body: Value) -> Value {
    if path == "/v1/stacks/base" {
        let firmware = json!([
            { "component": "bmc", "version": "1.74", "image": fleet::digest("image of the BMC"), "source": "its maker" },
            { "component": "nic", "version": "28.39" },
        ]);
        let bios = json!([{ "source": "guide", "attributes": { "SriovGlobalEnable": "Enabled", "NumaNodes": 4 } }]);
        for place in ["/spec", "/spec/lock"] {
            let place = body.pointer_mut(place).unwrap();
            (place["firmware"], place["bios"]) = (firmware.clone(), bios.clone());
        }
    }
    body
}

fn old() -> BmcInventory {
    let seen = |id: &str, version: &str| SeenFirmware {
        id: id.into(),
        name: String::new(),
        version: version.into(),
    };
    let text = |text: &str| BiosValue::Text(text.into());
    let bios = [
        ("SriovGlobalEnable", text("Disabled")),
        ("NumaNodes", text("1")),
        ("AssetTag", text("x")),
    ];
    BmcInventory {
        firmware: vec![
            seen("bmc", "1.70"),
            seen("bios", "2.1"),
            seen("nic", "28.39"),
        ],
        bios: bios.map(|(name, value)| (name.to_owned(), value)).into(),
        unread: vec![],
    }
}

async fn world() -> World {
    let mut world = World::declare(1, wanting).await;
    world.machine("n1", |machine| machine.firmware = Some(old()));
    world.settle().await;
    world
}

fn queued(history: &[String], step: &str) -> usize {
    history
        .iter()
        .filter(|line| **line == format!("step.queued {step}"))
        .count()
}

#[tokio::test]
async fn firmware_is_set_before_the_image_and_shown_on_request() {
    let mut world = world().await;
    let seen = world.admin.get("/v1/nodes/n1/facts").await.expect(200).body;
    assert_eq!(
        seen["bmc"]["inventory"]["firmware"][0],
        json!({ "id": "bmc", "version": "1.70" }),
        "inspection read it"
    );
    assert_eq!(
        queued(&world.history("n1").await, "firmware"),
        0,
        "nobody wants anything of it yet"
    );

    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    let history = world.history("n1").await;
    let at = |line: &str| {
        history
            .iter()
            .rposition(|known| known == line)
            .unwrap_or_else(|| panic!("{line}: {history:?}"))
    };
    assert!(
        at("step.succeeded firmware") < at("step.queued boot_live")
            && at("step.queued boot_live") < at("step.queued write_image")
    );
    assert_eq!(
        queued(&history, "firmware"),
        1,
        "what was just imaged is not asked again"
    );
    let (version, sriov) = world.machine("n1", |machine| {
        let said = machine.firmware.clone().unwrap();
        (
            said.firmware[0].version.clone(),
            said.bios["SriovGlobalEnable"].to_string(),
        )
    });
    assert_eq!((version.as_str(), sriov.as_str()), ("1.74", "Enabled"));
    let events = world
        .admin
        .get("/v1/nodes/n1/events")
        .await
        .expect(200)
        .text;
    assert!(
        events.contains("node.firmware_changed")
            && events.contains("firmware bmc is 1.70, wanted 1.74"),
        "{events}"
    );
    let page = world.admin.get("/nodes/n1").await.expect(200).text;
    for word in ["SriovGlobalEnable", "1.74", "BIOS settings: 3"] {
        assert!(page.contains(word), "{word}");
    }
    world.check().await;
}

/// Lists the comparisons in the plan of a job for gates.
fn list_compared(job: &Job) -> Vec<String> {
    let JobSpec::Gates { plan, .. } = &job.spec else {
        panic!("gates")
    };
    let compared = plan.firmware.iter().flatten();
    compared.map(ToString::to_string).collect()
}

#[tokio::test]
async fn gates_and_drift_say_both_values_and_what_is_unknown_is_told_as_unknown() {
    let mut world = world().await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "gates").await;
    let compared = list_compared(&job);
    assert_eq!(
        compared,
        [
            "firmware bmc is 1.74, wanted 1.74",
            "firmware nic is 28.39, wanted 28.39",
            "bios NumaNodes is 4, wanted 4",
            "bios SriovGlobalEnable is Enabled, wanted Enabled",
        ]
    );
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;

    // A board was swapped outside Muster: the BMC firmware is older, and the NIC is no longer
    // listed.
    let log = world.machine("n1", |machine| {
        let said = machine.firmware.as_mut().unwrap();
        said.firmware[0].version = "1.60".into();
        said.firmware.pop();
        machine.log.len()
    });
    let asked = world.ask("n1", "check-drift").await.expect(202);
    world.settle().await;
    assert_eq!(world.operation(&asked).await, "succeeded");
    let drift = world.admin.get("/v1/nodes/n1/drift").await.expect(200).body;
    assert_eq!(
        drift["items"][0],
        json!({ "item": "firmware bmc", "found": "1.60", "wanted": "1.74", "class": "reboot" }),
        "{drift}"
    );
    let told = drift["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["about"] == "firmware nic")
        .unwrap();
    assert_eq!(
        (told["level"].as_str(), told["rule"].as_str()),
        (Some("unknown"), Some("firmware"))
    );
    assert_eq!(
        world.machine("n1", |machine| machine.log.len()),
        log,
        "a look does nothing to it"
    );
    assert_eq!(world.state("n1").await, "in_service");

    // A BMC that is busy for a minute does not clear the reported drift.
    let before = world.machine("n1", |machine| {
        machine
            .firmware
            .replace(BmcInventory::unread("HTTP 503: busy"))
    });
    world.ask("n1", "check-drift").await.expect(202);
    world.settle().await;
    let busy = world.admin.get("/v1/nodes/n1/drift").await.expect(200).body;
    assert_eq!(busy["items"][0], drift["items"][0], "{busy}");
    let seen = world.admin.get("/v1/nodes/n1/facts").await.expect(200).body;
    assert_eq!(
        seen["bmc"]["inventory"]["unread"],
        json!(["HTTP 503: busy"])
    );
    world.machine("n1", |machine| machine.firmware = before);

    // A converge repairs the firmware. The node is drained first.
    world.ask("n1", "converge").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(
        world.machine("n1", |machine| machine.firmware.clone().unwrap().firmware
            [0]
        .version
        .clone()),
        "1.74"
    );
    world.check().await;
}

#[tokio::test]
async fn an_update_that_failed_leaves_the_node_failed_with_its_words() {
    let mut world = world().await;
    world.fail("n1", "firmware", false, 1);
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "failed");
    let why = world.admin.get("/v1/nodes/n1").await.expect(200).text;
    assert!(
        why.contains("set firmware and BIOS: the simulated firmware failed"),
        "{why}"
    );
    assert_eq!(
        queued(&world.history("n1").await, "write_image"),
        0,
        "nothing was written"
    );
    world.ask("n1", "retry").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.check().await;
}

#[tokio::test]
async fn a_release_waits_for_an_update_and_then_goes_on() {
    let mut world = world().await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "firmware").await;
    world.release("n1").await;
    world.engine().await;
    assert_eq!(world.state("n1").await, "imaging");
    let cancelled: bool = sqlx::query_scalar("SELECT cancel FROM jobs WHERE step = 'firmware'")
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    assert!(
        !cancelled,
        "a machine must not lose its power while it is written to"
    );
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    assert_eq!(queued(&world.history("n1").await, "write_image"), 0);
    assert_ne!(world.state("n1").await, "in_service");
    world.check().await;
}

/// The agent dies at every step of every job on the way into service.
#[tokio::test]
async fn an_agent_that_dies_anywhere_sets_it_once() {
    let mut world = world().await;
    world.fuel = Fuel::OneMore(1);
    world.agent.refuel(1);
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    let job: uuid::Uuid = sqlx::query_scalar("SELECT id FROM jobs WHERE step = 'firmware'")
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    let acts = world.machine("n1", |machine| {
        machine.log.iter().filter(|done| done.job.0 == job).count()
    });
    assert_eq!(acts, 1, "it was restarted once for it");
    assert_eq!(
        world.machine("n1", |machine| machine.firmware.clone().unwrap().firmware
            [0]
        .version
        .clone()),
        "1.74"
    );
    world.check().await;
}

/// The BMC reports neither firmware nor BIOS settings. No update is attempted, and every value is
/// unknown instead of correct.
#[tokio::test]
async fn a_node_whose_bmc_tells_nothing_is_not_called_right() {
    let mut world = World::declare(1, wanting).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "gates").await;
    let JobSpec::Gates { plan, .. } = &job.spec else {
        panic!("gates")
    };
    let unknown = plan.firmware.as_ref().unwrap();
    assert!(
        unknown.len() == 4 && unknown.iter().all(|one| one.found.is_none()),
        "{unknown:?}"
    );
    drop(world.agent.work(&job).await.unwrap());
    world.settle().await;
    world.check().await;
}

/// The step for firmware runs before the image is written, as part of the reinstall. The step must
/// not demand a reinstall.
#[tokio::test]
async fn a_node_with_firmware_is_reinstalled_to_another_image() {
    let mut world = world().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    let mut image = fleet::image();
    image["spec"]["digest"] = json!(fleet::digest("image 2"));
    image["spec"]["raw_digest"] = json!(fleet::digest("raw 2"));
    let stored = world.admin.get("/v1/stacks/base").await.expect(200).body;
    let mut stack = json!({ "spec": stored["spec"] });
    stack["spec"]["version"] = json!("2");
    stack["spec"]["lock"]["image_digest"] = image["spec"]["digest"].clone();
    world
        .admin
        .put("/v1/images/debian-12", &image)
        .await
        .expect(200);
    world.admin.put("/v1/stacks/base", &stack).await.expect(200);
    let assign = async |revision: i64| {
        let path = "/v1/claims/c-n1/actions/assign-revision";
        world
            .admin
            .post(path, &json!({ "revision": revision }))
            .await
    };
    let refused = assign(2).await;
    assert_eq!(
        refused.problem().1,
        "other_image",
        "image 2 under the lock of image 1"
    );
    assign(3).await.expect(200);
    world.ask("n1", "reinstall").await.expect(202);
    world.settle().await;
    let claim = world.admin.get("/v1/claims/c-n1").await.expect(200).body;
    assert_eq!(claim["status"]["running_revision"], 3, "{claim}");
}

#[tokio::test]
async fn a_node_runs_a_revision_once_its_firmware_is_the_revisions() {
    let mut world = world().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    let stored = world.admin.get("/v1/stacks/base").await.expect(200).body;
    let mut stack = json!({ "spec": stored["spec"] });
    stack["spec"]["version"] = json!("2");
    for place in ["/spec", "/spec/lock"] {
        stack.pointer_mut(place).unwrap()["bios"][0]["attributes"]["SriovGlobalEnable"] =
            json!("Disabled");
    }
    world.admin.put("/v1/stacks/base", &stack).await.expect(200);
    let path = "/v1/claims/c-n1/actions/assign-revision";
    world
        .admin
        .post(path, &json!({ "revision": 2 }))
        .await
        .expect(200);
    let running = async |world: &World| {
        let claim = world.admin.get("/v1/claims/c-n1").await.expect(200).body;
        claim["status"]["running_revision"].as_i64()
    };
    world.ask("n1", "check-drift").await.expect(202);
    world.settle().await;
    assert_eq!(running(&world).await, Some(1));
    world.ask("n1", "converge").await.expect(202);
    world.settle().await;
    assert_eq!(running(&world).await, Some(2));

    // During the converge to revision 1 the BMC reports a value different from the value set by the
    // step.
    let body = json!({ "revision": 1 });
    world.admin.post(path, &body).await.expect(200);
    world.ask("n1", "converge").await.expect(202);
    let job = world.until_leased("n1", "converge").await;
    let reports = "UPDATE bmc_inventories SET inventory = jsonb_set(inventory, '{bios,SriovGlobalEnable}', '\"Disabled\"')";
    let changed = sqlx::query(reports)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    assert!(changed.rows_affected() > 0);
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    assert_eq!(running(&world).await, None);
}

/// An adopted machine has never run the live image, so its own system tells the product.
#[tokio::test]
async fn firmware_for_a_product_reaches_a_machine_without_live_facts() {
    let mut world = world().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    let installed = "UPDATE facts SET source = 'installed', facts = jsonb_set(facts, '{smbios,product}', '\"XE9680L\"')";
    let changed = sqlx::query(installed).execute(&world.server.app.pool).await;
    assert!(changed.unwrap().rows_affected() > 0);
    let stored = world.admin.get("/v1/stacks/base").await.expect(200).body;
    let mut stack = json!({ "spec": stored["spec"] });
    stack["spec"]["version"] = json!("2");
    for place in ["/spec", "/spec/lock"] {
        let bios = &mut stack.pointer_mut(place).unwrap()["bios"][0];
        bios["product"] = json!("XE9680*");
        bios["attributes"]["SriovGlobalEnable"] = json!("Disabled");
    }
    world.admin.put("/v1/stacks/base", &stack).await.expect(200);
    let path = "/v1/claims/c-n1/actions/assign-revision";
    let body = json!({ "revision": 2 });
    world.admin.post(path, &body).await.expect(200);
    world.ask("n1", "check-drift").await.expect(202);
    world.settle().await;
    let drift = world.admin.get("/v1/nodes/n1/drift").await.expect(200);
    assert!(drift.text.contains("SriovGlobalEnable"), "{}", drift.text);
    world.ask("n1", "converge").await.expect(202);
    world.settle().await;
    let set = world.machine("n1", |machine| {
        let inventory = machine.firmware.as_ref().unwrap();
        inventory.bios["SriovGlobalEnable"].to_string()
    });
    assert_eq!(set, "Disabled");
    // A setting for a product is unknown on a machine without a known product.
    let unnamed = "UPDATE facts SET facts = facts #- '{smbios,product}'";
    let changed = sqlx::query(unnamed).execute(&world.server.app.pool).await;
    assert!(changed.unwrap().rows_affected() > 0);
    let drift = world.admin.get("/v1/nodes/n1/drift").await.expect(200);
    let unknown = "bios SriovGlobalEnable for XE9680* is unknown, wanted Disabled";
    assert!(drift.text.contains(unknown), "{}", drift.text);
    world.ask("n1", "converge").await.expect(202);
    let compared = list_compared(&world.until_leased("n1", "gates").await);
    assert!(compared.contains(&unknown.to_owned()), "{compared:?}");
}
