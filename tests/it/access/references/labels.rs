//! Labels of the writer on objects outside of the writer's site.

use serde_json::{Value, json};

use super::{declare_world, in_site, manual, of_team, pool_on, within};
use crate::support::fleet;
use crate::support::server::Server;

#[tokio::test]
async fn a_label_of_ones_own_gives_no_place_in_another_site() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    // The strongest role: only the place is missing.
    let all = within(&server, &admin, "admin", "all", &json!({})).await;
    let team = json!({ "labels": { "team": "a" } });
    let own = within(&server, &admin, "admin", "own", &team).await;
    let mac = json!({ "mac": "52:54:00:aa:bb:cc", "subnet": "far-net", "address": "10.82.0.50" });
    for (path, body) in [
        ("/v1/nodes/sneak", manual("far", "r9", mac)),
        ("/v1/racks/sneak", in_site(fleet::rack(), "far")),
        ("/v1/pools/sneak", pool_on("far")),
    ] {
        let body = of_team(body);
        let reply = own.put(path, &body).await;
        assert!([403, 422].contains(&reply.status), "{path}: {}", reply.text);
        admin.get(path).await.expect(404);
        all.put(path, &body).await.expect(201);
    }
}

/// Labels are no place: an object outside of every site is written with the verb over the whole
/// fleet, also in a plan.
#[tokio::test]
async fn a_label_reaches_no_object_outside_of_every_site() {
    let server = Server::start().await;
    let admin = declare_world(&server).await;
    let labels = json!({ "labels": { "team": "a" } });
    admin.patch("/v1/images/other", &labels).await.expect(200);
    let team = within(&server, &admin, "admin", "team", &labels).await;
    let binding = json!({ "subject": "user:eve", "role": "admin" });
    let image = fleet::image()["spec"].clone();
    for (kind, name, spec) in [
        ("image", "other", image.clone()),
        ("image", "mine", image),
        ("role_binding", "mine", binding),
    ] {
        let object = json!({ "kind": kind, "name": name, "labels": { "team": "a" }, "spec": spec });
        let plan = json!({ "objects": [object] });
        let told = admin.post("/v1/plan", &plan).await.expect(200).body;
        assert_eq!(told["objects"][0]["blockers"], json!([]), "{told}");
        let told = team.post("/v1/plan", &plan).await.expect(200).body;
        let blocker = &told["objects"][0]["blockers"][0];
        assert_eq!(blocker["code"], "forbidden", "{told}");
        let path = format!("/v1/{kind}s/{name}");
        let body = json!({ "labels": { "team": "a" }, "spec": object_spec(&plan) });
        team.put(&path, &body).await.expect(403);
    }
}

fn object_spec(plan: &Value) -> &Value {
    &plan["objects"][0]["spec"]
}
