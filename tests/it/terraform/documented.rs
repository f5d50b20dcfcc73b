//! What people copy: every example of the guide, and the example fleet.

use std::path::Path;
use std::time::Duration;

use super::{Terraform, file};
use crate::support::server::Server;

/// The guide's blocks of configuration, in their order.
fn examples() -> String {
    let guide = file("docs/terraform.md");
    let blocks: Vec<&str> = guide
        .split("```hcl\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert!(blocks.len() > 8, "the guide cannot be read: {blocks:?}");
    blocks.join("\n")
}

/// Puts nodes where engine and machines would bring them; both have their own tests.
async fn pretend(server: &Server) {
    for statement in [
        "UPDATE nodes SET wish = NULL, operation_id = NULL,
         in_cluster = EXISTS (SELECT FROM claims c WHERE c.node_id = nodes.id), state =
         CASE WHEN EXISTS (SELECT FROM claims c WHERE c.node_id = nodes.id) THEN 'in_service' ELSE 'available' END",
        "UPDATE operations SET state = 'succeeded', finished_at = now() WHERE finished_at IS NULL",
    ] {
        sqlx::query(statement).execute(&server.app.pool).await.unwrap();
    }
}

#[tokio::test]
async fn every_example_of_the_guide_works() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let site = serde_json::json!({ "spec": { "bmc_networks": ["10.78.0.0/24"] } });
    admin.put("/v1/sites/lab", &site).await.expect(201);
    let terraform = Terraform::start(&server).await;
    std::fs::write(terraform.path("main.tf"), examples()).unwrap();
    let mut applying = Box::pin(terraform.apply());
    let printed = loop {
        pretend(&server).await;
        if let Ok(printed) = tokio::time::timeout(Duration::from_millis(100), &mut applying).await {
            break printed;
        }
    };
    printed
        .expect(0)
        .says("1 imported, 12 added, 0 changed, 0 destroyed")
        .says("\"n1\",");
    terraform.plan().await.expect(0).says("No changes.");
    for text in [terraform.state(), terraform.plan().await.text] {
        assert!(!text.contains("calvin"), "a secret: {text}");
    }
}

#[tokio::test]
async fn the_example_fleet_is_declared_from_one_file() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let terraform = Terraform::start(&server).await;
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fleet");
    for entry in std::fs::read_dir(example).unwrap().flatten() {
        std::fs::copy(
            entry.path(),
            terraform.path(&entry.file_name().to_string_lossy()),
        )
        .unwrap();
    }
    let password = "-var=bmc_password=canary-51c0";
    let applied = terraform
        .run(&["apply", "-auto-approve", password])
        .await
        .expect(0);
    let planned = terraform
        .run(&["plan", "-detailed-exitcode", password])
        .await
        .expect(0)
        .says("No changes.");
    for text in [
        applied.says("103 added").text,
        planned.text,
        terraform.state(),
    ] {
        assert!(!text.contains("canary-51c0"), "a secret");
    }
    let nodes = admin
        .get("/v1/nodes?limit=1000&filter=rack%3Dr2")
        .await
        .expect(200)
        .body;
    assert_eq!(nodes["items"].as_array().unwrap().len(), 32);
}
