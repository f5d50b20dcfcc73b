//! Consoles of nodes: declared, reported by agents, bounded, read.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::support::agents::{self, Door, in_process};
use crate::support::fleet;
use crate::support::server::{Caller, START, Server};

const LIMIT: Duration = Duration::from_mins(1);

/// An agent of the site, after the hello.
struct Agent {
    router: Router,
    token: String,
    epoch: i64,
}

impl Agent {
    async fn enrol(server: &Server, admin: &Caller, site: &str) -> Self {
        let name = format!("{site}-agent");
        let made = admin
            .post(
                &format!("/v1/sites/{site}/agents"),
                &json!({ "name": name }),
            )
            .await
            .expect(201);
        let token = made.body["token"].as_str().unwrap().to_owned();
        let mut agent = Self {
            router: in_process(&server.app),
            token,
            epoch: 0,
        };
        let (status, welcome) = agent
            .call(
                "hello",
                &json!({ "protocol": 1, "version": "0", "instance": "a" }),
            )
            .await;
        assert_eq!(status, 200);
        agent.epoch = welcome["epoch"].as_i64().unwrap();
        agent
    }

    async fn call(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::post(format!("/agent/v1/{path}"))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.token))
            .body(Body::from(body.to_string()))
            .unwrap();
        let (parts, body) = self
            .router
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .into_parts();
        let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        (
            parts.status.as_u16(),
            serde_json::from_slice(&bytes).unwrap_or_default(),
        )
    }

    async fn report(&self, chunks: &[Value]) -> u16 {
        self.call(
            "consoles",
            &json!({ "epoch": self.epoch, "chunks": chunks }),
        )
        .await
        .0
    }
}

/// The nth chunk of a node.
fn chunk(node: &str, n: i64, text: &str) -> Value {
    let start: Timestamp = START.parse().unwrap();
    json!({ "node": node, "at": start + SignedDuration::from_millis(n), "text": text })
}

async fn register(admin: &Caller, number: u8, port: u16) -> String {
    let mut node = fleet::node(number);
    node["spec"]["console"] = json!({ "tcp": { "address": "10.78.1.1", "port": port } });
    let made = admin
        .put(&format!("/v1/nodes/n{number}"), &node)
        .await
        .expect(201);
    assert_eq!(made.body["spec"]["console"]["tcp"]["port"], port);
    made.body["id"].as_str().unwrap().to_owned()
}

fn texts(body: &Value) -> Vec<&str> {
    body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["text"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_console_is_declared_told_to_the_agent_reported_and_read() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let node = register(&admin, 1, 7001).await;
    let mut second = fleet::node(2);
    second["spec"]["console"] = json!({ "tcp": { "address": "10.78.1.1", "port": 0 } });
    assert_eq!(
        admin.put("/v1/nodes/n2", &second).await.problem().2,
        "/spec/console/tcp/port"
    );
    second["spec"]["console"]["tcp"]["port"] = json!(7001);
    assert_eq!(
        admin.put("/v1/nodes/n2", &second).await.problem(),
        (409, "console_taken", "")
    );

    let agent = Agent::enrol(&server, &admin, "lab").await;
    let poll = json!({ "epoch": agent.epoch, "have": null, "wait_s": 0 });
    let (_, config) = agent.call("site", &poll).await;
    assert_eq!(
        config["consoles"],
        json!([{ "node": node, "address": "10.78.1.1", "port": 7001 }])
    );

    let chunks = [
        chunk(&node, 1, "SeaBIOS\r\n\u{7f}"),
        chunk(&node, 2, "\u{1b}[1mlogin:\u{8} "),
        chunk(&node, 3, "\u{1}"),
    ];
    assert_eq!(agent.report(&chunks).await, 204);
    assert_eq!(agent.report(&chunks).await, 204, "an answer that was lost");
    let read = admin.get("/v1/nodes/n1/console").await.expect(200);
    assert_eq!(
        texts(&read.body),
        ["SeaBIOS\r\n", "\u{1b}[1mlogin: "],
        "each once, without what no console needs"
    );
    let last = read.body["last_id"].as_i64().unwrap();
    assert_eq!(agent.report(&[chunk(&node, 4, "root\r\n")]).await, 204);
    let more = admin
        .get(&format!("/v1/nodes/n1/console?after={last}"))
        .await
        .expect(200);
    assert_eq!(texts(&more.body), ["root\r\n"]);
    let end = admin.get("/v1/nodes/n1/console?limit=1").await.expect(200);
    assert_eq!(
        texts(&end.body),
        ["root\r\n"],
        "the latest, unless asked otherwise"
    );
    let nothing = admin
        .get(&format!(
            "/v1/nodes/n1/console?after={}",
            more.body["last_id"]
        ))
        .await
        .expect(200);
    assert_eq!(nothing.body["last_id"], more.body["last_id"]);
    assert_eq!(
        admin.get("/v1/nodes/n1/console?limit=1001").await.status,
        400
    );

    // An undeclared console is not read any more.
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(200);
    assert_eq!(agent.call("site", &poll).await.1["consoles"], json!([]));
}

#[tokio::test]
async fn only_the_sites_own_agent_is_believed() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    admin
        .put("/v1/sites/elsewhere", &json!({ "spec": {} }))
        .await
        .expect(201);
    let node = register(&admin, 1, 7001).await;
    let chunks = [chunk(&node, 1, "hello")];
    let mut agent = Agent::enrol(&server, &admin, "elsewhere").await;
    assert_eq!(agent.report(&chunks).await, 204);
    agent.epoch += 1;
    assert_eq!(
        agent.report(&chunks).await,
        409,
        "another process took over"
    );
    agent.token = "mst_nobody".into();
    assert_eq!(agent.report(&chunks).await, 401);
    let read = admin.get("/v1/nodes/n1/console").await.expect(200);
    assert_eq!(texts(&read.body), [""; 0]);
}

#[tokio::test]
async fn a_flood_costs_its_own_past_and_nobody_elses() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let (flooding, quiet) = (
        register(&admin, 1, 7001).await,
        register(&admin, 2, 7002).await,
    );
    let agent = Agent::enrol(&server, &admin, "lab").await;
    assert_eq!(agent.report(&[chunk(&quiet, 1, "calm")]).await, 204);
    let kept = async || {
        let sum = "SELECT count(*), sum(octet_length(text))::bigint FROM console_chunks WHERE node_id = $1::uuid";
        let row: (i64, i64) = sqlx::query_as(sum)
            .bind(&flooding)
            .fetch_one(&server.app.pool)
            .await
            .unwrap();
        row
    };
    // Large chunks, with one above the limit: the bytes are bounded.
    for call in 0..4 {
        let text = "x".repeat(if call == 0 { 100_000 } else { 8 << 10 });
        let chunks: Vec<Value> = (0..50)
            .map(|n| chunk(&flooding, call * 50 + n, &text))
            .collect();
        assert_eq!(agent.report(&chunks).await, 204);
        let (rows, bytes) = kept().await;
        assert!(bytes <= 512 << 10, "{rows} rows, {bytes} bytes");
    }
    let (rows, bytes) = kept().await;
    assert!(
        bytes > 500 << 10 && rows <= 64,
        "{rows} rows, {bytes} bytes"
    );
    // Tiny chunks: the rows are bounded.
    for call in 0..10 {
        let chunks: Vec<Value> = (0..1000)
            .map(|n| chunk(&flooding, 1000 + call * 1000 + n, "y"))
            .collect();
        assert_eq!(agent.report(&chunks).await, 204);
    }
    let (rows, bytes) = kept().await;
    assert!(rows <= 8192 && bytes == rows, "{rows} rows, {bytes} bytes");
    let read = admin.get("/v1/nodes/n2/console").await.expect(200);
    assert_eq!(texts(&read.body), ["calm"]);
}

/// The real agent between a console and the real server.
#[tokio::test]
async fn what_a_machine_writes_arrives_at_the_reader() {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    let server = Server::start().await;
    let admin = server.admin().await;
    admin
        .put("/v1/sites/lab", &json!({ "spec": {} }))
        .await
        .expect(201);
    let made = admin
        .post("/v1/sites/lab/agents", &json!({ "name": "a" }))
        .await
        .expect(201);
    let door = Door::open(&server.app).await;
    let dir = tempfile::tempdir().unwrap();
    let options = agents::options(&door, made.body["token"].as_str().unwrap(), dir.path());
    let stop = CancellationToken::new();
    let agent = tokio::spawn(muster_agent::work::run(options, stop.clone()));

    // The API refuses a loopback network. Here all programs run on one machine.
    sqlx::query(
        r#"UPDATE objects SET spec = '{"console_networks": ["127.0.0.0/8"]}' WHERE kind = 'site'"#,
    )
    .execute(&server.app.pool)
    .await
    .unwrap();
    let console = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = json!({ "spec": {
        "site": "lab", "power": { "manual": { "person": "alice" } }, "macs": [{ "mac": "52:54:00:00:00:01" }],
        "console": { "tcp": { "address": "127.0.0.1", "port": console.local_addr().unwrap().port() } },
    }});
    admin.put("/v1/nodes/n1", &node).await.expect(201);
    // Every caller gets the text: a port of a former test may still have callers.
    let machine = tokio::spawn(async move {
        let mut callers = Vec::new();
        loop {
            let (mut caller, _) = console.accept().await.unwrap();
            caller
                .write_all(b"\x1b[2JKernel panic - not syncing\r\n")
                .await
                .ok();
            callers.push(caller);
        }
    });
    let arrived = tokio::time::timeout(LIMIT, async {
        while texts(&admin.get("/v1/nodes/n1/console").await.expect(200).body).is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(
        arrived.await.is_ok(),
        "nothing arrived; the agent ended: {}",
        agent.is_finished()
    );
    let read = admin.get("/v1/nodes/n1/console").await.expect(200);
    assert_eq!(
        texts(&read.body),
        ["\u{1b}[2JKernel panic - not syncing\r\n"]
    );
    machine.abort();
    stop.cancel();
    tokio::time::timeout(LIMIT, agent)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
