//! Administrators' tokens without a person, beside an identity provider: no second way past the
//! arming of the local administrator.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_api::tokens::Role;
use muster_core::clock::Clock;
use muster_core::values::Secret;
use muster_server::access::Armed;
use muster_server::auth::seals::write;
use muster_server::auth::{break_glass, tokens};
use muster_server::db;
use muster_server::oidc::{Provider, Settings};
use serde_json::json;

use crate::support::postgres;
use crate::support::server::{Caller, START, Server};

/// A server with a provider beside which the token `kept` counts. No call goes to the provider.
async fn with_provider() -> Server {
    let settings = Settings {
        issuer: "https://id.example".into(),
        client_id: "muster".into(),
        client_secret: Secret::new("s"),
        public_url: "https://muster.example".into(),
        roles: Vec::new(),
    };
    let clock = Clock::manual(START.parse::<Timestamp>().unwrap());
    let provider = Provider::new(settings).unwrap();
    let provider = Arc::new(provider.keeping(vec!["kept".to_owned()]));
    Server::vouched(postgres::database().await, clock, Some(provider)).await
}

/// A token as `muster admin token` makes it.
async fn on_host(server: &Server, name: &str) -> Caller {
    let minted = tokens::mint(Some(&server.app.keys.tokens));
    let now = server.app.clock.now();
    let token = db::tokens::NewToken {
        id: minted.id,
        name: name.to_owned(),
        mac: minted.mac,
        role: "admin",
        created_at: now,
        expires_at: now + SignedDuration::from_hours(24 * 90),
    };
    let mut conn = server.app.pool.acquire().await.unwrap();
    db::tokens::insert(&mut conn, &token).await.unwrap();
    write::seal_token(&mut conn, &server.app.keys.master, token.id)
        .await
        .unwrap();
    server.with(Some(minted.secret.reveal().to_owned()))
}

async fn arm(server: &Server) {
    let now = server.app.clock.now();
    let armed = Armed {
        armed_at: now,
        until: now + SignedDuration::from_hours(1),
        by: "root@host1".to_owned(),
        reason: "the provider is away".to_owned(),
    };
    let mut conn = server.app.pool.acquire().await.unwrap();
    break_glass::arm(&mut conn, &server.app.keys.master, &armed)
        .await
        .unwrap();
}

async fn count(server: &Server, kind: &str) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = $1")
        .bind(kind)
        .fetch_one(&server.app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn an_administrators_token_without_a_person_counts_only_while_armed() {
    let alone = Server::start().await;
    let token = on_host(&alone, "host").await;
    token.get("/v1/users").await.expect(200);

    let server = with_provider().await;
    let token = on_host(&server, "host").await;
    arm(&server).await;
    token.get("/v1/users").await.expect(200);
    let made = json!({ "name": "child", "role": "admin", "expires_in_s": 7200 });
    let made = token.post("/v1/tokens", &made).await.expect(201);
    let child = server.with(made.body["secret"].as_str().map(str::to_owned));
    let made = json!({ "name": "ci", "role": "automation", "expires_in_s": 86_400 });
    let made = token.post("/v1/tokens", &made).await.expect(201);
    let ci = server.with(made.body["secret"].as_str().map(str::to_owned));
    child.get("/v1/users").await.expect(200);

    server.app.clock.advance(SignedDuration::from_mins(61));
    for refused in [&token, &child, &token] {
        let reply = refused.get("/v1/users").await.expect(403);
        assert!(reply.text.contains("--oidc-keeps-token"), "{}", reply.text);
    }
    assert_eq!(count(&server, "token.unarmed_refused").await, 2);
    // A pipeline goes on.
    ci.get("/v1/nodes").await.expect(200);
}

#[tokio::test]
async fn a_named_token_and_a_token_from_before_the_rule_count() {
    let server = with_provider().await;
    let kept = on_host(&server, "kept").await;
    kept.get("/v1/users").await.expect(200);
    let page = kept.get("/").await.expect(200).text;
    assert!(!page.contains("Token without a person"), "{page}");
    // The support's token is marked as by the migration.
    let old = server.caller(Role::Admin).await;
    old.get("/v1/users").await.expect(200);
    old.get("/v1/users").await.expect(200);
    assert_eq!(count(&server, "token.unarmed_used").await, 1);
    let page = kept.get("/").await.expect(200).text;
    assert!(page.contains("Token without a person"), "{page}");
    server.app.clock.advance(SignedDuration::from_hours(25));
    let page = kept.get("/").await.expect(200).text;
    assert!(!page.contains("Token without a person"), "{page}");
    old.get("/v1/users").await.expect(200);
    assert_eq!(count(&server, "token.unarmed_used").await, 2);
}

#[tokio::test]
async fn the_banner_parts_a_use_from_a_refusal_and_is_for_readers_of_tokens() {
    let server = with_provider().await;
    let kept = on_host(&server, "kept").await;
    let viewer = server.caller(Role::Viewer).await;
    let page = async |reader: &Caller| reader.get("/").await.expect(200).text;
    let (refused, used) = ("was refused in the last day", "was used in the last day");
    on_host(&server, "cron")
        .await
        .get("/v1/users")
        .await
        .expect(403);
    let told = page(&kept).await;
    assert!(told.contains(refused) && told.contains("cron"), "{told}");
    assert!(!told.contains(used), "{told}");
    // A later refusal hides no use.
    let old = server.caller(Role::Admin).await;
    old.get("/v1/users").await.expect(200);
    server.app.clock.advance(SignedDuration::from_mins(1));
    on_host(&server, "later")
        .await
        .get("/v1/users")
        .await
        .expect(403);
    let told = page(&kept).await;
    assert!(told.contains(used) && !told.contains(refused), "{told}");
    let told = page(&viewer).await;
    assert!(!told.contains("Token without a person"), "{told}");
}
