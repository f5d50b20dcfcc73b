//! Items of a stack under a condition: only nodes under the condition get the items. A stack's own
//! CDI specification replaces the specification of converge.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_core::wire::job::JobSpec;
use serde_json::{Value, json};

use crate::simulated::World;
use crate::stacks::{closed_modules, has_gpu};

/// A stack with a GPU driver for Hopper. The module and the service belong to nodes with a GPU.
fn with_gpu_items(path: &str, mut body: Value) -> Value {
    body = closed_modules(path, body);
    if path == "/v1/stacks/base" {
        body["spec"]["modules_load"] = json!(["lnet"]);
        body["spec"]["container_runtime"] = json!({ "default_runtime": "runc", "cdi": true });
        body["spec"]["when"] = json!({ "gpu": {
            "modules_load": ["nvidia"],
            "services": [{ "name": "nvidia-persistenced.service", "enabled": true, "running": true }],
        }});
    }
    body
}

#[tokio::test]
async fn a_node_without_a_gpu_gets_no_items_for_gpus() {
    let mut world = World::declare(2, with_gpu_items).await;
    world.settle().await;
    for node in ["n1", "n2"] {
        world.claim(node).await.expect(201);
    }
    world.settle().await;
    has_gpu(&world, "n1", "2330").await;
    let wanted = [("n1", vec!["lnet", "nvidia"], 1), ("n2", vec!["lnet"], 0)];
    for (node, modules, services) in wanted {
        world.ask(node, "converge").await.expect(202);
        let job = world.until_leased(node, "converge").await;
        let JobSpec::Converge { plan, .. } = &job.spec else {
            panic!("{:?}", job.spec.kind())
        };
        assert_eq!(plan.modules_load, modules, "{node}");
        assert_eq!(plan.services.len(), services, "{node}");
        assert!(plan.cdi, "{node}: with a GPU or without");
        world.agent.work(&job).await.unwrap();
        world.settle().await;
    }
}

/// A stack with CDI for containerd and an own specification.
fn with_specification(path: &str, mut body: Value) -> Value {
    if path == "/v1/stacks/base" {
        body["spec"]["container_runtime"] = json!({ "default_runtime": "runc", "cdi": true });
        body["spec"]["files"] = json!([{
            "path": "/etc/cdi/nvidia-site.yaml", "mode": "0644", "content": [{ "text": "kind: nvidia.com/gpu\n" }],
        }]);
    }
    body
}

#[tokio::test]
async fn a_stack_with_its_own_specification_orders_no_other() {
    let mut world = World::declare(1, with_specification).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.ask("n1", "converge").await.expect(202);
    let job = world.until_leased("n1", "converge").await;
    let JobSpec::Converge { plan, .. } = &job.spec else {
        panic!("{:?}", job.spec.kind())
    };
    assert!(!plan.cdi);
    let runtime = "/etc/containerd/config.toml";
    let file = plan.files.iter().find(|file| file.path == runtime);
    let content = STANDARD.decode(&file.unwrap().content).unwrap();
    let text = String::from_utf8(content).unwrap();
    assert!(text.contains("enable_cdi = true"), "{text}");
    world.agent.work(&job).await.unwrap();
    world.settle().await;
}

#[tokio::test]
async fn wrong_items_under_a_condition_are_not_published() {
    let world = World::start(1).await;
    let refuse = async |when: Value| {
        let mut stack = with_gpu_items("/v1/stacks/base", crate::support::fleet::stack());
        stack["spec"]["when"] = when;
        world.admin.put("/v1/stacks/other", &stack).await
    };
    let unknown = refuse(json!({ "fpga": { "modules_load": ["x"] } })).await;
    assert_eq!(
        (unknown.status, unknown.text.contains("fpga")),
        (400, true),
        "{}",
        unknown.text
    );
    let service = json!({ "name": "a\nb.service", "enabled": true, "running": true });
    for (items, word) in [
        (json!({ "modules_load": ["nvidia; reboot"] }), "module"),
        (json!({ "services": [service] }), "service"),
    ] {
        let refused = refuse(json!({ "gpu": items })).await;
        assert_eq!(refused.status, 422, "{}", refused.text);
        assert!(refused.text.contains(word), "{}", refused.text);
    }
}
