//! Units: a rollout changes all nodes of a failure domain together.

use muster_core::wire::job::Job;
use muster_server::tasks::rollouts;
use serde_json::{Value, json};

use crate::rollout_guards::at_first;
use crate::rollouts::{at_once, marks, plan, publish, running, settle, show, start, steer, taken};
use crate::simulated::World;

/// Four nodes in service and a published revision 2. n1 and n3 are changed together, n2 and n4 too.
async fn serving(max_unavailable: Value, of_domain: u32) -> World {
    let axis = json!({ "name": "nvl", "source": "node_label", "label": "parity", "max_unavailable": of_domain, "changed_together": true });
    let world = World::serving(4, |path, mut body| {
        match path {
            "/v1/pools/gpu" => body["spec"]["max_unavailable"] = max_unavailable.clone(),
            "/v1/sites/lab" => body["spec"]["failure_domains"] = json!([axis]),
            _ => {}
        }
        body
    })
    .await;
    publish(&world, "2").await;
    world
}

async fn tick(world: &World) {
    world.agent.report_jobs().await.unwrap();
    rollouts::round(&world.server.app).await.unwrap();
}

/// The code of a node's wait, and the awaited condition.
async fn why(world: &World, node: &str) -> (String, String) {
    let path = format!("/v1/nodes/{node}/why");
    let why = world.admin.get(&path).await.expect(200).body;
    let text = |name: &str| why[name].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("waiting_for"))
}

/// Closes a unit, and ends the drain of all nodes but one. Returns the job of this drain.
async fn with_a_running_drain(world: &mut World, node: &str) -> Job {
    tick(world).await;
    let drain = world.until_leased(node, "drain").await;
    world.engine().await;
    drain
}

#[tokio::test]
async fn a_unit_leaves_together_and_no_change_starts_before_the_last_drain() {
    let mut world = serving(json!(2), 2).await;
    let name = start(&world, 2, &at_once()).await;
    tick(&world).await;
    assert_eq!(taken(&world).await, ["n1", "n3"]);
    let seen = show(&world, &name).await;
    let expected = ["changing", "not_begun", "changing", "not_begun"];
    assert_eq!(marks(&seen), expected, "{seen:#}");

    let drain = world.until_leased("n1", "drain").await;
    for _ in 0..3 {
        world.engine().await;
        tick(&world).await;
        world.advance(31);
        assert_eq!(world.state("n3").await, "draining");
    }
    let (code, condition) = why(&world, "n3").await;
    assert_eq!(code, "unit");
    assert_eq!(
        condition,
        "the drains of the nodes that are changed together with this node"
    );
    let seen = show(&world, &name).await;
    let held = &seen["nodes"][2]["why"];
    assert_eq!(held["code"], "unit", "{seen:#}");
    assert_eq!(
        held["sentence"],
        "unit lab/nvl:odd is changed together, and n1 still drains"
    );

    world.agent.work(&drain).await.unwrap();
    settle(&mut world).await;
    let done = show(&world, &name).await;
    assert_eq!(
        (&done["state"], marks(&done)),
        (&json!("done"), vec!["done"; 4]),
        "{done:#}"
    );
    assert_eq!(taken(&world).await, ["n1", "n3", "n2", "n4"]);
    world.check().await;
}

#[tokio::test]
async fn a_halt_gives_a_drained_node_of_an_unchanged_unit_back() {
    let mut world = serving(json!("100%"), 2).await;
    let name = start(&world, 2, &at_once()).await;
    let drain = with_a_running_drain(&mut world, "n1").await;
    assert_eq!(why(&world, "n3").await.0, "unit");
    let reason = json!({ "reason": "the deadline is near" });
    steer(&world, &name, "halt", reason).await.expect(200);
    tick(&world).await;
    world.engine().await;
    world.agent.work(&drain).await.unwrap();
    settle(&mut world).await;
    let halted = show(&world, &name).await;
    assert_eq!(marks(&halted), ["not_begun"; 4], "{halted:#}");
    for node in ["n1", "n2", "n3", "n4"] {
        assert_eq!(world.state(node).await, "in_service", "{node}");
    }
    world.check().await;
}

#[tokio::test]
async fn a_halt_after_the_start_of_the_changes_splits_no_unit() {
    let mut world = serving(json!(2), 2).await;
    let name = start(&world, 2, &at_once()).await;
    let drain = with_a_running_drain(&mut world, "n1").await;
    world.agent.work(&drain).await.unwrap();
    world.engine().await;
    tick(&world).await;
    let removal = world.until_leased("n3", "remove").await;
    assert_eq!(world.state("n3").await, "draining");
    let reason = json!({ "reason": "the deadline is near" });
    steer(&world, &name, "halt", reason).await.expect(200);
    tick(&world).await;
    world.engine().await;
    world.agent.work(&removal).await.unwrap();
    settle(&mut world).await;
    let halted = show(&world, &name).await;
    let expected = ["done", "not_begun", "done", "not_begun"];
    assert_eq!(marks(&halted), expected, "{halted:#}");
    for node in ["n1", "n3"] {
        assert_eq!(running(&world, node).await, Some(2), "{node}");
    }
    world.check().await;
}

/// A crash between the starts of two nodes' changes.
#[tokio::test]
async fn the_changes_of_a_unit_start_together_or_not_at_all() {
    let mut world = serving(json!(2), 2).await;
    start(&world, 2, &at_once()).await;
    let drain = with_a_running_drain(&mut world, "n1").await;
    world.agent.work(&drain).await.unwrap();
    world.engine().await;
    let crash = "CREATE FUNCTION crash() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     IF (SELECT count(*) FROM rollout_nodes WHERE unit_change = 'started') = 2 THEN RAISE 'crash'; END IF;
                     RETURN NULL;
                 END $$;
                 CREATE TRIGGER crash AFTER UPDATE ON rollout_nodes FOR EACH ROW EXECUTE FUNCTION crash()";
    let pool = &world.server.app.pool;
    sqlx::raw_sql(crash).execute(pool).await.unwrap();
    tick(&world).await;
    world.engine().await;
    for node in ["n1", "n3"] {
        assert_eq!(why(&world, node).await.0, "unit", "{node}");
    }
    let mended = sqlx::raw_sql("DROP TRIGGER crash ON rollout_nodes").execute(pool);
    mended.await.unwrap();
    settle(&mut world).await;
    for node in ["n1", "n2", "n3", "n4"] {
        assert_eq!(running(&world, node).await, Some(2), "{node}");
    }
    world.check().await;
}

#[tokio::test]
async fn a_drained_node_whose_rollout_is_gone_changes_alone() {
    let mut world = serving(json!("100%"), 2).await;
    start(&world, 2, &at_once()).await;
    let _drain = with_a_running_drain(&mut world, "n1").await;
    assert_eq!(why(&world, "n3").await.0, "unit");
    let removed = sqlx::query("DELETE FROM rollouts").execute(&world.server.app.pool);
    removed.await.unwrap();
    world.advance(31);
    world.engine().await;
    assert_eq!(
        why(&world, "n3").await.0,
        "agent",
        "the next step is queued"
    );
}

#[tokio::test]
async fn a_unit_without_a_slot_for_each_node_leaves_no_node_out() {
    let world = serving(json!(2), 2).await;
    let name = start(&world, 2, &at_once()).await;
    // The budget is lowered between both nodes of the unit.
    let lower =
        "UPDATE objects SET spec = jsonb_set(spec, '{max_unavailable}', '1') WHERE kind = 'pool'";
    at_first(&world, "changing", lower).await;
    tick(&world).await;
    assert_eq!(taken(&world).await.len(), 0);
    assert_eq!(marks(&show(&world, &name).await), ["not_begun"; 4]);
    for node in ["n1", "n3"] {
        assert_eq!(world.state(node).await, "in_service", "{node}");
        let path = format!("/v1/claims/c-{node}");
        let claim = world.admin.get(&path).await.expect(200).body;
        assert_eq!(claim["status"]["revision"], 1, "{node}");
        assert_eq!(world.value(node, "wish").await, None, "{node}");
    }
}

#[tokio::test]
async fn a_limit_smaller_than_a_unit_refuses_the_plan() {
    let cases = [
        (
            json!("100%"),
            1,
            json!("100%"),
            "domains/lab/nvl:even/max_unavailable is 1 node",
        ),
        (json!(1), 2, json!("100%"), "and max_unavailable is 1 node"),
        (json!("100%"), 2, json!(1), "budgets/max_changing is 1 node"),
    ];
    for (of_pool, of_domain, changing, limit) in cases {
        let world = serving(of_pool, of_domain).await;
        let mut policy = at_once();
        policy["budgets"]["max_changing"] = changing;
        let refused = plan(&world, 2, &policy).await.expect(409);
        assert_eq!(refused.body["code"], "unit_too_large", "{}", refused.text);
        assert!(refused.text.contains(limit), "{}", refused.text);
        assert!(
            refused.text.contains("Raise the limit to 2"),
            "{}",
            refused.text
        );
    }
}
