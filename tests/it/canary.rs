//! Secrets in every place that accepts a secret. The test searches every output for the secrets:
//! answers, pages, refusals, events, logs, and every text in the database.

use std::sync::Arc;

use base64::Engine as _;
use muster_core::clock::Clock;
use muster_core::values::Secret;
use muster_core::wire::calls::{LogLine, RenewJob, Renewed};
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::result::Outcome;
use muster_server::auth::passwords::Lane;
use muster_server::auth::{passwords, sessions};
use muster_server::oidc::{Provider, Settings};
use muster_server::{db, tasks};
use reqwest::Method;
use serde_json::json;
use tower::ServiceExt as _;

use crate::simulated::World;
use crate::support::fleet;
use crate::support::log::Log;
use crate::support::postgres::{self, Backup};
use crate::support::server::{START, Server};

/// Secrets by name, as bytes.
struct Planted(Vec<(&'static str, Vec<u8>)>);

impl Planted {
    fn add(&mut self, name: &'static str, secret: impl AsRef<[u8]>) {
        self.0.push((name, secret.as_ref().to_vec()));
    }

    /// Fails if the bytes contain a secret as plain text, in hex, or in base64.
    fn assert_absent(&self, place: &str, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        for (name, secret) in &self.0 {
            let base64 = base64::engine::general_purpose::STANDARD_NO_PAD.encode(secret);
            // The last digit depends on the next bytes.
            let forms = [hex::encode(secret), base64[..base64.len() - 1].to_owned()];
            let plain = String::from_utf8(secret.clone()).ok();
            for form in forms.iter().chain(plain.as_ref()) {
                assert!(!text.contains(form), "{name} is in {place}");
            }
        }
    }
}

#[tokio::test]
async fn no_secret_comes_out_where_it_was_not_asked_for() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .init();
    let settings = Settings {
        issuer: "http://127.0.0.1:9".into(),
        client_id: "muster".into(),
        client_secret: Secret::new("canary-oidc-client-secret"),
        public_url: "http://127.0.0.1:1".into(),
        roles: Vec::new(),
    };
    let provider = Some(Arc::new(Provider::new(settings).unwrap()));
    let server = Server::vouched(
        postgres::database().await,
        Clock::manual(START.parse().unwrap()),
        provider,
    )
    .await;
    let mut planted = Planted(Vec::new());
    planted.add("the OIDC client secret", "canary-oidc-client-secret");
    planted.add("the master key", [7_u8; 32]);
    let mut conn = server.app.pool.acquire().await.unwrap();
    let permits = server.app.keys.open_permits(&mut conn).await.unwrap();
    drop(conn);
    planted.add("the permit key", permits.current.to_bytes());
    let admin = server.admin().await;
    planted.add(
        "the administrator's token",
        admin.token.clone().unwrap().rsplit('_').next().unwrap(),
    );
    plant(&server, &admin, &mut planted).await;

    // Every readable path, with the paths that refuse.
    for path in readable() {
        let reply = admin.get(&path).await;
        assert!(
            reply.status < 500 || path.starts_with("/sign-in/oidc"),
            "{path}: {}",
            reply.text
        );
        planted.assert_absent(&path, reply.text.as_bytes());
        planted.assert_absent(&path, format!("{:?}", reply.headers).as_bytes());
    }
    let dump = Backup::of(&server.app.pool);
    planted.assert_absent("the database", dump.bytes());
    planted.assert_absent("the anchors", &std::fs::read(&*server.app.anchors).unwrap());
    let logged = log.bytes();
    assert!(
        logged.len() > 1000,
        "nothing was logged, so nothing was searched"
    );
    planted.assert_absent("the log", &logged);
}

/// The log and the failure of a job, reported by an agent of an older version with the secrets.
#[tokio::test]
async fn no_secret_in_the_texts_of_a_job_reaches_the_database() {
    const PASSWORD: &str = "canary-password-of-a-log";
    const KEY: &str = "canaryMC4CAQAwBQYDK2VwBCIEIA";
    let mut planted = Planted(Vec::new());
    planted.add("a password", PASSWORD);
    planted.add("a private key", KEY);
    let mut world = World::start(1).await;
    let job = world.until_leased("n1", "boot_live").await;
    let at = world.server.app.clock.now();
    let log = [
        "12 disks are present".to_owned(),
        format!("login by password={PASSWORD}"),
        "-----BEGIN PRIVATE KEY-----".to_owned(),
        KEY.to_owned(),
        "-----END PRIVATE KEY-----".to_owned(),
    ];
    let renewal = RenewJob {
        epoch: world.agent.epoch,
        attempt: job.attempt,
        progress: None,
        log: log.map(|text| LogLine { at, text }).to_vec(),
        waiting_for: Some(format!("SSH on n1 (token={PASSWORD})")),
    };
    let path = format!("/agent/v1/jobs/{}/renew", job.id);
    let renewed = world.agent.call::<Renewed>(&path, &renewal).await;
    assert_eq!(renewed, Ok(Renewed { cancel: false }));
    let address = format!("https://root:{PASSWORD}@10.78.0.1/redfish");
    let failure = Failure::fatal(FailureCode::AgentBug, address);
    let outcome = Outcome::Failed { failure };
    world
        .agent
        .report(job.id, job.attempt, outcome)
        .await
        .unwrap();
    let dump = Backup::of(&world.server.app.pool);
    let text = String::from_utf8_lossy(dump.bytes());
    for kept in [
        "12 disks are present",
        "password=[removed]",
        "root:[removed]@10.78.0.1/redfish",
    ] {
        assert!(text.contains(kept), "no {kept:?} in the database");
    }
    planted.assert_absent("the database", dump.bytes());
}

/// Plants every kind of secret, in valid and in invalid requests.
async fn plant(server: &Server, admin: &crate::support::server::Caller, planted: &mut Planted) {
    fleet::declare_pool(admin).await;
    fleet::available(server, admin, 2).await;
    for (name, purpose) in [
        ("canary-bmc", "bmc"),
        ("canary-stack", "stack"),
        ("canary-adopt", "adopt"),
    ] {
        let secret = format!("{name}-password");
        let body = json!({ "spec": { "purpose": purpose, "user": "root", "secret": secret } });
        admin
            .put(&format!("/v1/credentials/{name}"), &body)
            .await
            .expect(201);
        let wrong =
            json!({ "spec": { "purpose": purpose, "user": "root", "secret": secret, "more": 1 } });
        let refused = admin.put(&format!("/v1/credentials/{name}"), &wrong).await;
        assert!((400..500).contains(&refused.status), "{}", refused.text);
        let misplaced = admin
            .put(
                "/v1/credentials/other",
                &json!({ "spec": { "purpose": secret } }),
            )
            .await;
        planted
            .0
            .push(("a credential's secret", secret.into_bytes()));
        planted.assert_absent("a refusal", refused.text.as_bytes());
        drop(misplaced);
    }
    let made = admin
        .post(
            "/v1/tokens",
            &json!({ "name": "c", "role": "viewer", "expires_in_s": 3600 }),
        )
        .await
        .expect(201);
    let token = made.body["secret"].as_str().unwrap().to_owned();
    server
        .with(Some(token.clone()))
        .get("/v1/nodes")
        .await
        .expect(200);
    // A truncated token.
    server
        .with(Some(token[..token.len() - 1].to_owned()))
        .get("/v1/nodes")
        .await
        .expect(401);
    planted.add("a token", &token[40..token.len() - 8]);
    let agent = admin
        .post("/v1/sites/lab/agents", &json!({ "name": "a1" }))
        .await
        .expect(201);
    planted.add(
        "an agent's token",
        &agent.body["token"].as_str().unwrap()[40..],
    );
    let app = &server.app;
    let hash = passwords::hash(Secret::new("canary-user-password"))
        .await
        .unwrap();
    db::users::insert(
        &mut app.pool.acquire().await.unwrap(),
        "ada",
        &hash,
        "operator",
        app.clock.now(),
    )
    .await
    .unwrap();
    server.seal_rows().await;
    planted.add("a person's password", "canary-user-password");
    let headers = reqwest::header::HeaderMap::new();
    let cookie = sessions::sign_in(
        app,
        &headers,
        "ada",
        Secret::new("canary-user-password"),
        Lane::Stranger,
    )
    .await
    .unwrap()
    .unwrap();
    planted.add("a session", cookie.value());
    let browser = server
        .nobody()
        .header("cookie", &format!("muster_session={}", cookie.value()));
    let page = browser.get("/").await.expect(200);
    planted.assert_absent("a page", page.text.as_bytes());
    let form = server
        .nobody()
        .header("content-type", "application/x-www-form-urlencoded");
    let wrong = form
        .send(
            Method::POST,
            "/sign-in",
            b"name=ada&password=canary-wrong-password".to_vec(),
        )
        .await
        .expect(422);
    planted.add("a wrong password", "canary-wrong-password");
    planted.assert_absent("the page of a wrong password", wrong.text.as_bytes());
    admin
        .post(
            "/v1/claims",
            &json!({ "spec": { "pool": "gpu", "node": "n1" } }),
        )
        .await
        .expect(201);
    muster_server::engine::run_until_idle(app).await.unwrap();
    plant_console(server, admin, planted).await;
    plant_webhook(admin, planted).await;
    plant_monitor(admin, planted).await;
    tasks::seals::round(app, 0).await.unwrap();
    // The server calls the receiver, and the receiver refuses. The administrator reads the
    // deliveries. The log records all of the calls.
    tasks::webhooks::round(app).await.unwrap();
    tasks::monitors::round(app).await.unwrap();
    let log = admin.get("/v1/webhooks/ops/deliveries").await.expect(200);
    assert!(
        log.body["items"]
            .as_array()
            .is_some_and(|tried| tried.len() > 1),
        "{}",
        log.text
    );
}

/// A console with a nonce and a private key, cut between two chunks, as an agent of an older
/// version reports the text.
async fn plant_console(
    server: &Server,
    admin: &crate::support::server::Caller,
    planted: &mut Planted,
) {
    const NONCE: &str = "c0ffee00112233445566778899aabbcc";
    const KEY: &str = "canaryb3BlbnNzaC1rZXktdjEAAAAABG5vbmU";
    let made = admin
        .post("/v1/sites/lab/agents", &json!({ "name": "consoles" }))
        .await
        .expect(201);
    let token = made.body["token"].as_str().unwrap();
    let router = crate::support::agents::in_process(&server.app);
    let call = async |path: &str, body: serde_json::Value| {
        let request = axum::http::Request::post(format!("/agent/v1/{path}"))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {token}"))
            .body(axum::body::Body::from(body.to_string()))
            .unwrap();
        let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
        let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        (parts.status.as_u16(), answer)
    };
    let hello = json!({ "protocol": 1, "version": "0", "instance": "a" });
    let (status, welcome) = call("hello", hello).await;
    assert_eq!(status, 200);
    let node = admin.get("/v1/nodes/n1").await.expect(200).body["id"].clone();
    let text = format!(
        "Command line: muster.nonce={NONCE} quiet\r\n-----BEGIN PRIVATE KEY-----\r\n{KEY}\r\n-----END PRIVATE KEY-----\r\n"
    );
    let (first, second) = text.split_at(40);
    let chunks = json!([
        { "node": node, "at": "2026-01-05T08:00:01Z", "text": first },
        { "node": node, "at": "2026-01-05T08:00:02Z", "text": second },
    ]);
    let report = json!({ "epoch": welcome["epoch"], "chunks": chunks });
    assert_eq!(call("consoles", report).await.0, 204);
    planted.add("a boot's nonce", NONCE);
    planted.add("a private key", KEY);
    let console = admin.get("/v1/nodes/n1/console").await.expect(200);
    assert!(
        console.text.contains("muster.nonce=[removed]") && console.text.contains("quiet"),
        "{}",
        console.text
    );
    let viewer = server.caller(muster_api::tokens::Role::Viewer).await;
    viewer.get("/v1/nodes/n1/console").await.expect(403);
}

/// A webhook with a receiver that refuses each call. The text of the receiver's answer is planted
/// too.
async fn plant_webhook(admin: &crate::support::server::Caller, planted: &mut Planted) {
    const ANSWER: &str = "canary-answer-of-a-receiver";
    let key = b"canary-webhook-signing-key-32-b.";
    let secret = format!(
        "whsec_{}",
        base64::engine::general_purpose::STANDARD.encode(key)
    );
    let receiver = axum::Router::new()
        .fallback(async || (axum::http::StatusCode::INTERNAL_SERVER_ERROR, ANSWER));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, receiver).await });
    let body = json!({ "spec": { "url": url, "topics": ["*"], "secret": secret } });
    admin.put("/v1/webhooks/ops", &body).await.expect(201);
    let wrong = json!({ "spec": { "url": url, "topics": ["*"], "secret": format!("{secret}x") } });
    let refused = admin.put("/v1/webhooks/ops", &wrong).await.expect(422);
    admin
        .post("/v1/webhooks/ops/actions/test", &json!({}))
        .await
        .expect(201);
    planted.add("what a receiver wrote", ANSWER);
    planted.add("a webhook's key", key);
    planted.add("a webhook's secret", secret);
    planted.assert_absent("a refusal", refused.text.as_bytes());
}

/// A monitor of a server that answers with planted text.
async fn plant_monitor(admin: &crate::support::server::Caller, planted: &mut Planted) {
    const ANSWER: &str = "canary-answer-of-prometheus";
    const SECRET: &str = "Bearer canary-token-of-prometheus";
    let answer = json!({ "status": "error", "errorType": ANSWER, "error": ANSWER }).to_string();
    let status = axum::http::StatusCode::BAD_REQUEST;
    let server = axum::Router::new().fallback(move || {
        let answer = answer.clone();
        async move { (status, answer) }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, server).await });
    let spec = |secret: &str| json!({ "spec": { "url": url, "query": "up", "secret": secret } });
    let path = "/v1/monitors/errors";
    admin.put(path, &spec(SECRET)).await.expect(201);
    let wrong = spec(&format!("{SECRET}\n"));
    let refused = admin.put(path, &wrong).await.expect(422);
    planted.add("what Prometheus wrote", ANSWER);
    planted.add("a monitor's secret", SECRET);
    planted.assert_absent("a refusal", refused.text.as_bytes());
}

/// The paths to read without a body: every GET route and page, most of them with objects that
/// exist.
fn readable() -> Vec<String> {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let mut paths = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        if item.get("get").is_some() {
            let collection = path.split('/').nth(2).unwrap_or_default();
            let name = match collection {
                "credentials" => "canary-bmc",
                "racks" => "r1",
                "subnets" => "prov",
                "images" => "debian-12",
                "stacks" => "base",
                "suites" => "smoke",
                "clusters" => "slurm",
                "pools" => "gpu",
                "hardware_profiles" => "virtual",
                "network_profiles" => "bonded",
                "maintenance_windows" => "nights",
                "monitors" => "errors",
                "signing_keys" => "release",
                "webhooks" => "ops",
                _ => "lab",
            };
            let path = path
                .replace("{node}", "n1")
                .replace("{name}", name)
                .replace("{site}", "lab");
            paths.push(
                path.replace("{claim}", "x")
                    .replace("{id}", "x")
                    .replace("/components", "/components?serial=x"),
            );
        }
    }
    let pages = [
        "/",
        "/nodes",
        "/nodes/n1",
        "/nodes/n1/console",
        "/operations",
        "/racks",
        "/claims",
        "/stacks",
        "/stacks/base",
        "/rollouts",
        "/events",
        "/agents",
        "/webhooks",
        "/webhooks?name=ops",
    ];
    paths.extend(pages.map(ToOwned::to_owned));
    paths.extend(
        [
            "/sign-in",
            "/sign-in/oidc",
            "/sign-in/oidc/callback",
            "/metrics",
            "/openapi.json",
        ]
        .map(ToOwned::to_owned),
    );
    paths
}
