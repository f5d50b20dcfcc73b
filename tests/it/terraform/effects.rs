//! What a plan says of machines, and what stops it: the server's word, before anything is done.

use serde_json::{Value, json};

use super::Terraform;
use crate::support::fleet;
use crate::support::server::Server;

/// Claims of the first so many nodes, as one resource.
fn claims(count: u8) -> String {
    let keys = (1..=count)
        .map(|number| format!("\"{number}\""))
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        r#"
resource "muster_claim" "all" {{
  for_each = toset([{keys}])
  name     = "c${{each.key}}"
  spec     = {{ pool = "gpu", node = "n${{each.key}}", wait_for = "bound" }}
}}
"#
    )
}

#[tokio::test]
async fn dropping_fifty_claims_is_stopped_by_the_limit_before_one_is_released() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 50).await;
    let token =
        json!({ "name": "ci", "role": "operator", "expires_in_s": 86400, "releases_per_hour": 10 });
    let token = admin.post("/v1/tokens", &token).await.expect(201).body["secret"]
        .as_str()
        .unwrap()
        .to_owned();
    let terraform = Terraform::at(&server.listen().await, &token);
    terraform.write(&claims(50));
    terraform.apply().await.expect(0).says("50 added");

    // Somebody edits the list.
    terraform.write(&claims(0));
    let planned = terraform.plan().await.expect(1);
    assert_eq!(
        planned
            .text
            .matches("This plan is beyond the limit of releases")
            .count(),
        1,
        "{}",
        planned.text
    );
    let planned = planned
        .says("token:ci may release 10 nodes in an hour, of which 10 are left; this plan releases more.")
        .says("Nothing was released.")
        .says("put their claims back into the configuration")
        .says("muster approval approve ID");
    for number in 1..=50 {
        assert!(
            planned.text.contains(&format!("Effect: wipe n{number}\n")),
            "n{number} is not named: {}",
            planned.text
        );
    }
    terraform.apply().await.expect(1);
    let held = admin
        .get("/v1/claims?filter=state%3Dbound&limit=1&count=exact")
        .await
        .expect(200)
        .body;
    assert_eq!(held["count"], 50, "nothing was released");
    assert_eq!(
        admin.get("/v1/approvals").await.body["items"],
        json!([]),
        "and nobody was asked"
    );

    // As many as may be are planned.
    terraform.write(&claims(40));
    terraform
        .plan()
        .await
        .expect(2)
        .says("0 to add, 0 to change, 10 to destroy");
    terraform.write(&claims(39));
    terraform.plan().await.expect(1).says("beyond the limit");
    // What is protected stays, and is told so by the plan.
    let node = sqlx::query("UPDATE nodes SET protected = true WHERE name = 'n50'")
        .execute(&server.app.pool)
        .await;
    node.unwrap();
    terraform.write(&claims(49));
    terraform
        .plan()
        .await
        .expect(1)
        .says("The claim c50 cannot be released")
        .says("n50 is protected");
}

/// A block with a spec as JSON.
fn resource(kind: &str, name: &str, spec: &Value) -> String {
    let spec = serde_json::to_string(&spec.to_string()).unwrap();
    format!(
        "resource \"muster_{kind}\" \"{name}\" {{\n  name = \"{name}\"\n  spec = jsondecode({spec})\n}}\n"
    )
}

#[tokio::test]
async fn a_change_names_the_nodes_it_reaches_directly_or_indirectly() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 3).await;
    for number in [1, 3] {
        let claim = json!({ "name": format!("c{number}"), "spec": { "pool": "gpu", "node": format!("n{number}") } });
        admin.post("/v1/claims", &claim).await.expect(201);
    }
    let terraform = Terraform::start(&server).await;
    let base = fleet::stack()["spec"].clone();
    let head = resource("stack", "base", &base);
    terraform.write(&format!(
        "{head}{}",
        resource("pool", "gpu", &fleet::pool()["spec"])
    ));
    // They are there already, as they are written here: taken over.
    terraform.apply().await.expect(0);

    let mut changed = base.clone();
    changed["version"] = json!("2");
    changed["kernel_args"] = json!(["iommu=pt"]);
    let text = format!(
        "{}{}",
        resource("stack", "base", &changed),
        resource("pool", "gpu", &fleet::pool()["spec"])
    );
    terraform.write(&text);
    let planned = terraform.plan().await.expect(2);
    planned
        .says("Effect: reboot n1 n3")
        .says("reboot for 2 of the fleet's nodes, when the change is installed on each");

    // A pool that goes over to a stack which is made in the same apply.
    changed["version"] = json!("3");
    let mut pool = fleet::pool()["spec"].clone();
    pool["stack"] = json!("next");
    let next = resource("stack", "next", &changed);
    let pool =
        resource("pool", "gpu", &pool).replace("}\n", "  depends_on = [muster_stack.next]\n}\n");
    terraform.write(&format!("{head}{next}{pool}"));
    terraform
        .plan()
        .await
        .expect(2)
        .says("Effect: reboot n1 n3")
        .says("Writing the pool gpu");

    // What costs no machine anything says nothing.
    let mut told = fleet::pool()["spec"].clone();
    told["undo_window_s"] = json!(60);
    terraform.write(&format!("{head}{}", resource("pool", "gpu", &told)));
    let quiet = terraform.plan().await.expect(2);
    assert!(!quiet.text.contains("Effect:"), "{}", quiet.text);
}

fn node(name: &str, number: u8) -> String {
    let node = fleet::node(number);
    let spec = serde_json::to_string(&node["spec"].to_string()).unwrap();
    format!(
        "resource \"muster_node\" \"one\" {{\n  name = \"{name}\"\n  labels = {{ parity = \"odd\" }}\n  spec = jsondecode({spec})\n}}\n"
    )
}

#[tokio::test]
async fn a_node_is_renamed_in_place_unless_it_is_claimed() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let terraform = Terraform::start(&server).await;
    terraform.write(&node("n1", 1));
    terraform.apply().await.expect(0).says("1 added");
    let id = admin.get("/v1/nodes/n1").await.expect(200).body["id"].clone();
    fleet::arrive(&server).await;
    terraform.write(&node("first", 1));
    terraform
        .plan()
        .await
        .expect(2)
        .says("0 to add, 1 to change, 0 to destroy");
    terraform
        .apply()
        .await
        .expect(0)
        .says("0 added, 1 changed, 0 destroyed");
    assert_eq!(
        admin.get("/v1/nodes/first").await.expect(200).body["id"],
        id
    );
    terraform.plan().await.expect(0).says("No changes.");
    // With another change beside it.
    terraform.write(&node("again", 1).replace("odd", "even"));
    terraform
        .apply()
        .await
        .expect(0)
        .says("0 added, 1 changed, 0 destroyed");
    let renamed = admin.get("/v1/nodes/again").await.expect(200).body;
    assert_eq!(
        (&renamed["id"], &renamed["labels"]["parity"]),
        (&id, &json!("even"))
    );

    admin
        .post(
            "/v1/claims",
            &json!({ "spec": { "pool": "gpu", "node": "again" } }),
        )
        .await
        .expect(201);
    terraform.write(&node("other", 1).replace("odd", "even"));
    terraform
        .plan()
        .await
        .expect(1)
        .says("The node again cannot be renamed")
        .says("again is claimed");
}
