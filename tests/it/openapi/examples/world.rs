//! A server with a row for every list: three claimed nodes, and the writes of people.

use jiff::SignedDuration;
use muster_core::facts::Neighbour;
use muster_core::gates::Verdict;
use muster_core::ids::NodeId;
use muster_server::tasks::{seals, sweeps};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Answers, example};
use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::{Caller, Server};

/// Builds three claimed nodes with a history. The first node failed a sweep and was recovered.
pub(super) async fn build(server: Server) -> World {
    let mut world = World::on(server, 3, |path, mut body| {
        if path == "/v1/racks/r1" {
            body["spec"]["cables"] = json!([{ "node": "n1", "nic": "eth0", "switch": "leaf1", "port": "Ethernet1" }]);
        }
        if path == "/v1/pools/gpu" {
            body["spec"]["health"] =
                json!({ "sweep": "smoke", "recovery": { "rungs": ["collect", "restart_services"] } });
        }
        body
    })
    .await;
    let heard = Neighbour {
        nic: "eth0".into(),
        chassis: "02:00:5e:00:53:03".into(),
        port: "02:00:5e:00:53:01".into(),
        system_name: Some("leaf1.example.net".into()),
        port_description: Some("Ethernet1".into()),
    };
    world.machine("n1", |machine| machine.neighbours = vec![heard]);
    world.settle().await;
    for name in ["n1", "n2", "n3"] {
        world.claim(name).await.expect(201);
    }
    world.settle().await;
    world.gates("n1", &[Verdict::Fail]);
    sweeps::round(&world.server.app, NodeId(Uuid::nil()))
        .await
        .unwrap();
    world.settle().await;
    world
}

/// Performs the writes of people, runs the pairs of the pool, and keeps the answers. Returns the
/// path parameters for [`reads`](super::reads).
pub(super) async fn act(world: &mut World, answers: &mut Answers) -> Vec<(&'static str, String)> {
    let admin = world.admin.clone();
    declare(&admin, &answers.description).await;
    let mut named = write(world, answers).await;
    world.settle().await;
    let looked = admin
        .post("/v1/nodes/n1/actions/check-drift", &json!({}))
        .await
        .expect(202);
    world.settle().await;
    insert_texts(world).await;
    let change = json!({ "spec": { "version": "2", "sysctl": { "vm.swappiness": "1" } } });
    admin.patch("/v1/stacks/base", &change).await.expect(200);
    world.agent.report_jobs().await.unwrap();
    roll_out(&admin, answers).await;
    alarm(&admin, answers).await;
    seals::round(&world.server.app, 0).await.unwrap();
    let components = admin.get("/v1/nodes/n1/components").await.expect(200).body;
    named.push(("id", text(&looked.body["id"])));
    named.push(("serial", text(&components["items"][0]["serial"])));
    named
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
        .to_owned()
}

/// Declares further objects: the kinds without an object in the simulated world, a credential for
/// adoption, and a suite of pairs.
async fn declare(admin: &Caller, description: &Value) {
    for (path, body) in [
        ("/v1/network_profiles/bonded", fleet::network_profile()),
        (
            "/v1/maintenance_windows/nights",
            fleet::maintenance_window(),
        ),
        ("/v1/monitors/errors", fleet::monitor()),
        ("/v1/signing_keys/release", fleet::signing_key()),
        (
            "/v1/credentials/root",
            json!({ "spec": { "purpose": "adopt", "secret": "key" } }),
        ),
        (
            "/v1/role_bindings/infra",
            json!({ "spec": { "subject": "group:infra", "role": "operator" } }),
        ),
        ("/v1/webhooks/ops", example(description, "put_webhook")),
        ("/v1/suites/pairs", crate::pairs::suite()),
    ] {
        admin.put(path, &body).await.expect(201);
    }
}

/// Sends further writes of people, and starts a run of pairs. Returns the path parameters of the
/// made objects.
async fn write(world: &World, answers: &mut Answers) -> Vec<(&'static str, String)> {
    let admin = &world.admin;
    let mut post = async |operation: &str, path: &str, body: Value| {
        let reply = admin.header("if-match", "*").post(path, &body).await;
        answers.keep(operation, &reply);
        reply.body
    };
    let token = post(
        "create_token",
        "/v1/tokens",
        json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600 }),
    )
    .await;
    post(
        "enrol_agent",
        "/v1/sites/lab/agents",
        json!({ "name": "second" }),
    )
    .await;
    let until = world.server.app.clock.now() + SignedDuration::from_hours(48);
    let waiver = json!({ "node": "n1", "gate": "node.profile", "reason": "a spare disk arrives on Friday", "until": until });
    let waiver = post("create_waiver", "/v1/waivers", waiver).await;
    post(
        "hold_records",
        "/v1/nodes/n1/hold",
        json!({ "reason": "case 2026-114" }),
    )
    .await;
    post("test_webhook", "/v1/webhooks/ops/actions/test", json!({})).await;
    post(
        "make_plan",
        "/v1/plan",
        json!({ "objects": [{ "kind": "claim", "name": "c-n2", "absent": true }] }),
    )
    .await;
    post(
        "act_on_node",
        "/v1/nodes/n3/actions/drain?dry_run=true",
        json!({}),
    )
    .await;
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    muster_server::db::users::insert(
        &mut conn,
        "ada",
        "no hash",
        "viewer",
        world.server.app.clock.now(),
    )
    .await
    .unwrap();
    let user = admin.get("/v1/users").await.expect(200).body["items"][0]["id"].clone();
    post(
        "disable_user",
        &format!("/v1/users/{}/actions/disable", text(&user)),
        json!({}),
    )
    .await;
    let run = post(
        "run_pairs",
        "/v1/pools/gpu/actions/run-pairs",
        json!({ "suite": "pairs" }),
    )
    .await;
    vec![
        ("approval", text(&waiver["approval"])),
        ("waiver", text(&waiver["id"])),
        ("token", text(&token["token"]["id"])),
        ("user", text(&user)),
        ("run", text(&run["id"])),
    ]
}

/// Inserts console text and a log line of a job. Simulated machines write neither.
async fn insert_texts(world: &World) {
    for statement in [
        "INSERT INTO console_chunks (node_id, id, at, text) SELECT id, 10, $1::timestamptz, 'n1 login: ' FROM nodes WHERE name = 'n1'",
        "INSERT INTO job_logs (job_id, attempt, at, text) SELECT id, 1, $1::timestamptz, 'compares it with stack base' FROM jobs WHERE step = 'drift'",
    ] {
        let now = world.server.app.clock.now().to_string();
        sqlx::query(statement)
            .bind(now)
            .execute(&world.server.app.pool)
            .await
            .unwrap();
    }
}

/// Plans, starts and halts a rollout.
async fn roll_out(admin: &Caller, answers: &mut Answers) {
    let rollout = json!({ "pool": "gpu", "revision": 2 });
    let planned = admin.post("/v1/rollouts", &rollout).await;
    answers.keep("plan_rollout", &planned);
    let start = json!({ "plan": planned.body["plan"] });
    let path = "/v1/rollouts/gpu-1/actions/start";
    answers.keep("start_rollout", &admin.post(path, &start).await);
    let path = "/v1/rollouts/gpu-1/actions/halt";
    let reason = json!({ "reason": "the fabric is being measured" });
    answers.keep("halt_rollout", &admin.post(path, &reason).await);
}

/// Reports alerts of three nodes at once, lists the opened breaker, and resets the breaker.
async fn alarm(admin: &Caller, answers: &mut Answers) {
    // Three alerts are more than chance: the third alert opens a breaker.
    let alert = |node: &str| {
        json!({ "status": "firing", "startsAt": "2026-01-05T07:59:00Z", "fingerprint": node,
                "labels": { "alertname": "GpuXid79", "node": node, "muster": "quarantine" },
                "annotations": { "summary": "GPU 3 has fallen off the bus" } })
    };
    let alerts = json!({ "version": "4", "alerts": [alert("n3"), alert("n2"), alert("n1")] });
    answers.keep("report_alerts", &admin.post("/v1/alerts", &alerts).await);
    let breaker = admin.get("/v1/breakers").await.expect(200).body["items"][0].clone();
    // The example shows an open breaker, so the list is read before the reset.
    answers.keep("list_breakers", &admin.get("/v1/breakers?limit=2").await);
    let reset = admin
        .post(
            &format!("/v1/breakers/{}/reset", breaker["id"].as_str().unwrap()),
            &json!({}),
        )
        .await;
    answers.keep("reset_breaker", &reset);
}
