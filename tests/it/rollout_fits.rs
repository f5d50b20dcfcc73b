//! Nodes left out by a rollout. The plan names each node with the reason, before the start.

use serde_json::{Value, json};

use crate::rollouts::{marked, plan, policy, publish, serving, settle, show, start};
use crate::simulated::World;
use crate::stacks::{closed_modules, has_gpu};
use crate::support::fleet;

/// Publishes a stack with modules for Hopper, as revision 3.
async fn publish_for_hopper(world: &World) {
    let mut stack = closed_modules("/v1/stacks/base", fleet::stack());
    stack["spec"]["version"] = json!("3");
    stack["spec"]["bundle"] = json!(fleet::digest("bundle"));
    world.admin.put("/v1/stacks/base", &stack).await.expect(200);
}

/// The code of the reason of a node.
fn why<'a>(rollout: &'a Value, node: &str) -> &'a Value {
    let nodes = rollout["nodes"].as_array().unwrap();
    let found = nodes.iter().find(|one| one["node"] == node);
    &found.unwrap()["why"]["code"]
}

#[tokio::test]
async fn a_plan_names_the_nodes_that_the_revision_does_not_fit() {
    let mut world = serving(3, json!("100%")).await;
    for (node, device) in [("n1", "2330"), ("n2", "2901"), ("n3", "2330")] {
        has_gpu(&world, node, device).await;
    }
    publish_for_hopper(&world).await;
    world.agent.report_jobs().await.unwrap();
    let mut canary = policy();
    canary["canary"] = json!({ "nodes": ["n1"], "soak_s": 0 });
    let planned = plan(&world, 3, &canary).await.expect(201).body;
    let codes = ["n1", "n2", "n3"].map(|node| why(&planned, node).clone());
    assert_eq!(codes[..2], [Value::Null, json!("incompatible")]);
    assert_eq!(codes[2], "canary", "{planned:#}");
    let nodes = planned["nodes"].as_array().unwrap();
    let sentence = nodes[1]["why"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("R6: cuda-drivers"), "{sentence}");
    let name = start(&world, 3, &canary).await;
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(marked(&done, "skipped"), "n2", "{done:#}");
    assert_eq!(done["marks"]["done"], 2, "{done:#}");
    world.check().await;
}

#[tokio::test]
async fn a_revision_that_fits_no_node_is_refused() {
    let world = serving(2, json!("100%")).await;
    for node in ["n1", "n2"] {
        has_gpu(&world, node, "2901").await;
    }
    publish_for_hopper(&world).await;
    let refused = plan(&world, 3, &policy()).await;
    assert_eq!(refused.problem(), (409, "incompatible", ""));
    for word in ["Revision 3 fits none of the 2 nodes of gpu", "R6"] {
        assert!(refused.text.contains(word), "{word}: {}", refused.text);
    }
    // A node with an unknown running revision may fit.
    let forget = "UPDATE claims SET running_id = NULL WHERE name = 'c-n1'";
    let forget = sqlx::query(forget).execute(&world.server.app.pool);
    forget.await.unwrap();
    plan(&world, 3, &policy()).await.expect(201);
    // Unreadable facts are a fault of the node, and no fault of the plan.
    let torn = "UPDATE facts SET facts = '\"torn\"'";
    let torn = sqlx::query(torn).execute(&world.server.app.pool);
    torn.await.unwrap();
    plan(&world, 3, &policy()).await.expect(201);
    // The way back to a fitting revision is open.
    publish(&world, "4").await;
    plan(&world, 4, &policy()).await.expect(201);
}

#[tokio::test]
async fn a_plan_names_nodes_on_hold_and_effects_that_are_not_allowed() {
    let world = serving(2, json!("100%")).await;
    let hold = json!({ "spec": { "hold": true } });
    world
        .admin
        .patch("/v1/claims/c-n2", &hold)
        .await
        .expect(200);
    let planned = plan(&world, 2, &policy()).await.expect(201).body;
    assert_eq!(why(&planned, "n2"), "held", "{planned:#}");
    let mut mild = policy();
    mild["allow"] = json!("in_place");
    let planned = plan(&world, 2, &mild).await.expect(201).body;
    for node in ["n1", "n2"] {
        assert_eq!(why(&planned, node), "not_allowed", "{planned:#}");
    }
}
