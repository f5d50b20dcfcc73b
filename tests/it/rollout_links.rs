//! The link of a site bounds the nodes that a rollout changes at the same time.

use muster_core::effects::Effect;
use muster_core::revisions::Revision;
use muster_server::tasks::rollouts;
use serde_json::{Value, json};

use crate::rollouts::{at_once, marks, serving, settle, show, start, until_one_changes};
use crate::simulated::World;
use crate::support::fleet;

const PACKAGE_BYTES: u64 = 30_000_000;

fn package(name: &str, version: &str) -> Value {
    json!({
        "name": name, "version": version, "arch": "amd64", "size": PACKAGE_BYTES,
        "sha256": fleet::digest(&format!("{name} {version}")), "filename": format!("{name}_{version}.deb"),
    })
}

fn with_packages(packages: &[Value]) -> Value {
    let mut stack = fleet::stack();
    stack["spec"]["version"] = json!("3");
    stack["spec"]["bundle"] = json!(fleet::digest("bundle"));
    stack["spec"]["lock"]["packages"] = json!(packages);
    stack
}

/// Three nodes in service, and revision 3 with a package of 30 MB. The link supplies 75 MB in ten
/// minutes.
async fn limited() -> World {
    let world = serving(3, json!("100%")).await;
    let stack = with_packages(&[package("chrony", "4.3-2")]);
    world.admin.put("/v1/stacks/base", &stack).await.expect(200);
    let site = json!({ "spec": { "link_mbps": 1 } });
    world.admin.put("/v1/sites/lab", &site).await.expect(200);
    world
}

fn count(rollout: &Value, mark: &str) -> usize {
    marks(rollout)
        .iter()
        .filter(|other| **other == mark)
        .count()
}

#[tokio::test]
async fn a_rollout_changes_as_many_nodes_as_the_link_supplies() {
    let mut world = limited().await;
    let name = start(&world, 3, &at_once()).await;
    until_one_changes(&mut world, &name).await;
    let seen = show(&world, &name).await;
    assert_eq!(count(&seen, "changing"), 2, "{seen:#}");
    let now = &seen["now"];
    assert_eq!(
        (&now["most_changing"], &now["bound_by"]["code"]),
        (&json!(2), &json!("link")),
        "{now:#}"
    );
    assert_eq!(
        now["bound_by"]["sentence"],
        "the link of site lab carries 0.1 GB for changing nodes; 0.1 GB more would take longer than 10 minutes (at most 0.1 GB)"
    );

    // Without the limit, all others follow at once.
    let site = json!({ "spec": {} });
    world.admin.put("/v1/sites/lab", &site).await.expect(200);
    rollouts::round(&world.server.app).await.unwrap();
    let seen = show(&world, &name).await;
    assert_eq!(count(&seen, "changing"), 3, "{seen:#}");
    settle(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
    world.check().await;
}

#[tokio::test]
async fn a_node_imaged_for_another_reason_uses_the_link() {
    let mut world = limited().await;
    world.ask("n3", "reinstall").await.expect(202);
    for _ in 0..100 {
        if world.state("n3").await == "imaging" {
            break;
        }
        world.pass().await;
    }
    assert_eq!(world.state("n3").await, "imaging");
    let name = start(&world, 3, &at_once()).await;
    world.agent.report_jobs().await.unwrap();
    rollouts::round(&world.server.app).await.unwrap();
    let seen = show(&world, &name).await;
    assert_eq!(count(&seen, "changing"), 1, "{seen:#}");
    assert_eq!(seen["now"]["binding"]["code"], "link", "{seen:#}");
    settle(&mut world).await;
    let seen = show(&world, &name).await;
    assert_eq!(count(&seen, "done"), 2, "{seen:#}");
    world.check().await;
}

#[tokio::test]
async fn a_link_has_a_throughput() {
    let world = World::serving(1, |_, body| body).await;
    for wrong in [json!(0), json!(1_000_001)] {
        let site = json!({ "spec": { "link_mbps": wrong } });
        let refused = world.admin.put("/v1/sites/lab", &site).await;
        assert_eq!(refused.problem().0, 422, "{}", refused.text);
        let pointer = &refused.body["errors"][0]["pointer"];
        assert_eq!(pointer, "/spec/link_mbps", "{}", refused.text);
    }
}

#[test]
fn a_node_receives_the_packages_it_lacks_and_an_image_when_reinstalled() {
    let revision = |packages: &[Value]| {
        let mut image = fleet::image()["spec"].clone();
        image["packages"] = json!([{ "name": "tar", "version": "1", "arch": "amd64" }]);
        Revision {
            image: serde_json::from_value(image).unwrap(),
            stack: serde_json::from_value(with_packages(packages)["spec"].clone()).unwrap(),
            network_profile: None,
        }
    };
    let former = revision(&[package("chrony", "1"), package("nfs", "1")]);
    let target = revision(&[
        package("chrony", "2"),
        package("nfs", "1"),
        package("tar", "1"),
    ]);
    let packages = |count: u64| count * PACKAGE_BYTES;
    let cases = [
        (Some(&former), Effect::None, 0),
        (Some(&former), Effect::InPlace, packages(2)),
        (Some(&former), Effect::Reboot, packages(2)),
        (None, Effect::Reboot, packages(3)),
        // The image has tar, and 1,000 bytes.
        (Some(&former), Effect::Reinstall, packages(2) + 1000),
    ];
    for (former, effect, bytes) in cases {
        assert_eq!(target.count_bytes(former, effect), bytes, "{effect}");
    }
}
