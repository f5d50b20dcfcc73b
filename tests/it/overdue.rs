//! Nodes past the deadline of their state: event, metric, filter and page.

use jiff::SignedDuration;
use jiff_sqlx::ToSqlx as _;
use muster_server::tasks::overdue::tell_overdue;
use serde_json::Value;

use crate::simulated::World;

async fn told(world: &World) -> i64 {
    let query = sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = 'node.overdue'");
    query.fetch_one(&world.server.app.pool).await.unwrap()
}

/// Sets the deadline of `n1` to the time after `within`.
async fn set_deadline(world: &World, within: SignedDuration) {
    let at = world.server.app.clock.now() + within;
    sqlx::query("UPDATE nodes SET deadline_at = $1 WHERE name = 'n1'")
        .bind(at.to_sqlx())
        .execute(&world.server.app.pool)
        .await
        .unwrap();
}

async fn list_overdue(world: &World, value: bool) -> Vec<Value> {
    let path = format!("/v1/nodes?filter=overdue%3D{value}");
    let listed = world.admin.get(&path).await.expect(200).body;
    let items = listed["items"].as_array().unwrap();
    items.iter().map(|node| node["name"].clone()).collect()
}

#[tokio::test]
async fn an_overdue_node_is_an_event_a_metric_and_a_filter() {
    let world = World::serving(2, |_, body| body).await;
    let app = &world.server.app;
    let metric = async |count: u8| {
        let metrics = world.admin.get("/metrics").await.expect(200).text;
        let line = format!("muster_nodes_overdue{{state=\"in_service\"}} {count}\n");
        assert!(metrics.contains(&line), "{metrics}");
    };
    set_deadline(&world, SignedDuration::from_hours(1)).await;
    tell_overdue(app).await.unwrap();
    assert_eq!(told(&world).await, 0, "not yet late");
    assert!(list_overdue(&world, true).await.is_empty());
    metric(0).await;

    app.clock.advance(SignedDuration::from_hours(2));
    for _ in 0..2 {
        tell_overdue(app).await.unwrap();
        assert_eq!(told(&world).await, 1, "once for each deadline");
    }
    assert_eq!(list_overdue(&world, true).await, ["n1"]);
    assert_eq!(list_overdue(&world, false).await, ["n2"]);
    metric(1).await;
    let page = world.admin.get("/nodes?filter=overdue%3Dtrue").await;
    let page = page.expect(200).text;
    assert!(page.contains("n-n1") && !page.contains("n-n2"), "{page}");
    let fleet = world.admin.get("/").await.expect(200).text;
    assert!(fleet.contains("/nodes?filter=overdue%3Dtrue"), "{fleet}");

    set_deadline(&world, SignedDuration::from_hours(1)).await;
    assert!(
        list_overdue(&world, true).await.is_empty(),
        "a new deadline"
    );
    app.clock.advance(SignedDuration::from_hours(2));
    tell_overdue(app).await.unwrap();
    assert_eq!(told(&world).await, 2);
}
