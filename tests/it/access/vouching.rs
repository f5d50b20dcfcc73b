//! The time for which an identity provider vouches for a person, the idle end of sessions, and
//! bindings of people before the first sign-in.

use jiff::SignedDuration;
use muster_core::ids::UserId;
use muster_server::auth::sessions;
use muster_server::db;
use muster_server::db::users::Vouched;
use muster_server::oidc::VOUCHES_FOR;
use reqwest::header::HeaderMap;
use serde_json::json;

use crate::streams::{client, read_rest, read_until};
use crate::support::server::{Caller, Server};

/// Signs in a person as the provider's callback does. Returns the person's browser.
async fn sign_in(server: &Server, subject: &str) -> Caller {
    let app = &server.app;
    let now = app.clock.now();
    let mut conn = app.pool.acquire().await.unwrap();
    let name = format!("{subject}@login.example");
    let vouched = Vouched {
        issuer: "https://login.example",
        subject,
        name: &name,
        role: "operator",
        groups: &[],
    };
    let (user, _): (UserId, bool) = db::users::set_vouched(&mut conn, vouched, now)
        .await
        .unwrap();
    db::vouching::set(&mut conn, user, now).await.unwrap();
    server.seal_rows().await;
    let cookie = sessions::open(&mut conn, app, &HeaderMap::new(), user)
        .await
        .unwrap();
    let cookie = format!("{}={}", cookie.name(), cookie.value());
    server.nobody().header("cookie", &cookie)
}

/// Makes a token of the browser's person.
async fn make_token(server: &Server, browser: &Caller) -> Caller {
    let body = json!({ "name": "of-a-person", "role": "operator", "expires_in_s": 30 * 24 * 3600 });
    let made = browser
        .header("sec-fetch-site", "same-origin")
        .post("/v1/tokens", &body)
        .await
        .expect(201);
    server.with(made.body["secret"].as_str().map(str::to_owned))
}

#[tokio::test]
async fn a_person_who_left_loses_tokens_and_sessions_until_the_next_login() {
    let server = Server::start().await;
    let clock = &server.app.clock;
    let pipeline = server.caller(muster_api::tokens::Role::Operator).await;
    let token = make_token(&server, &sign_in(&server, "ada").await).await;
    let warnings = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = 'user.sign_in_due'")
            .fetch_one(&server.app.pool)
            .await
            .unwrap()
    };
    clock.advance(VOUCHES_FOR - SignedDuration::from_hours(25));
    token.get("/v1/sites").await.expect(200);
    assert_eq!(warnings().await, 0);
    clock.advance(SignedDuration::from_secs(25 * 3600 - 1));
    for _ in 0..2 {
        token.get("/v1/sites").await.expect(200);
        assert_eq!(warnings().await, 1, "a day before, once for a login");
    }
    clock.advance(SignedDuration::from_secs(1));
    let refused = token.get("/v1/sites").await;
    assert_eq!(refused.problem(), (401, "sign_in_again", ""));
    assert!(
        refused.text.contains("ada@login.example"),
        "{}",
        refused.text
    );
    pipeline.get("/v1/sites").await.expect(200);
    let people = server.admin().await.get("/users").await.expect(200).text;
    assert!(people.contains("must sign in again"), "{people}");
    // The next login gives the rights back, to the token as well.
    let browser = sign_in(&server, "ada").await;
    browser.get("/v1/sites").await.expect(200);
    token.get("/v1/sites").await.expect(200);
}

/// The latest login of a person of an older version is not known, and counts from the upgrade.
#[tokio::test]
async fn a_person_stored_before_the_upgrade_signed_in_at_the_upgrade() {
    let server = Server::start().await;
    let token = make_token(&server, &sign_in(&server, "ada").await).await;
    let default: String = sqlx::query_scalar(
        "SELECT column_default FROM information_schema.columns WHERE table_name = 'users' AND column_name = 'vouched_at'",
    )
    .fetch_one(&server.app.pool)
    .await
    .unwrap();
    assert_eq!(default, "now()");
    server.app.clock.advance(VOUCHES_FOR);
    let refused = token.get("/v1/sites").await;
    assert_eq!(refused.problem(), (401, "sign_in_again", ""));
    let upgraded = server.app.clock.now().to_string();
    set_vouched_at(&server, &upgraded).await;
    token.get("/v1/sites").await.expect(200);
}

async fn set_vouched_at(server: &Server, at: &str) {
    sqlx::query("UPDATE users SET vouched_at = $1::text::timestamptz")
        .bind(at)
        .execute(&server.app.pool)
        .await
        .unwrap();
}

/// A stream by the cookie of a session. A change of other rights makes the stream check its own.
#[tokio::test]
async fn a_stream_ends_with_the_vouching_and_names_the_reason() {
    let server = Server::start().await;
    let url = server.listen().await;
    let admin = server.admin().await;
    let browser = sign_in(&server, "ada").await;
    let mut stream = client()
        .get(format!("{url}/v1/events?after=0"))
        .header("cookie", &browser.headers["cookie"])
        .header("accept", "text/event-stream")
        .send()
        .await
        .unwrap();
    assert_eq!(stream.status(), 200);
    let bind = async |name: &str| {
        let spec = json!({ "spec": { "subject": "group:infra", "role": "viewer" } });
        let path = format!("/v1/role_bindings/{name}");
        admin.put(&path, &spec).await.expect(201);
    };
    bind("first").await;
    read_until(&mut stream, "first").await;
    let past = (server.app.clock.now() - VOUCHES_FOR).to_string();
    set_vouched_at(&server, &past).await;
    bind("second").await;
    let rest = read_rest(&mut stream).await;
    assert!(
        rest.contains("closed: the credential or its rights have changed"),
        "{rest}"
    );
}

#[tokio::test]
async fn a_session_is_refused_when_the_provider_vouches_no_longer() {
    let server = Server::start().await;
    let browser = sign_in(&server, "ada").await;
    browser.get("/v1/sites").await.expect(200);
    let past = (server.app.clock.now() - VOUCHES_FOR).to_string();
    set_vouched_at(&server, &past).await;
    let refused = browser.get("/v1/sites").await;
    assert_eq!(refused.problem(), (401, "sign_in_again", ""));
    let reader = browser.header("accept", "text/html");
    let page = reader.get("/nodes").await.expect(303);
    assert!(page.header("location").starts_with("/sign-in?next="));
    browser.get("/sign-in").await.expect(200);
}

#[tokio::test]
async fn a_session_without_use_ends_after_an_hour() {
    let server = Server::start().await;
    let clock = &server.app.clock;
    let used = sign_in(&server, "ada").await;
    let left = sign_in(&server, "bob").await;
    for _ in 0..2 {
        clock.advance(SignedDuration::from_mins(50));
        used.get("/v1/sites").await.expect(200);
    }
    assert_eq!(left.get("/v1/sites").await.problem().0, 401);
    clock.advance(SignedDuration::from_mins(60));
    assert_eq!(used.get("/v1/sites").await.problem().0, 401);
}

#[tokio::test]
async fn a_binding_names_a_person_only_after_the_first_login() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let binding =
        |name: &str| json!({ "spec": { "subject": format!("user:{name}"), "role": "admin" } });
    let path = "/v1/role_bindings/chief";
    let early = admin.put(path, &binding("ada@login.example")).await;
    assert_eq!(early.problem(), (422, "unprocessable", "/spec/subject"));
    assert_eq!(early.body["errors"][0]["code"], "unknown_person");
    sign_in(&server, "ada").await;
    admin
        .put(path, &binding("ada@login.example"))
        .await
        .expect(201);
    // A stored binding of an older version goes on, and stays writable.
    sqlx::query("UPDATE users SET name = 'other@login.example'")
        .execute(&server.app.pool)
        .await
        .unwrap();
    let mut kept = binding("ada@login.example");
    kept["spec"]["role"] = json!("operator");
    admin.put(path, &kept).await.expect(200);
    // Only an administrator on a server's host makes local people.
    admin.put(path, &binding("local")).await.expect(200);
}
