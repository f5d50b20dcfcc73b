//! Agents of the version before: each is given the orders that it says it reads, and those that it does not read wait.

use axum::Router;
use axum::body::Body;
use muster_core::wire::orders::{KINDS, ORDERS};
use muster_server::tasks::leases;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::simulated::World;
use crate::support::agents::in_process;
use crate::support::fleet;
use crate::support::server::Server;

/// Calls as an agent does, saying what it reads.
async fn call(
    router: &Router,
    token: &str,
    (path, reads): (&str, Option<&str>),
    body: &Value,
) -> Value {
    let mut request = axum::http::Request::builder()
        .method("POST")
        .uri(format!("/agent/v1/{path}"));
    request = request
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json");
    if let Some(reads) = reads {
        request = request.header(ORDERS, reads);
    }
    let answer = router
        .clone()
        .oneshot(request.body(Body::from(body.to_string())).unwrap())
        .await
        .unwrap();
    let (parts, body) = answer.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    assert!(
        parts.status.is_success(),
        "{path}: {} {}",
        parts.status,
        String::from_utf8_lossy(&bytes)
    );
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test]
async fn an_agent_is_leased_what_it_reads_and_the_rest_waits_and_says_so() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    fleet::available(&server, &admin, 2).await;
    let enrolled = admin
        .post("/v1/sites/lab/agents", &json!({ "name": "first" }))
        .await
        .expect(201);
    let (token, router) = (
        enrolled.body["token"].as_str().unwrap().to_owned(),
        in_process(&server.app),
    );
    let hello = json!({ "protocol": 1, "version": "0", "instance": "i" });
    let welcome = call(&router, &token, ("hello", None), &hello).await;
    for (node, step) in [("n1", "inventory"), ("n2", "power_on")] {
        sqlx::query(
            "INSERT INTO jobs (id, node_id, site_id, visit, step, kind, epoch, state, not_before, timeout_s, created_at)
             SELECT gen_random_uuid(), id, site_id, 99, $2, $2, 0, 'queued', '2000-01-01', 60, '2000-01-01' FROM nodes WHERE name = $1",
        )
        .bind(node)
        .bind(step)
        .execute(&server.app.pool)
        .await
        .unwrap();
    }
    let lease = json!({ "epoch": welcome["epoch"], "capacity": 10, "wait_s": 0 });
    let attempts = async || -> Vec<(String, i32)> {
        sqlx::query_as("SELECT step, attempt FROM jobs WHERE visit = 99 ORDER BY step")
            .fetch_all(&server.app.pool)
            .await
            .unwrap()
    };
    let held = async || -> Vec<String> {
        sqlx::query_scalar("SELECT summary FROM events WHERE kind = 'step.unreadable'")
            .fetch_all(&server.app.pool)
            .await
            .unwrap()
    };
    // It reads neither, then one of them; what waits says so once.
    call(&router, &token, ("lease", Some("wipe,gates")), &lease).await;
    assert_eq!(
        attempts().await,
        [("inventory".to_owned(), 0), ("power_on".to_owned(), 0)]
    );
    assert_eq!(held().await.len(), 2);
    call(&router, &token, ("lease", Some("inventory")), &lease).await;
    assert_eq!(
        attempts().await,
        [("inventory".to_owned(), 1), ("power_on".to_owned(), 0)]
    );
    let told = held().await;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().any(|line| {
        line.contains("n2: power_on waits for an agent that supports this order: first of lab")
    }));
    // One that does not say is of the version before this header, and knew both.
    call(&router, &token, ("lease", None), &lease).await;
    assert_eq!(attempts().await[1], ("power_on".to_owned(), 1));
    // And one of this version is kept from nothing.
    assert!(
        muster_core::lifecycle::steps::Step::ALL
            .iter()
            .all(|step| KINDS.contains(&muster_server::engine::orders::kind(*step)))
    );
}

/// After a rollback the database has a job with a step of the newer version. The job waits, and the
/// other jobs of the site continue.
#[tokio::test]
async fn a_step_of_a_newer_version_stops_no_other_job() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    fleet::available(&server, &admin, 2).await;
    let enrolled = admin
        .post("/v1/sites/lab/agents", &json!({ "name": "first" }))
        .await
        .expect(201);
    let token = enrolled.body["token"].as_str().unwrap().to_owned();
    let router = in_process(&server.app);
    let hello = json!({ "protocol": 1, "version": "0", "instance": "i" });
    let welcome = call(&router, &token, ("hello", None), &hello).await;
    for (node, step) in [("n1", "inventory"), ("n2", "calibrate")] {
        sqlx::query(
            "INSERT INTO jobs (id, node_id, site_id, visit, step, kind, epoch, state, leased_by, lease_until, attempt, not_before, timeout_s, created_at)
             SELECT gen_random_uuid(), n.id, n.site_id, 99, $2, $2, 0, 'leased', a.id, '2000-01-01', 1, '2000-01-01', 60, '2000-01-01'
             FROM nodes n, agents a WHERE n.name = $1 AND a.name = 'first'",
        )
        .bind(node)
        .bind(step)
        .execute(&server.app.pool)
        .await
        .unwrap();
    }
    let steps = async |with: &str| -> Vec<String> {
        sqlx::query_scalar(
            "SELECT step FROM jobs WHERE visit = 99
             AND CASE $1 WHEN 'queued' THEN state = 'queued' ELSE attempt = 2 END ORDER BY step",
        )
        .bind(with)
        .fetch_all(&server.app.pool)
        .await
        .unwrap()
    };
    leases::expire(&server.app).await.unwrap();
    assert_eq!(steps("queued").await, ["calibrate", "inventory"]);
    let lease = json!({ "epoch": welcome["epoch"], "capacity": 10, "wait_s": 0 });
    call(&router, &token, ("lease", Some("inventory")), &lease).await;
    assert_eq!(steps("leased again").await, ["inventory"]);
    assert_eq!(steps("queued").await, ["calibrate"]);
}

/// What kinds have gained since is left out for it, and a node goes its whole way.
#[tokio::test]
async fn an_agent_of_the_version_before_takes_a_node_through_its_life() {
    let mut world = World::declare(1, |path, mut body| {
        if path == "/v1/nodes/n1" {
            body["spec"]["serial"] = json!("SN-1");
        }
        body
    })
    .await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.reads(&KINDS.join(","));
    for act in ["sweep", "recover"] {
        world.ask("n1", act).await.expect(202);
        world.settle().await;
    }
    assert_eq!(world.state("n1").await, "in_service");
    world.release("n1").await.expect(202);
    world.settle().await;
    assert_eq!(world.state("n1").await, "available");
    world.check().await;
}
