//! The local administrator beside an identity provider: off until armed beside the database, with
//! the key, for a time and a reason.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::clock::Clock;
use muster_core::values::Secret;
use muster_server::access::Armed;
use muster_server::auth::break_glass;
use muster_server::auth::passwords;
use muster_server::db;
use muster_server::keys::MasterKey;
use muster_server::oidc::{Provider, Settings};
use muster_server::tasks::sign_ins;
use reqwest::Method;
use serde_json::json;

use crate::support::postgres;
use crate::support::server::{Caller, START, Server};

const PASSWORD: &str = "correct horse battery";

/// A server with local people, and a provider without logins.
async fn with_provider() -> Server {
    let settings = Settings {
        issuer: "https://id.example".into(),
        client_id: "muster".into(),
        client_secret: Secret::new("s"),
        public_url: "https://muster.example".into(),
        roles: Vec::new(),
    };
    let clock = Clock::manual(START.parse::<Timestamp>().unwrap());
    let provider = Arc::new(Provider::new(settings).unwrap());
    with_people(Server::vouched(postgres::database().await, clock, Some(provider)).await).await
}

async fn with_people(server: Server) -> Server {
    let hash = passwords::hash(Secret::new(PASSWORD)).await.unwrap();
    let mut conn = server.app.pool.acquire().await.unwrap();
    for (name, role) in [("admin", "admin"), ("olga", "operator")] {
        db::users::insert(&mut conn, name, &hash, role, server.app.clock.now())
            .await
            .unwrap();
    }
    drop(conn);
    server.seal_rows().await;
    server
}

/// Signs in. Returns the caller with the session, if any.
async fn sign_in(server: &Server, name: &str, password: &str) -> Option<Caller> {
    let browser = server.nobody().header("sec-fetch-site", "same-origin");
    let form = format!("name={name}&password={}", password.replace(' ', "+"));
    let form = browser
        .header("content-type", "application/x-www-form-urlencoded")
        .send(Method::POST, "/sign-in", form.into())
        .await;
    let cookie = form
        .header("set-cookie")
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    assert!([303, 422].contains(&form.status), "{}", form.text);
    (form.status == 303).then(|| server.nobody().header("cookie", &cookie))
}

async fn arm(server: &Server, key: &MasterKey, hours: i64) {
    let now = server.app.clock.now();
    let (by, reason) = ("root@host1".to_owned(), "the provider is <away>".to_owned());
    let armed = Armed {
        armed_at: now,
        until: now + SignedDuration::from_hours(hours),
        by,
        reason,
    };
    break_glass::arm(&mut server.app.pool.acquire().await.unwrap(), key, &armed)
        .await
        .unwrap();
}

/// The summaries of events of a kind, oldest first.
async fn told(server: &Server, kind: &str) -> Vec<String> {
    let query = "SELECT summary FROM events WHERE kind = $1 ORDER BY seq";
    sqlx::query_scalar(query)
        .bind(kind)
        .fetch_all(&server.app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn the_local_administrator_is_refused_unless_armed() {
    let server = with_provider().await;
    assert!(sign_in(&server, "admin", PASSWORD).await.is_none());
    assert!(
        sign_in(&server, "olga", PASSWORD).await.is_some(),
        "ordinary people of this server are as before"
    );
    // A writer of the database without the key cannot arm.
    arm(&server, &MasterKey::from_bytes(&[9; 32]), 1).await;
    assert!(sign_in(&server, "admin", PASSWORD).await.is_none());
    arm(&server, &server.app.keys.master, 1).await;
    let admin = sign_in(&server, "admin", PASSWORD).await.unwrap();
    let status = admin.get("/v1/break-glass").await.expect(200).body;
    assert_eq!(
        (&status["needed"], &status["armed"]["by"]),
        (&json!(true), &json!("root@host1"))
    );
    let page = admin.get("/").await.expect(200).text;
    assert!(
        page.contains("The local administrator is armed")
            && page.contains("the provider is &#60;away&#62;"),
        "{page}"
    );
    let token = json!({ "name": "left-behind", "role": "admin", "expires_in_s": 86_400 });
    let made = admin
        .header("sec-fetch-site", "same-origin")
        .post("/v1/tokens", &token)
        .await
        .expect(201);
    let left = server.with(made.body["secret"].as_str().map(str::to_owned));
    left.get("/v1/nodes").await.expect(200);

    server.app.clock.advance(SignedDuration::from_mins(61));
    assert_eq!(
        admin.get("/v1/nodes").await.status,
        401,
        "its sessions end with its time"
    );
    assert_eq!(
        left.get("/v1/nodes").await.status,
        403,
        "and what it left behind may nothing"
    );
    assert!(sign_in(&server, "admin", PASSWORD).await.is_none());
    assert_eq!(told(&server, "break_glass.armed").await.len(), 2);
    assert_eq!(
        told(&server, "user.signed_in").await,
        ["olga signed in by password", "admin signed in by password"]
    );

    arm(&server, &server.app.keys.master, 1).await;
    let admin = sign_in(&server, "admin", PASSWORD).await.unwrap();
    let now = server.app.clock.now();
    let mut conn = server.app.pool.acquire().await.unwrap();
    assert!(
        break_glass::disarm(&mut conn, "root@host1", now)
            .await
            .unwrap()
    );
    assert!(
        !break_glass::disarm(&mut conn, "root@host1", now)
            .await
            .unwrap()
    );
    assert_eq!(admin.get("/v1/nodes").await.status, 401);
    assert_eq!(told(&server, "break_glass.disarmed").await.len(), 1);
}

#[tokio::test]
async fn passwords_sign_in_without_a_provider_and_logins_are_recorded() {
    let server = with_people(Server::start().await).await;
    assert!(sign_in(&server, "admin", PASSWORD).await.is_some());
    assert!(sign_in(&server, "admin", "wrong").await.is_none());
    for _ in 0..2 {
        assert!(
            sign_in(&server, "hunter2-typed-as-a-name", "x")
                .await
                .is_none()
        );
    }
    server.app.clock.advance(SignedDuration::from_mins(1));
    sign_ins::tell(&server.app).await.unwrap();
    let failed = told(&server, "user.sign_in_failed").await;
    assert_eq!(
        failed,
        [
            "failed logins from an unknown address in the minute of 2026-01-05T08:00:00Z: 3; \
             admin: wrong password (1), unknown names (2)"
        ]
    );
}
