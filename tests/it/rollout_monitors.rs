//! Rollouts and monitors: a query to Prometheus halts a rollout. A missing answer keeps further nodes.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use muster_server::tasks::{monitors, rollouts};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::rollout_guards::at_first;
use crate::rollouts::{plan, policy, serving, settle, show, start, steer, taken};
use crate::simulated::World;
use crate::support::server::{Caller, Reply};

const SECRET: &str = "Bearer a-token-of-prometheus";

/// The present state of a Prometheus server, and the requests to it.
#[derive(Clone)]
struct Prometheus {
    url: String,
    state: Arc<Mutex<Present>>,
    /// Permits of the answers: without a permit, a request waits.
    answers: Arc<Semaphore>,
}

struct Present {
    status: u16,
    series: usize,
    /// The header `Authorization` and the body of each request.
    requests: Vec<(Option<String>, String)>,
}

impl Prometheus {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let present = Present {
            status: 200,
            series: 0,
            requests: Vec::new(),
        };
        let prometheus = Self {
            url: format!("http://{}/prometheus", listener.local_addr().unwrap()),
            state: Arc::new(Mutex::new(present)),
            answers: Arc::new(Semaphore::new(1000)),
        };
        let query = axum::routing::post(answer);
        let router = Router::new()
            .route("/prometheus/api/v1/query", query)
            .with_state(prometheus.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        prometheus
    }

    fn set(&self, status: u16, series: usize) {
        let mut state = self.state.lock().unwrap();
        (state.status, state.series) = (status, series);
    }

    fn requests(&self) -> Vec<(Option<String>, String)> {
        self.state.lock().unwrap().requests.clone()
    }
}

/// Answers as Prometheus 2.42 does.
async fn answer(
    State(prometheus): State<Prometheus>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, String) {
    let authorization = headers.get(header::AUTHORIZATION);
    let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
    let (status, series) = {
        let mut state = prometheus.state.lock().unwrap();
        state.requests.push((authorization, body));
        (state.status, state.series)
    };
    prometheus.answers.acquire().await.unwrap().forget();
    let series: Vec<Value> = (0..series)
        .map(|at| json!({ "metric": { "gpu": at.to_string() }, "value": [1795878106.445, "1"] }))
        .collect();
    let data = json!({ "resultType": "vector", "result": series });
    let answer = match status {
        200 => json!({ "status": "success", "data": data }),
        _ => json!({ "status": "error", "errorType": "unavailable", "error": "tsdb" }),
    };
    (StatusCode::from_u16(status).unwrap(), answer.to_string())
}

async fn declare(admin: &Caller, name: &str, prometheus: &Prometheus) -> Reply {
    let spec = json!({ "url": prometheus.url, "query": "gpu_errors > 0", "secret": SECRET });
    let path = format!("/v1/monitors/{name}");
    admin.put(&path, &json!({ "spec": spec })).await
}

/// The policy, halted by a monitor of the name.
fn watched(monitor: &str) -> Value {
    let mut policy = policy();
    policy["halt_when"] = json!([{ "monitor": monitor }]);
    policy
}

async fn ask(world: &World) -> usize {
    monitors::round(&world.server.app).await.unwrap()
}

/// Runs a tick with a present list of jobs, so that only the monitor can keep a node.
async fn tick(world: &mut World, name: &str) -> Value {
    world.agent.report_jobs().await.unwrap();
    rollouts::round(&world.server.app).await.unwrap();
    show(world, name).await
}

async fn resume(world: &World, name: &str) {
    let reason = json!({ "reason": "the switch was replaced" });
    steer(world, name, "resume", reason).await.expect(200);
}

async fn status(world: &World) -> Value {
    let read = world.admin.get("/v1/monitors/errors").await.expect(200);
    read.body["status"].clone()
}

#[tokio::test]
async fn a_firing_monitor_halts_the_rollout_until_it_is_quiet() {
    let mut world = serving(2, json!("100%")).await;
    let prometheus = Prometheus::start().await;
    declare(&world.admin, "errors", &prometheus)
        .await
        .expect(201);
    assert_eq!(ask(&world).await, 1);
    let name = start(&world, 2, &watched("errors")).await;
    let shown = tick(&mut world, &name).await;
    assert_eq!(shown["state"], "running");
    assert_eq!(
        shown["now"]["signals"][0]["state"], "quiet",
        "{}",
        shown["now"]
    );
    prometheus.set(200, 2);
    world.advance(30);
    ask(&world).await;
    let halted = tick(&mut world, &name).await;
    assert_eq!(halted["halt"]["code"], "signal", "{halted}");
    let sentence = halted["halt"]["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("monitor errors fires since ") && sentence.ends_with(": 2 series"),
        "{sentence}"
    );
    let page = world.admin.get("/rollouts/gpu-1").await.expect(200).text;
    let signal = format!("<dt>Signal</dt><dd><span class=\"late\">{sentence}</span>");
    assert!(page.contains(&signal), "{page}");
    // A standing signal halts again, also while an answer is missing.
    resume(&world, &name).await;
    assert_eq!(tick(&mut world, &name).await["state"], "halted");
    prometheus.set(503, 0);
    world.advance(30);
    ask(&world).await;
    resume(&world, &name).await;
    assert_eq!(tick(&mut world, &name).await["state"], "halted");
    prometheus.set(200, 0);
    world.advance(30);
    ask(&world).await;
    resume(&world, &name).await;
    settle_watched(&mut world).await;
    assert_eq!(show(&world, &name).await["state"], "done");
    world.check().await;
}

/// Settles the world while the monitors are asked.
async fn settle_watched(world: &mut World) {
    for _ in 0..20 {
        ask(world).await;
        settle(world).await;
        world.advance(30);
    }
}

#[tokio::test]
async fn no_node_is_taken_without_an_answer_and_three_missing_ones_halt() {
    let mut world = serving(2, json!("100%")).await;
    let prometheus = Prometheus::start().await;
    declare(&world.admin, "errors", &prometheus)
        .await
        .expect(201);
    let name = start(&world, 2, &watched("errors")).await;
    let held = tick(&mut world, &name).await;
    assert_eq!(held["now"]["binding"]["code"], "monitor_silent", "{held}");
    assert_eq!(held["state"], "running");
    assert!(taken(&world).await.is_empty());
    prometheus.set(503, 0);
    for missed in 1..=3 {
        assert_eq!(ask(&world).await, 1);
        world.advance(30);
        assert_eq!(status(&world).await["missed"], missed);
        let state = &tick(&mut world, &name).await["state"];
        assert_eq!(*state, if missed < 3 { "running" } else { "halted" });
        assert!(taken(&world).await.is_empty());
    }
    let halted = show(&world, &name).await;
    let sentence = halted["halt"]["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("monitor errors has given no answer since ")
            && sentence.ends_with(": answered 503 (unavailable)"),
        "{sentence}"
    );
    assert_eq!(status(&world).await["state"], "silent");
    prometheus.set(200, 0);
    ask(&world).await;
    resume(&world, &name).await;
    assert_eq!(tick(&mut world, &name).await["state"], "running");
    assert_eq!(taken(&world).await.len(), 1);
}

/// After a time without any server, the last answer is too old: no halt, and no further node.
#[tokio::test]
async fn an_old_answer_holds_the_nodes_until_the_next_one() {
    let mut world = serving(2, json!("100%")).await;
    let prometheus = Prometheus::start().await;
    declare(&world.admin, "errors", &prometheus)
        .await
        .expect(201);
    ask(&world).await;
    let name = start(&world, 2, &watched("errors")).await;
    world.advance(3600);
    let held = tick(&mut world, &name).await;
    assert_eq!(
        (&held["state"], &held["now"]["signals"][0]["state"]),
        (&json!("running"), &json!("unknown"))
    );
    assert!(taken(&world).await.is_empty());
    ask(&world).await;
    tick(&mut world, &name).await;
    assert_eq!(taken(&world).await.len(), 1);
}

#[tokio::test]
async fn a_rollout_names_monitors_that_exist_and_keeps_them() {
    let world = serving(1, json!("100%")).await;
    let prometheus = Prometheus::start().await;
    declare(&world.admin, "errors", &prometheus)
        .await
        .expect(201);
    declare(&world.admin, "other", &prometheus)
        .await
        .expect(201);
    let mut wrong = watched("errors");
    wrong["halt_when"] = json!([{ "alert": "A" }, { "monitor": "none" }]);
    let refused = plan(&world, 2, &wrong).await.expect(422);
    let pointer = &refused.body["errors"][0]["pointer"];
    assert_eq!(*pointer, "/policy/halt_when/1/monitor");
    ask(&world).await;
    let name = start(&world, 2, &watched("errors")).await;
    let adjust = async |signals: Value| {
        let body = json!({ "policy": { "halt_when": signals }, "reason": "another query" });
        steer(&world, &name, "adjust", body).await
    };
    adjust(json!([{ "monitor": "none" }])).await.expect(422);
    let delete = async |name: &str| {
        let path = format!("/v1/monitors/{name}");
        world.admin.header("if-match", "*").delete(&path).await
    };
    let refused = delete("errors").await.expect(409);
    assert!(refused.text.contains("rollout gpu-1"), "{}", refused.text);
    adjust(json!([{ "alert": "A" }, { "monitor": "other" }]))
        .await
        .expect(200);
    delete("errors").await.expect(204);
    delete("other").await.expect(409);
}

#[tokio::test]
async fn a_wrong_monitor_is_refused_with_its_place() {
    let world = serving(1, json!("100%")).await;
    let good = json!({ "url": "https://prometheus.test/", "query": "up == 0" });
    for (member, value, pointer, code) in [
        ("url", json!("prometheus"), "/spec/url", "invalid_url"),
        (
            "url",
            json!("ftp://prometheus.test/"),
            "/spec/url",
            "invalid_url",
        ),
        (
            "url",
            json!("https://u:p@prometheus.test/"),
            "/spec/url",
            "invalid_url",
        ),
        (
            "url",
            json!("https://prometheus.test/?token=x"),
            "/spec/url",
            "invalid_url",
        ),
        (
            "url",
            json!("https://10.0.0.1/"),
            "/spec/url",
            "address_refused",
        ),
        (
            "url",
            json!("https://169.254.169.254/"),
            "/spec/url",
            "address_refused",
        ),
        ("query", json!(" "), "/spec/query", "out_of_range"),
        (
            "query",
            json!("q".repeat(4001)),
            "/spec/query",
            "out_of_range",
        ),
        ("interval_s", json!(14), "/spec/interval_s", "out_of_range"),
        ("interval_s", json!(601), "/spec/interval_s", "out_of_range"),
        ("secret", json!("token"), "/spec/secret", "invalid_secret"),
        (
            "secret",
            json!("Bearer a\r\nb: c"),
            "/spec/secret",
            "invalid_secret",
        ),
        (
            "description",
            json!("d".repeat(1001)),
            "/spec/description",
            "too_long",
        ),
    ] {
        let mut spec = good.clone();
        spec[member] = value;
        let body = json!({ "spec": spec });
        let refused = world
            .admin
            .put("/v1/monitors/errors", &body)
            .await
            .expect(422);
        let first = &refused.body["errors"][0];
        let found = (first["pointer"].as_str(), first["code"].as_str());
        assert_eq!(found, (Some(pointer), Some(code)), "{}", refused.text);
    }
}

/// A label is no part of the query, so the answers stay. Another query forgets the answers.
#[tokio::test]
async fn a_change_of_a_label_keeps_the_answers() {
    let world = serving(1, json!("100%")).await;
    let prometheus = Prometheus::start().await;
    declare(&world.admin, "errors", &prometheus)
        .await
        .expect(201);
    prometheus.set(503, 0);
    for _ in 0..3 {
        ask(&world).await;
        world.advance(30);
    }
    let path = "/v1/monitors/errors";
    let labels = json!({ "labels": { "team": "gpu" } });
    world.admin.patch(path, &labels).await.expect(200);
    assert_eq!(status(&world).await["state"], "silent");
    assert_eq!(ask(&world).await, 1, "asked at once");
    let query = json!({ "spec": { "query": "gpu_errors > 5" } });
    world.admin.patch(path, &query).await.expect(200);
    let read = status(&world).await;
    assert_eq!(
        (&read["state"], &read["missed"]),
        (&json!("unknown"), &json!(0))
    );
}

/// A replica that dies after its query is replaced by another after 15 seconds, and its late answer
/// is dropped.
#[tokio::test]
async fn a_lost_query_is_sent_again_and_its_late_answer_is_dropped() {
    let world = serving(1, json!("100%")).await;
    let prometheus = Prometheus::start().await;
    declare(&world.admin, "errors", &prometheus)
        .await
        .expect(201);
    prometheus.set(503, 0);
    prometheus.answers.forget_permits(1000);
    let app = world.server.app.clone();
    let lost = tokio::spawn(async move { monitors::round(&app).await.unwrap() });
    while prometheus.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    world.advance(14);
    assert_eq!(ask(&world).await, 0);
    world.advance(1);
    let app = world.server.app.clone();
    let next = tokio::spawn(async move { monitors::round(&app).await.unwrap() });
    while prometheus.requests().len() < 2 {
        tokio::task::yield_now().await;
    }
    prometheus.answers.add_permits(1000);
    assert_eq!((lost.await.unwrap(), next.await.unwrap()), (1, 1));
    assert_eq!(status(&world).await["missed"], 1, "one of both counts");
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_no_answer() {
    let world = serving(1, json!("100%")).await;
    let prometheus = Prometheus::start().await;
    declare(&world.admin, "errors", &prometheus)
        .await
        .expect(201);
    prometheus.set(200, 20_000);
    ask(&world).await;
    assert_eq!(
        status(&world).await["problem"],
        "the answer is longer than 1048576 bytes"
    );
    prometheus.set(200, 10_000);
    world.advance(30);
    ask(&world).await;
    let read = status(&world).await;
    assert_eq!(
        (&read["state"], &read["series"]),
        (&json!("firing"), &json!(10_000))
    );
}

/// A monitor that fires after the plan of a tick keeps the second node.
#[tokio::test]
async fn a_monitor_that_fires_after_the_plan_keeps_the_node() {
    let mut world = serving(2, json!("100%")).await;
    let prometheus = Prometheus::start().await;
    declare(&world.admin, "errors", &prometheus)
        .await
        .expect(201);
    ask(&world).await;
    let mut at_once = watched("errors");
    at_once["canary"] = Value::Null;
    at_once["waves"] = json!({ "sizes": ["100%"] });
    let name = start(&world, 2, &at_once).await;
    let fires = "UPDATE monitor_answers SET series = 1";
    at_first(&world, "changing", fires).await;
    tick(&mut world, &name).await;
    assert_eq!(taken(&world).await.len(), 1);
}

#[tokio::test]
async fn a_secret_goes_to_its_url_only() {
    let world = serving(1, json!("100%")).await;
    let (first, second) = (Prometheus::start().await, Prometheus::start().await);
    let made = declare(&world.admin, "errors", &first).await.expect(201);
    assert!(!made.text.contains(SECRET), "{}", made.text);
    ask(&world).await;
    let query = "query=gpu_errors+%3E+0&timeout=8s".to_owned();
    assert_eq!(first.requests(), [(Some(SECRET.to_owned()), query)]);
    // Another query keeps the secret, and forgets the answers.
    let spec = json!({ "url": first.url, "query": "gpu_errors > 5" });
    let path = "/v1/monitors/errors";
    let body = json!({ "spec": spec });
    world.admin.put(path, &body).await.expect(200);
    let read = status(&world).await;
    assert_eq!(
        (&read["state"], &read["secret_set"]),
        (&json!("unknown"), &json!(true))
    );
    ask(&world).await;
    assert_eq!(first.requests()[1].0.as_deref(), Some(SECRET));
    let body = json!({ "spec": { "url": second.url } });
    world.admin.patch(path, &body).await.expect(200);
    assert_eq!(status(&world).await["secret_set"], false);
    ask(&world).await;
    assert_eq!(second.requests()[0].0, None);
    let body = json!({ "spec": { "url": first.url, "secret": "Basic dTpw" } });
    world.admin.patch(path, &body).await.expect(200);
    ask(&world).await;
    assert_eq!(first.requests()[2].0.as_deref(), Some("Basic dTpw"));
}

#[tokio::test]
async fn one_replica_asks_and_the_answer_to_a_former_query_is_dropped() {
    let world = serving(1, json!("100%")).await;
    let prometheus = Prometheus::start().await;
    declare(&world.admin, "errors", &prometheus)
        .await
        .expect(201);
    let (one, other) = tokio::join!(ask(&world), ask(&world));
    assert_eq!((one + other, prometheus.requests().len()), (1, 1));
    assert_eq!(ask(&world).await, 0, "not due");
    world.advance(30);
    // The answer comes after a change of the query.
    prometheus.set(200, 3);
    prometheus.answers.forget_permits(1000);
    let app = world.server.app.clone();
    let asking = tokio::spawn(async move { monitors::round(&app).await.unwrap() });
    while prometheus.requests().len() < 2 {
        tokio::task::yield_now().await;
    }
    let body = json!({ "spec": { "query": "gpu_errors > 5" } });
    let path = "/v1/monitors/errors";
    world.admin.patch(path, &body).await.expect(200);
    prometheus.answers.add_permits(1000);
    assert_eq!(asking.await.unwrap(), 1);
    let read = status(&world).await;
    assert_eq!(
        (&read["state"], &read["answered_at"]),
        (&json!("unknown"), &Value::Null),
        "{read}"
    );
}

#[tokio::test]
async fn the_number_of_monitors_is_limited() {
    let world = serving(1, json!("100%")).await;
    let prometheus = Prometheus::start().await;
    for number in 1..=100 {
        declare(&world.admin, &format!("m{number}"), &prometheus)
            .await
            .expect(201);
    }
    let refused = declare(&world.admin, "m101", &prometheus).await.expect(409);
    assert_eq!(refused.body["code"], "too_many", "{}", refused.text);
    assert_eq!(ask(&world).await, 100);
}
