//! Operations and the history: long polls, cancelling, events as pages and as a stream.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::fleet;
use crate::support::server::Server;

#[tokio::test]
async fn a_long_poll_answers_when_the_operation_is_done() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let node = admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    let path = format!("/v1/operations/{}", node.body["status"]["operation"].as_str().unwrap());
    let open = admin.get(&format!("{path}?wait=1s")).await.expect(200);
    assert_eq!(open.body["done"], false);
    let waiting = {
        let (admin, path) = (admin.clone(), path.clone());
        tokio::spawn(async move { admin.get(&format!("{path}?wait=30s")).await.expect(200) })
    };
    let began = Instant::now();
    sqlx::query("UPDATE operations SET state = 'succeeded', finished_at = now()")
        .execute(&server.app.pool)
        .await
        .unwrap();
    server.app.wake_readers.send_modify(|turn| *turn += 1);
    assert_eq!(waiting.await.unwrap().body["state"], "succeeded");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(admin.post(&format!("{path}/cancel"), &json!({})).await.problem(), (409, "done", ""));
    assert_eq!(admin.get(&format!("{path}?wait=2m")).await.problem(), (400, "invalid_request", "wait"));
    assert_eq!(admin.get("/v1/operations/nonsense").await.status, 404);
    let listed = admin.get("/v1/operations?node=n1&state=succeeded").await.expect(200);
    assert_eq!(listed.body["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn events_are_read_in_order_and_streamed() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for name in ["a", "b", "c"] {
        admin.header("x-request-id", name).put(&format!("/v1/sites/{name}"), &json!({ "spec": {} })).await.expect(201);
    }
    let first = admin.get("/v1/events?limit=2").await.expect(200);
    let last = first.body["last_seq"].as_i64().unwrap();
    let second = admin.get(&format!("/v1/events?after={last}")).await.expect(200);
    let ids: Vec<&str> = [&first, &second]
        .iter()
        .flat_map(|page| page.body["items"].as_array().unwrap())
        .map(|event| event["request_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["a", "b", "c"], "each event names its request");
    assert_eq!(admin.get("/v1/events?node=none").await.problem().0, 422);
}

#[tokio::test]
async fn an_event_of_a_late_transaction_is_not_skipped() {
    let server = Server::start().await;
    let admin = server.admin().await;
    // A transaction that took its number and has not committed.
    let mut late = server.app.pool.begin().await.unwrap();
    let event = |summary: &str| {
        format!(
            "INSERT INTO events (id, at, actor, kind, summary) VALUES (gen_random_uuid(), now(), 'test', 'late', '{summary}')"
        )
    };
    sqlx::query(sqlx::AssertSqlSafe(event("first"))).execute(&mut *late).await.unwrap();
    admin.put("/v1/sites/a", &json!({ "spec": {} })).await.expect(201);
    let page = admin.get("/v1/events").await.expect(200);
    assert_eq!(page.body["items"], json!([]), "the reader waits for the one in flight");
    late.commit().await.unwrap();
    let page = admin.get("/v1/events").await.expect(200);
    assert_eq!(page.body["items"].as_array().unwrap().len(), 2);
}

/// The later number is committed first, by the older transaction.
#[tokio::test]
async fn an_event_is_not_overtaken_by_one_of_an_older_transaction() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let event =
        "INSERT INTO events (id, at, actor, kind, summary) VALUES (gen_random_uuid(), now(), 'test', 'late', 'x')";
    let mut old = server.app.pool.begin().await.unwrap();
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *old).await.unwrap();
    let mut late = server.app.pool.begin().await.unwrap();
    sqlx::query(event).execute(&mut *late).await.unwrap();
    sqlx::query(event).execute(&mut *old).await.unwrap();
    old.commit().await.unwrap();
    let page = admin.get("/v1/events").await.expect(200);
    assert_eq!(
        (&page.body["items"], &page.body["last_seq"]),
        (&json!([]), &json!(0)),
        "the reader waits for the one in flight"
    );
    late.commit().await.unwrap();
    let page = admin.get("/v1/events").await.expect(200);
    let seqs: Vec<_> = page.body["items"].as_array().unwrap().iter().map(|event| event["seq"].clone()).collect();
    assert_eq!(seqs, [json!(1), json!(2)]);
    // One that gave up leaves a gap that nobody waits for.
    let mut gone = server.app.pool.begin().await.unwrap();
    sqlx::query(event).execute(&mut *gone).await.unwrap();
    gone.rollback().await.unwrap();
    admin.put("/v1/sites/a", &json!({ "spec": {} })).await.expect(201);
    let page = admin.get("/v1/events?after=2").await.expect(200);
    assert_eq!(page.body["items"][0]["seq"], 4);
}

#[tokio::test]
async fn blobs_appear_whole_or_not_at_all() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let bytes = b"an image".to_vec();
    let digest = muster_core::values::Digest::of(&bytes);
    let path = format!("/v1/blobs/sha256/{}", digest.hex());
    assert_eq!(admin.send(reqwest::Method::HEAD, &path, Vec::new()).await.status, 404);
    let wrong = admin.send(reqwest::Method::PUT, &path, b"another".to_vec()).await;
    assert_eq!(wrong.problem(), (422, "unprocessable", ""));
    admin.send(reqwest::Method::PUT, &path, bytes.clone()).await.expect(201);
    admin.send(reqwest::Method::PUT, &path, bytes).await.expect(204);
    assert_eq!(admin.send(reqwest::Method::HEAD, &path, Vec::new()).await.header("content-length"), "8");
    let left: Vec<_> =
        std::fs::read_dir(server.app.blobs.as_path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["sha256"], "no partial upload stays");
    assert_eq!(admin.send(reqwest::Method::PUT, "/v1/blobs/sha256/..%2f..%2fetc", Vec::new()).await.status, 404);
}

#[tokio::test]
async fn a_reader_of_a_history_that_is_gone_begins_again() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin.put("/v1/sites/a", &json!({ "spec": {} })).await.expect(201);
    let last = admin.get("/v1/events").await.expect(200).body["last_seq"].as_i64().unwrap();
    let page = admin.get(&format!("/v1/events?after={last}")).await.expect(200);
    assert_eq!(page.body["last_seq"], last, "who has seen all of it waits for more");
    // An older database was restored: what this reader saw was never written.
    let gone = (410, "cursor_expired", "");
    assert_eq!(admin.get(&format!("/v1/events?after={}", last + 1)).await.problem(), gone);
    assert_eq!(admin.get(&format!("/v1/events?after={}&wait=55s", i64::MAX)).await.problem(), gone);
    let stream = admin.header("accept", "text/event-stream");
    assert_eq!(stream.get(&format!("/v1/events?after={}", last + 1)).await.problem(), gone);
    assert_eq!(stream.header("last-event-id", "999999").get("/v1/events").await.problem(), gone);
    assert_eq!(admin.get("/v1/events?after=9223372036854775808").await.problem().0, 400);
}
