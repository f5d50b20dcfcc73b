//! Network profiles: refused where they cannot be meant, kept while a pool names them, and carried by the order that writes an image.

use muster_core::wire::job::JobSpec;
use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::{Caller, Server};

fn on(is: &Value) -> Value {
    json!({ "spec": { "interfaces": { "first": { "is": { "boot": true } }, "second": { "is": is } } } })
}

async fn give_pool(admin: &Caller, profile: &Value) {
    admin.put("/v1/network_profiles/bonded", profile).await;
    admin
        .patch(
            "/v1/pools/gpu",
            &json!({ "spec": { "network_profile": "bonded" } }),
        )
        .await
        .expect(200);
}

#[tokio::test]
async fn a_profile_is_refused_where_it_is_wrong_and_kept_while_it_is_used() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let put = async |body: &Value| admin.put("/v1/network_profiles/x", body).await;
    let twice = put(&on(&json!({ "boot": true }))).await;
    assert_eq!(
        twice.problem(),
        (422, "unprocessable", "/spec/interfaces/second/is")
    );
    let mut large = fleet::network_profile();
    large["spec"]["vlans"]["storage"]["mtu"] = json!(9001);
    assert_eq!(
        put(&large).await.problem(),
        (422, "unprocessable", "/spec/vlans/storage/mtu")
    );
    let mut elsewhere = fleet::network_profile();
    elsewhere["spec"]["vlans"]["storage"]["addresses"][0]["beside"]["subnet"] = json!("nowhere");
    assert_eq!(
        put(&elsewhere).await.problem(),
        (
            422,
            "unprocessable",
            "/spec/vlans/storage/addresses/0/beside/subnet"
        )
    );
    assert_eq!(put(&on(&json!({ "mac": "x" }))).await.problem().0, 400);

    let pool = json!({ "spec": { "network_profile": "none" } });
    assert_eq!(
        admin.patch("/v1/pools/gpu", &pool).await.problem(),
        (422, "unprocessable", "/spec/network_profile")
    );
    give_pool(&admin, &fleet::network_profile()).await;
    let kept = admin
        .expecting(1)
        .delete("/v1/network_profiles/bonded")
        .await;
    assert!(kept.expect(409).body.to_string().contains("pool gpu"));
}

#[tokio::test]
async fn another_profile_costs_the_pools_nodes_an_installation() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 2).await;
    give_pool(&admin, &fleet::network_profile()).await;
    admin
        .post(
            "/v1/claims",
            &json!({ "name": "c1", "spec": { "pool": "gpu", "node": "n1" } }),
        )
        .await
        .expect(201);
    let mut pool = fleet::pool();
    for (kind, name, spec) in [
        (
            "network_profile",
            "bonded",
            on(&json!({ "rail": 0 }))["spec"].clone(),
        ),
        ("pool", "gpu", pool["spec"].take()),
    ] {
        let object = json!({ "kind": kind, "name": name, "spec": spec });
        let told = admin
            .post("/v1/plan", &json!({ "objects": [object] }))
            .await
            .expect(200)
            .body;
        assert_eq!(
            (&told["objects"][0]["effect"], &told["objects"][0]["nodes"]),
            (&json!("reinstall"), &json!(["n1"])),
            "{told}"
        );
    }
}

#[tokio::test]
async fn the_order_that_writes_an_image_carries_the_nodes_own_files() {
    let mut world = World::start(1).await;
    world.settle().await;
    give_pool(&world.admin, &fleet::network_profile()).await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "write_image").await;
    let JobSpec::WriteImage { plan, .. } = &job.spec else {
        panic!("{:?}", job.spec)
    };
    let file = |end: &str| {
        let found = plan
            .network
            .files
            .iter()
            .find(|file| file.path == format!("/etc/systemd/network/10-muster{end}"));
        found
            .unwrap_or_else(|| panic!("{end} of {:?}", plan.network.files))
            .content
            .clone()
    };
    assert!(
        file(".network")
            .contains("PermanentMACAddress=52:54:00:00:00:01\n\n[Link]\nMTUBytes=9000\n")
    );
    assert!(file(".network").contains("VLAN=storage\nAddress=10.77.0.11/24\n"));
    assert!(file("-storage.netdev").contains("Id=120\n"));
    assert!(file("-storage.network").contains("Address=10.79.0.11/24\n"));
}

#[tokio::test]
async fn a_node_that_lacks_an_interface_fails_before_any_disk_is_written() {
    let mut world = World::start(1).await;
    world.settle().await;
    give_pool(&world.admin, &on(&json!({ "interface": "eth9" }))).await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(
        world.machine("n1", |machine| machine.disks[&machine.root()]
            .marker
            .clone()),
        None,
        "nothing was written"
    );
    assert_eq!(world.state("n1").await, "failed");
    let told: Vec<String> =
        sqlx::query_scalar("SELECT summary FROM events WHERE kind = 'step.failed'")
            .fetch_all(&world.server.app.pool)
            .await
            .unwrap();
    let words = [
        "write_image",
        "network profile bonded",
        "called eth9 (second)",
        "n1 does not have",
        "eth0",
    ];
    assert!(
        told.iter()
            .any(|line| words.iter().all(|word| line.contains(word))),
        "{told:?}"
    );
}

/// As if all cards had come since the machines were inspected.
async fn make_facts_old(world: &World) {
    sqlx::query("UPDATE facts SET facts = jsonb_set(facts, '{nics}', '[]')")
        .execute(&world.server.app.pool)
        .await
        .unwrap();
}

#[tokio::test]
async fn links_are_looked_at_in_the_boot_that_writes_the_image() {
    let mut world = World::start(2).await;
    world.settle().await;
    make_facts_old(&world).await;
    world.claim("n1").await.expect(201);
    world.until_leased("n1", "write_image").await;
    let looks = async |world: &World, name: &str| {
        let history = world.history(name).await;
        let imaging = history
            .iter()
            .skip_while(|line| !line.ends_with("imaging"))
            .cloned();
        imaging
            .filter(|line| line.starts_with("step.succeeded"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        looks(&world, "n1").await,
        ["step.succeeded boot_live"],
        "a pool without a profile needs none"
    );

    give_pool(&world.admin, &fleet::network_profile()).await;
    let promoted = json!({ "revision": 2 });
    let path = "/v1/pools/gpu/actions/promote-revision";
    world.admin.post(path, &promoted).await.expect(200);
    world.claim("n2").await.expect(201);
    let job = world.until_leased("n2", "write_image").await;
    let JobSpec::WriteImage { plan, .. } = &job.spec else {
        panic!("{:?}", job.spec)
    };
    assert!(plan.network.files.iter().any(|file| {
        file.content
            .contains("PermanentMACAddress=52:54:00:00:00:02\n")
    }));
    assert_eq!(
        looks(&world, "n2").await,
        ["step.succeeded boot_live", "step.succeeded inventory"]
    );
}

#[tokio::test]
async fn an_address_that_another_node_of_the_pool_has_is_refused() {
    let mut world = World::declare(2, |path, mut body| {
        if let Some(number) = path.strip_prefix("/v1/nodes/n") {
            body["labels"]["storage"] = json!(if number == "1" {
                "10.79.0.5/24"
            } else {
                "10.79.0.5/16"
            });
        }
        body
    })
    .await;
    world.settle().await;
    let mut profile = fleet::network_profile();
    profile["spec"]["vlans"]["storage"]["addresses"] = json!([{ "label": "storage" }]);
    give_pool(&world.admin, &profile).await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.claim("n2").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n2").await, "failed");
    let told: Vec<String> =
        sqlx::query_scalar("SELECT summary FROM events WHERE kind = 'step.failed'")
            .fetch_all(&world.server.app.pool)
            .await
            .unwrap();
    let words = [
        "bonded does not fit n2",
        "n1 of its pool has 10.79.0.5 in the label storage too",
    ];
    assert!(
        told.iter()
            .any(|line| words.iter().all(|word| line.contains(word))),
        "{told:?}"
    );
}
