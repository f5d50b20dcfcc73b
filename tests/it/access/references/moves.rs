//! Moves of objects to a new place, and writes out of the writer's reach.

use muster_core::values::Secret;
use muster_server::auth::passwords::{self, Lane};
use muster_server::auth::sessions;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::{declare_world, in_site, of_team, operator_in, pool_on, within};
use crate::support::fleet;
use crate::support::server::{Caller, Reply, Server};

/// The status of a refusal, and the pointer of the first fault.
fn refusal(reply: &Reply) -> (u16, &str) {
    let (status, _, pointer) = reply.problem();
    (status, pointer)
}

#[tokio::test]
async fn a_pool_is_not_moved_to_another_site_by_the_operator_of_the_pool() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let all = within(&server, &admin, "operator", "all", &json!({})).await;
    let own = operator_in(&server, &admin, "pool", "gpu").await;
    let moved = json!({ "spec": { "cluster": "far" } });
    let dry = "/v1/pools/gpu?dry_run=true";
    all.patch(dry, &moved).await.expect(200);
    for reply in [
        own.patch("/v1/pools/gpu", &moved).await,
        own.put("/v1/pools/gpu", &pool_on("far")).await,
    ] {
        assert_eq!(refusal(&reply), (422, "/spec/cluster"), "{}", reply.text);
    }
    let plan = |cluster: &str| {
        let mut object = of_team(pool_on(cluster));
        object["kind"] = json!("pool");
        object["name"] = json!("gpu");
        json!({ "objects": [object] })
    };
    let told = all.post("/v1/plan", &plan("far")).await.expect(200).body;
    assert_eq!(told["objects"][0]["blockers"], json!([]), "{told}");
    let told = own.post("/v1/plan", &plan("far")).await.expect(200).body;
    let blocker = &told["objects"][0]["blockers"][0];
    assert_eq!(blocker["pointer"], "/spec/cluster", "{told}");
    // The stored reference leads out of the scope too, and is not asked again.
    let noted = json!({ "annotations": { "shift": "night" } });
    own.patch("/v1/pools/gpu", &noted).await.expect(200);
    let told = own.post("/v1/plan", &plan("slurm")).await.expect(200).body;
    assert_eq!(told["objects"][0]["blockers"], json!([]), "{told}");
    assert_eq!(
        admin.get("/v1/pools/gpu").await.body["spec"]["cluster"],
        "slurm"
    );
}

#[tokio::test]
async fn a_rack_is_not_moved_to_another_site_by_the_operator_of_the_rack() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let all = within(&server, &admin, "operator", "all", &json!({})).await;
    let own = operator_in(&server, &admin, "rack", "bare").await;
    let reply = own
        .put("/v1/racks/bare", &in_site(fleet::rack(), "far"))
        .await;
    assert_eq!(refusal(&reply), (422, "/spec/site"), "{}", reply.text);
    let moved = json!({ "spec": { "site": "far" } });
    all.patch("/v1/racks/bare", &moved).await.expect(200);
}

#[tokio::test]
async fn an_object_is_not_written_out_of_the_reach_of_its_writer() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let site = operator_in(&server, &admin, "site", "lab").await;
    let rack = operator_in(&server, &admin, "rack", "r1").await;
    let labels = json!({ "labels": { "team": "a" } });
    let team = within(&server, &admin, "operator", "team", &labels).await;
    let (path, dry) = ("/v1/nodes/n1", "/v1/nodes/n1?dry_run=true");
    let noted = json!({ "labels": { "shelf": "3" } });
    team.patch(path, &noted).await.expect(200);
    rack.patch(path, &noted).await.expect(200);
    for (writer, body) in [
        (&team, json!({ "labels": { "team": null } })),
        (&team, json!({ "labels": { "team": "b" } })),
        (
            &rack,
            json!({ "spec": { "rack": null, "rack_unit": null } }),
        ),
    ] {
        site.patch(dry, &body).await.expect(200);
        assert_eq!(writer.patch(path, &body).await.status, 403, "{body}");
    }
    // A label brings no object of another place into reach.
    assert_eq!(team.patch("/v1/nodes/m1", &labels).await.status, 404);
    let node = admin.get(path).await.expect(200).body;
    assert_eq!(
        (&node["labels"]["team"], &node["spec"]["rack"]),
        (&json!("a"), &json!("r1"))
    );
}

#[tokio::test]
async fn an_object_stays_in_its_place_while_nodes_or_claims_are_inside() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let moved = json!({ "spec": { "site": "far" } });
    let onto = json!({ "spec": { "cluster": "slurm2" } });
    let dry = |path: &str| format!("{path}?dry_run=true");
    let stays = async |path: &str, body: &Value, count: &str| {
        let reply = admin.patch(path, body).await;
        assert_eq!(reply.problem(), (409, "in_use", ""), "{}", reply.text);
        let detail = reply.body["detail"].as_str().unwrap();
        assert!(
            detail.contains(&format!(" has {count}, so its ")),
            "{detail}"
        );
    };
    for path in ["/v1/racks/bare", "/v1/subnets/spare", "/v1/clusters/slurm"] {
        admin.patch(&dry(path), &moved).await.expect(200);
    }
    admin.patch(&dry("/v1/pools/gpu"), &onto).await.expect(200);
    stays("/v1/racks/r1", &moved, "1 node").await;
    stays("/v1/subnets/prov", &moved, "1 node").await;
    let claim = json!({ "name": "held", "spec": { "pool": "gpu", "node": "n1" } });
    admin.post("/v1/claims", &claim).await.expect(201);
    stays("/v1/pools/gpu", &onto, "1 open claim").await;
    stays("/v1/clusters/slurm", &moved, "1 open claim").await;
    // The rack is empty after the move of the node.
    let rack = json!({ "rack": "r2" });
    let path = "/v1/nodes/n1/actions/move";
    admin.post(path, &rack).await.expect(202);
    admin.patch("/v1/racks/r1", &moved).await.expect(200);
    stays("/v1/racks/r2", &moved, "1 node").await;
    // A rack of an older version may be in a different site from the nodes, and follows the nodes.
    let left = "UPDATE nodes SET site_id = (SELECT id FROM objects WHERE kind = 'site' AND name = 'far') WHERE name = 'n1'";
    sqlx::query(left).execute(&server.app.pool).await.unwrap();
    admin.patch("/v1/racks/r2", &moved).await.expect(200);
}

#[tokio::test]
async fn a_move_needs_its_verb_at_the_new_place_also_as_a_plan() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let site = operator_in(&server, &admin, "site", "lab").await;
    let rack = operator_in(&server, &admin, "rack", "r1").await;
    let path = "/v1/nodes/n1/actions/move";
    let dry = "/v1/nodes/n1/actions/move?dry_run=true";
    let away = json!({ "site": "far", "rack": "r9" });
    let beside = json!({ "rack": "r2" });
    admin.post(dry, &away).await.expect(200);
    site.post(dry, &beside).await.expect(200);
    for at in [dry, path] {
        let reply = site.post(at, &away).await;
        assert_eq!(refusal(&reply), (422, "/spec/site"), "{}", reply.text);
        let reply = rack.post(at, &beside).await;
        assert_eq!(refusal(&reply), (422, "/spec/rack"), "{}", reply.text);
    }
    // A different unit of the same rack is no new reference.
    let unit = json!({ "rack": "r1", "rack_unit": 9 });
    rack.post(path, &unit).await.expect(202);
    site.post(path, &beside).await.expect(202);
}

/// Signs in a person with a role in each of two sites.
async fn person_of_two_sites(server: &Server, admin: &Caller) -> Caller {
    let (app, secret) = (&server.app, || Secret::new("open sesame"));
    let hash = passwords::hash(secret()).await.unwrap();
    let mut conn = app.pool.acquire().await.unwrap();
    muster_server::db::users::insert(&mut conn, "bob", &hash, "guest", app.clock.now())
        .await
        .unwrap();
    server.seal_rows().await;
    for (site, role) in [("lab", "operator"), ("far", "automation")] {
        let scope = json!({ "site": site });
        let binding = json!({ "spec": { "subject": "user:bob", "role": role, "scope": scope } });
        let path = format!("/v1/role_bindings/{site}");
        admin.put(&path, &binding).await.expect(201);
    }
    let headers = HeaderMap::new();
    let cookie = sessions::sign_in(app, &headers, "bob", secret(), Lane::Stranger)
        .await
        .unwrap()
        .unwrap();
    let value = format!("{}={}", cookie.name(), cookie.value());
    server.nobody().header("cookie", &value)
}

/// The operator of `lab` is automation in `far`, and has the verbs of automation there.
#[tokio::test]
async fn a_verb_of_one_site_is_not_carried_into_another() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let window = json!({ "spec": { "undo_window_s": 600 } });
    admin.patch("/v1/pools/gpu", &window).await.expect(200);
    let bob = person_of_two_sites(&server, &admin).await;
    let (path, dry) = ("/v1/pools/gpu", "/v1/pools/gpu?dry_run=true");
    let moved = json!({ "spec": { "cluster": "far" } });
    let shorter = json!({ "spec": { "undo_window_s": 0 } });
    let both = json!({ "spec": { "cluster": "far", "undo_window_s": 0 } });
    for body in [&moved, &shorter] {
        bob.patch(dry, body).await.expect(200);
    }
    admin.patch(dry, &both).await.expect(200);
    bob.patch(path, &both).await.expect(403);
    let away = json!({ "site": "far", "rack": "r9" });
    let node = "/v1/nodes/n1/actions/move";
    admin
        .post(&format!("{node}?dry_run=true"), &away)
        .await
        .expect(200);
    bob.post(node, &away).await.expect(403);
}
