//! Event streams: bounds per caller and replica, one reader of the database, and the end of rights.

use std::time::Duration;

use axum::body::Body;
use futures::StreamExt as _;
use muster_api::tokens::Role;
use muster_server::streams::{MOST_OF_CALLER, MOST_OF_REPLICA};
use reqwest::{Client, Response};
use serde_json::json;
use tower::ServiceExt as _;

use crate::support::server::{Caller, Server};

/// Longer than any answer takes. Reached only by a failed test.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn client() -> Client {
    Client::builder().timeout(LIMIT).no_proxy().build().unwrap()
}

/// Requests a stream of the events after a number.
async fn follow(http: &Client, url: &str, caller: &Caller, after: i64) -> Response {
    http.get(format!("{url}/v1/events?after={after}"))
        .bearer_auth(caller.token.clone().unwrap())
        .header("accept", "text/event-stream")
        .send()
        .await
        .unwrap()
}

async fn find_last(admin: &Caller) -> i64 {
    let page = admin.get("/v1/events?limit=1000").await.expect(200);
    page.body["last_seq"].as_i64().unwrap()
}

async fn put_site(admin: &Caller, name: &str) {
    let path = format!("/v1/sites/{name}");
    admin.put(&path, &json!({ "spec": {} })).await.expect(201);
}

/// Reads from a stream until the text contains the words.
pub(crate) async fn read_until(stream: &mut Response, words: &str) -> String {
    let mut text = String::new();
    while !text.contains(words) {
        let chunk = stream.chunk().await.unwrap().expect(words);
        text += &String::from_utf8_lossy(&chunk);
    }
    text
}

/// Reads to the end of a stream.
pub(crate) async fn read_rest(stream: &mut Response) -> String {
    let mut text = String::new();
    while let Some(chunk) = stream.chunk().await.unwrap() {
        text += &String::from_utf8_lossy(&chunk);
    }
    text
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let met = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, met).await.expect(what);
}

/// The value of a metric of this process.
async fn read_metric(admin: &Caller, name: &str) -> u64 {
    let page = admin.get("/metrics").await.expect(200).text;
    let value = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    page.lines().find_map(value).unwrap_or(0)
}

#[tokio::test]
async fn a_caller_has_sixteen_streams() {
    let server = Server::start().await;
    let (url, http) = (server.listen().await, client());
    let viewer = server.caller(Role::Viewer).await;
    let other = server.caller(Role::Viewer).await;
    let mut open = Vec::new();
    for _ in 0..MOST_OF_CALLER {
        let stream = follow(&http, &url, &viewer, 0).await;
        assert_eq!(stream.status(), 200);
        open.push(stream);
    }
    let refused = follow(&http, &url, &viewer, 0).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let problem = refused.text().await.unwrap();
    assert!(problem.contains("too_many_streams"), "{problem}");
    assert_eq!(follow(&http, &url, &other, 0).await.status(), 200);
    // A closed connection gives its place back.
    open.pop();
    until("a place is free", async || {
        follow(&http, &url, &viewer, 0).await.status() == 200
    })
    .await;
}

#[tokio::test]
async fn a_full_replica_refuses_a_stream_and_serves_it_later() {
    let server = Server::start().await;
    let (url, http) = (server.listen().await, client());
    let viewer = server.caller(Role::Viewer).await;
    let first = follow(&http, &url, &viewer, 0).await;
    assert_eq!(first.status(), 200);
    let streams = &server.app.streams;
    let mut held = Vec::new();
    for number in 0..MOST_OF_REPLICA {
        held.extend(streams.take(&[format!("user:{number}")]));
    }
    let refused = follow(&http, &url, &viewer, 0).await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    let problem = refused.text().await.unwrap();
    assert!(problem.contains("streams_full"), "{problem}");
    drop(held);
    assert_eq!(follow(&http, &url, &viewer, 0).await.status(), 200);
    drop(first);
}

/// The token is revoked by a statement alone, as by another replica: no wake and no event.
#[tokio::test]
async fn the_stream_of_a_revoked_token_ends_without_an_event() {
    let server = Server::start().await;
    let (url, http) = (server.listen().await, client());
    let admin = server.admin().await;
    let (revoked, other) = (
        server.caller(Role::Viewer).await,
        server.caller(Role::Viewer).await,
    );
    let last = find_last(&admin).await;
    let mut ended = follow(&http, &url, &revoked, last).await;
    let mut kept = follow(&http, &url, &other, last).await;
    put_site(&admin, "a").await;
    read_until(&mut ended, "site a created").await;
    read_until(&mut kept, "site a created").await;
    let id = revoked.token.as_ref().unwrap().split('_').nth(1).unwrap();
    let revoke = "UPDATE tokens SET revoked_at = created_at WHERE id = $1::text::uuid";
    sqlx::query(revoke)
        .bind(id)
        .execute(&server.app.pool)
        .await
        .unwrap();
    let rest = read_rest(&mut ended).await;
    assert!(
        rest.contains("closed: the credential or its rights have changed"),
        "{rest}"
    );
    put_site(&admin, "b").await;
    read_until(&mut kept, "site b created").await;
    assert_eq!(follow(&http, &url, &revoked, last).await.status(), 401);
}

/// Each request may write the time of the use of a token or a session, and seals are written again.
/// The rights stay the same, so no stream checks them. Each change of rights counts.
#[tokio::test]
async fn the_use_of_a_credential_is_no_change_of_rights() {
    let server = Server::start().await;
    server.caller(Role::Viewer).await;
    let pool = &server.app.pool;
    for statement in [
        "INSERT INTO users (id, name, password_hash, role, created_at) VALUES (gen_random_uuid(), 'ada', 'hash', 'viewer', now())",
        "INSERT INTO sessions (token_hash, user_id, created_at, expires_at) SELECT '\\x01'::bytea, id, created_at, created_at FROM users",
        "INSERT INTO objects (id, kind, name, spec, created_at, updated_at) VALUES (gen_random_uuid(), 'role_binding', 'a', '{}', now(), now())",
    ] {
        let done = sqlx::query(statement).execute(pool).await.unwrap();
        assert_eq!(done.rows_affected(), 1, "{statement}");
    }
    let last = async || -> i64 {
        sqlx::query_scalar("SELECT coalesce(max(id), 0) FROM access_changes")
            .fetch_one(pool)
            .await
            .unwrap()
    };
    for (statement, is_change) in [
        ("UPDATE tokens SET last_used = created_at", false),
        ("UPDATE tokens SET role = role, scope = scope", false),
        (
            "UPDATE tokens SET seal = '\\x01', seal_refused_at = created_at",
            false,
        ),
        ("UPDATE tokens SET revoked_at = created_at", true),
        (
            "UPDATE users SET last_seen = created_at, vouched_at = created_at",
            false,
        ),
        (
            "UPDATE users SET seal = '\\x01', seal_refused_at = created_at",
            false,
        ),
        ("UPDATE users SET groups = '{infra}'", true),
        (
            "UPDATE sessions SET seen_at = seen_at + interval '1 minute'",
            false,
        ),
        (
            "UPDATE sessions SET seal = '\\x01', seal_refused_at = created_at",
            false,
        ),
        (
            "UPDATE sessions SET expires_at = expires_at + interval '1 minute'",
            true,
        ),
        ("DELETE FROM sessions", true),
        (
            "UPDATE objects SET seal = '\\x01', seal_refused_at = created_at",
            false,
        ),
        ("UPDATE objects SET labels = '{\"team\": \"a\"}'", false),
        ("UPDATE objects SET spec = '{\"role\": \"viewer\"}'", true),
        ("UPDATE objects SET keeps_release_verbs = true", true),
        ("DELETE FROM objects", true),
        ("DELETE FROM users", true),
    ] {
        let before = last().await;
        let done = sqlx::query(statement).execute(pool).await.unwrap();
        assert_eq!(done.rows_affected(), 1, "{statement}");
        assert_eq!(last().await > before, is_change, "{statement}");
    }
}

/// Each stream reads once at its begin. An event costs no read of a stream.
#[tokio::test]
async fn many_streams_have_one_reader() {
    let server = Server::start().await;
    let (url, http) = (server.listen().await, client());
    let admin = server.admin().await;
    let last = find_last(&admin).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let viewer = server.caller(Role::Viewer).await;
        for _ in 0..MOST_OF_CALLER {
            open.push(follow(&http, &url, &viewer, last).await);
        }
    }
    let count = u64::try_from(open.len()).unwrap();
    let own = "muster_stream_catchups_total";
    until("each stream is up to date", async || {
        read_metric(&admin, own).await == count
    })
    .await;
    put_site(&admin, "a").await;
    for stream in &mut open {
        read_until(stream, "site a created").await;
    }
    assert_eq!(read_metric(&admin, own).await, count);
    assert!(read_metric(&admin, "muster_stream_reads_total").await > 0);
    assert_eq!(read_metric(&admin, "muster_streams_open").await, count);
}

/// The next event of a stream, without keep-alives: the number of the event.
async fn next_seq(
    stream: &mut (impl futures::Stream<Item = Result<axum::body::Bytes, axum::Error>> + Unpin),
) -> i64 {
    loop {
        let next = tokio::time::timeout(LIMIT, stream.next()).await;
        let bytes = next.expect("an event").expect("an open stream").unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut lines = text.lines();
        if let Some(seq) = lines.find_map(|line| line.strip_prefix("id:")) {
            return seq.trim().parse().unwrap();
        }
    }
}

/// The body is polled only by the test. The stream loses batches of the reader meanwhile.
#[tokio::test]
async fn a_slow_stream_gets_each_event_once_and_in_order() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let last = find_last(&admin).await;
    let request = axum::http::Request::get(format!("/v1/events?after={last}"))
        .header("accept", "text/event-stream")
        .header(
            "authorization",
            format!("Bearer {}", admin.token.clone().unwrap()),
        )
        .body(Body::empty())
        .unwrap();
    let router = muster_server::router::router(server.app.clone());
    let answer = router.oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut stream = answer.into_body().into_data_stream();
    let own = "muster_stream_catchups_total";
    let begin = async {
        until("the stream is up to date", async || {
            read_metric(&admin, own).await == 1
        })
        .await;
        put_site(&admin, "s0").await;
    };
    let (first, ()) = tokio::join!(next_seq(&mut stream), begin);
    let published = "muster_stream_published_total";
    for number in 1..=24 {
        let before = read_metric(&admin, published).await;
        put_site(&admin, &format!("s{number}")).await;
        // The next event is then in another batch. A read alone may have been before the event.
        until("the event is published", async || {
            read_metric(&admin, published).await > before
        })
        .await;
    }
    let path = format!("/v1/events?after={last}&limit=1000");
    let history = admin.get(&path).await.expect(200);
    let items = history.body["items"].as_array().unwrap();
    let wanted: Vec<i64> = items
        .iter()
        .map(|event| event["seq"].as_i64().unwrap())
        .collect();
    let mut seen = vec![first];
    while seen.len() < wanted.len() {
        seen.push(next_seq(&mut stream).await);
    }
    assert_eq!(seen, wanted);
    assert!(
        read_metric(&admin, own).await > 1,
        "the stream has lost no batch"
    );
}
