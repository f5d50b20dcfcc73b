//! Overrides of the budget, larger budgets, and nodes written off.

use muster_api::tokens::Role;
use serde_json::{Value, json};

use super::{account, serving, states};
use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::Reply;

async fn act(world: &World, node: &str, action: &str, body: &Value) -> Reply {
    let path = format!("/v1/nodes/{node}/actions/{action}");
    world.admin.post(&path, body).await
}

async fn write_off(world: &World, node: &str, body: &Value) -> Reply {
    let path = format!("/v1/claims/c-{node}/actions/write-off");
    world.admin.post(&path, body).await
}

async fn events(world: &World, kind: &str) -> usize {
    let path = format!("/v1/events?limit=1000&topics={kind}");
    let page = world.admin.get(&path).await.expect(200).body;
    page["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn an_override_is_a_right_and_is_recorded() {
    let mut world = serving(2, json!(1), json!([])).await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    world.ask("n2", "drain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    // The repeated request is refused. An override replaces the waiting request.
    let again = act(&world, "n2", "drain", &json!({})).await;
    assert_eq!(again.status, 409, "{}", again.text);
    let beyond = json!({ "override_budget": "smoke from the rack" });
    let automation = world.server.caller(Role::Automation).await;
    let refused = automation.post("/v1/nodes/n2/actions/drain", &beyond).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    let operator = world.server.caller(Role::Operator).await;
    let empty = json!({ "override_budget": " " });
    let refused = operator.post("/v1/nodes/n2/actions/drain", &empty).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    let refused = operator.post("/v1/nodes/n2/actions/undrain", &beyond).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert_eq!(events(&world, "budget.overridden").await, 0);
    operator
        .post("/v1/nodes/n2/actions/drain", &beyond)
        .await
        .expect(202);
    world.settle().await;
    assert_eq!(states(&world, 2).await, ["maintenance", "maintenance"]);
    assert_eq!(events(&world, "budget.overridden").await, 1);
    assert_eq!(account(&world).await, (2, 1, 2));
    world.check().await;
}

#[tokio::test]
async fn a_larger_budget_needs_the_right_to_override() {
    let world = serving(1, json!(1), json!([])).await;
    let automation = world.server.caller(Role::Automation).await;
    let pool = |max: Value| {
        let mut pool = fleet::pool();
        pool["spec"]["max_unavailable"] = max;
        pool
    };
    for more in [json!(2), json!("1%")] {
        let refused = automation.put("/v1/pools/gpu", &pool(more.clone())).await;
        assert_eq!(refused.status, 403, "{more}: {}", refused.text);
    }
    automation
        .put("/v1/pools/gpu", &pool(json!(0)))
        .await
        .expect(200);
    let operator = world.server.caller(Role::Operator).await;
    operator
        .put("/v1/pools/gpu", &pool(json!("10%")))
        .await
        .expect(200);
    let wrong = operator.put("/v1/pools/gpu", &pool(json!("101%"))).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text);
}

#[tokio::test]
async fn a_node_written_off_frees_the_slot_until_the_date() {
    let mut world = serving(3, json!(1), json!([])).await;
    let until = |hours: i64| {
        let at = world.server.app.clock.now() + jiff::SignedDuration::from_hours(hours);
        json!({ "until": at.to_string(), "reason": "RMA 4711" })
    };
    let (day, past, far) = (until(24), until(-1), until(366 * 24));
    let serves = write_off(&world, "n1", &day).await;
    assert_eq!(serves.problem().0, 409, "{}", serves.text);
    world.ask("n1", "quarantine").await.expect(202);
    world.settle().await;
    world.ask("n2", "maintain").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    for wrong in [
        &past,
        &far,
        &json!({ "until": day["until"], "reason": " " }),
    ] {
        assert_eq!(write_off(&world, "n1", wrong).await.status, 422, "{wrong}");
    }
    let claim = write_off(&world, "n1", &day).await.expect(200).body;
    assert_eq!(claim["status"]["written_off"]["reason"], "RMA 4711");
    assert_eq!(events(&world, "claim.written_off").await, 1);
    // The waiting node is woken.
    world.settle().await;
    assert_eq!(
        states(&world, 3).await,
        ["quarantined", "maintenance", "in_service"]
    );
    assert_eq!(account(&world).await, (1, 1, 2));
    // At the end of the time n1 counts again.
    world.advance(25 * 3600);
    assert_eq!(account(&world).await, (2, 1, 3));
    world.check().await;
}

#[tokio::test]
async fn a_written_off_node_counts_again_once_it_has_served() {
    let mut world = serving(2, json!(1), json!([])).await;
    world.ask("n1", "maintain").await.expect(202);
    world.settle().await;
    let until = world.server.app.clock.now() + jiff::SignedDuration::from_hours(99);
    let off = json!({ "until": until.to_string(), "reason": "a fan" });
    write_off(&world, "n1", &off).await.expect(200);
    assert_eq!(account(&world).await, (0, 1, 1));
    world.ask("n1", "resume").await.expect(202);
    world.settle().await;
    assert_eq!(account(&world).await, (0, 1, 2));
    let claim = world.admin.get("/v1/claims/c-n1").await.expect(200).body;
    assert_eq!(claim["status"]["written_off"], Value::Null);
    world.ask("n1", "drain").await.expect(202);
    world.settle().await;
    assert_eq!(account(&world).await, (1, 1, 2));
    // A person may end a write-off.
    write_off(&world, "n1", &off).await.expect(200);
    let end = json!({ "until": null, "reason": "the fan is here" });
    write_off(&world, "n1", &end).await.expect(200);
    assert_eq!(account(&world).await, (1, 1, 2));
    world.check().await;
}
