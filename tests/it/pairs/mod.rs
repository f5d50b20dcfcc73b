//! Pairs of a pool. A run holds idle nodes, measures pairs in rounds, and returns the nodes. The
//! verdicts separate a bad node from a bad path. A lost, stopped or refused measurement blames no
//! node.

mod blame; // Bad nodes, bad paths, failures without a blamed node
mod requests; // Refusals, the choice and order of nodes, the console
mod returns; // Nodes left out of a run, and the return to the scheduler

use serde_json::{Value, json};

use crate::simulated::World;

pub(crate) fn suite() -> Value {
    json!({ "spec": { "name": "pairs", "version": "1", "gates": [{
        "id": "iperf3-pair", "title": "TCP between the two is fast enough", "stage": "pair", "timeout_s": 40, "parser": "iperf3",
        "argv": ["iperf3", "--client", "${peer_address}", "--port", "${pair_port}", "--json"],
        "needs": ["drained"], "effects": ["network_load"], "finding": "The way between the two is slow.",
        "criteria": [{ "metric": "network.received", "op": ">=", "limit": 9.0, "unit": "Gb/s" }],
        "peer": { "argv": ["iperf3", "--server", "--one-off", "--port", "${pair_port}"], "ready_s": 10 },
    }]}})
}

const NODES: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];

/// Six nodes in service, and a suite of pairs.
async fn serving() -> World {
    let mut world = World::start(6).await;
    world.settle().await;
    for name in NODES {
        world.claim(name).await.expect(201);
    }
    world.settle().await;
    for name in NODES {
        assert_eq!(world.state(name).await, "in_service");
    }
    world
        .admin
        .put("/v1/suites/pairs", &suite())
        .await
        .expect(201);
    world
}

const RUN: &str = "/v1/pools/gpu/actions/run-pairs";

async fn begin(world: &World) -> String {
    let begun = world
        .admin
        .post(RUN, &json!({ "suite": "pairs" }))
        .await
        .expect(202);
    begun.body["id"].as_str().unwrap().to_owned()
}

async fn found(world: &World, run: &str) -> Value {
    world
        .admin
        .get(&format!("/v1/pools/gpu/pair-runs/{run}"))
        .await
        .expect(200)
        .body
}

async fn operation(world: &World, run: &str) -> Value {
    world
        .admin
        .get(&format!("/v1/operations/{run}"))
        .await
        .expect(200)
        .body
}

/// The nodes of a run with the verdicts.
fn verdicts(run: &Value) -> Vec<(&str, &str)> {
    let ends = run["ends"].as_array().unwrap().iter();
    ends.map(|end| {
        (
            end["node"].as_str().unwrap(),
            end["verdict"].as_str().unwrap(),
        )
    })
    .collect()
}

fn pairs(run: &Value) -> &Vec<Value> {
    run["pairs"].as_array().unwrap()
}

async fn told(world: &World, kind: &str) -> i64 {
    let query = sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = $1").bind(kind);
    query.fetch_one(&world.server.app.pool).await.unwrap()
}

/// Checks the state after a run: no node is held, no operation is open, and nodes in service take
/// jobs.
async fn given_back(world: &World) {
    let count = async |query: &'static str| -> i64 {
        sqlx::query_scalar(query)
            .fetch_one(&world.server.app.pool)
            .await
            .unwrap()
    };
    assert_eq!(
        count("SELECT count(*) FROM pair_ends WHERE back_at IS NULL").await,
        0,
        "not given back"
    );
    assert_eq!(
        count("SELECT count(*) FROM operations WHERE finished_at IS NULL").await,
        0,
        "left open"
    );
    let held =
        "SELECT count(*) FROM pair_ends e JOIN nodes n ON n.id = e.node_id LEFT JOIN jobs back ON back.id = e.back_job
                WHERE e.hold_job IS NOT NULL AND n.state = 'in_service' AND back.state IS DISTINCT FROM 'succeeded'";
    assert_eq!(
        count(held).await,
        0,
        "held, in service, and not let in again"
    );
    world.check().await;
}
