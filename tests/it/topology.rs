//! The switches of a cluster's members: written only under the switch that the site declares.

use muster_server::engine::orders::members;
use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::fleet;

/// Returns leaf and spine of each member.
async fn list_switches(world: &World) -> Vec<(Option<String>, Option<String>)> {
    let mut conn = world.server.app.pool.begin().await.unwrap();
    let members = members(&mut conn, "slurm").await.unwrap();
    let nodes = members.nodes.into_iter();
    nodes.map(|node| (node.switch, node.spine)).collect()
}

fn site_with(spine: &Value) -> Value {
    let mut site = fleet::site();
    site["spec"]["spine_switch"] = spine.clone();
    site
}

#[tokio::test]
async fn members_have_the_switch_above_their_racks_as_the_site_declares() {
    let world = World::serving(2, |_, body| body).await;
    let rack = Some("r1".to_owned());
    let without = (rack.clone(), None::<String>);
    assert_eq!(list_switches(&world).await, [without.clone(), without]);
    let site = site_with(&json!("core-1"));
    world.admin.put("/v1/sites/lab", &site).await.expect(200);
    let with = (rack, Some("core-1".to_owned()));
    assert_eq!(list_switches(&world).await, [with.clone(), with]);
}

#[tokio::test]
async fn a_switch_has_a_name_that_slurm_reads() {
    let world = World::serving(1, |_, body| body).await;
    let long = "s".repeat(65);
    for wrong in [
        "",
        "-a",
        "a b",
        "a[1-2]",
        "a\nSwitchName=b",
        "a,b",
        long.as_str(),
    ] {
        let site = site_with(&json!(wrong));
        let refused = world.admin.put("/v1/sites/lab", &site).await;
        let (status, _, pointer) = refused.problem();
        assert_eq!((status, pointer), (422, "/spec/spine_switch"), "{wrong:?}");
    }
}
