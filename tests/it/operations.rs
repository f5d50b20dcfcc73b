//! Operations and the history: long polls, cancelling, events as pages and as a stream.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Caller, Server};

#[tokio::test]
async fn a_long_poll_answers_when_the_operation_is_done() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let node = admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    let path = format!(
        "/v1/operations/{}",
        node.body["status"]["operation"].as_str().unwrap()
    );
    let open = admin.get(&format!("{path}?wait=1s")).await.expect(200);
    assert_eq!(open.body["done"], false);
    let waiting = {
        let (admin, path) = (admin.clone(), path.clone());
        tokio::spawn(async move { admin.get(&format!("{path}?wait=55s")).await.expect(200) })
    };
    let began = Instant::now();
    sqlx::query("UPDATE operations SET state = 'succeeded', finished_at = now()")
        .execute(&server.app.pool)
        .await
        .unwrap();
    server.app.wake_readers.send_modify(|turn| *turn += 1);
    assert_eq!(waiting.await.unwrap().body["state"], "succeeded");
    assert!(
        began.elapsed() < Duration::from_secs(55),
        "the answer came at the end of the wait"
    );
    assert_eq!(
        admin
            .post(&format!("{path}/cancel"), &json!({}))
            .await
            .problem(),
        (409, "done", "")
    );
    assert_eq!(
        admin.get(&format!("{path}?wait=2m")).await.problem(),
        (400, "invalid_request", "wait")
    );
    assert_eq!(admin.get("/v1/operations/nonsense").await.status, 404);
    let listed = admin
        .get("/v1/operations?node=n1&state=succeeded")
        .await
        .expect(200);
    assert_eq!(listed.body["items"].as_array().unwrap().len(), 1);
}

/// Every page of a list, one item each.
async fn walked(admin: &Caller, list: &str, query: &str, pointer: &str) -> Vec<String> {
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let page = admin
            .get(&format!("/v1/{list}?limit=1&{query}{token}"))
            .await
            .expect(200)
            .body;
        let items = page["items"].as_array().unwrap();
        seen.extend(
            items
                .iter()
                .map(|item| item.pointer(pointer).unwrap().as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next_page_token"].as_str() else {
            return seen;
        };
        token = format!("&page_token={next}");
    }
}

#[tokio::test]
async fn claims_and_operations_are_filtered_sorted_counted_and_cut_as_nodes_are() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    admin.put("/v1/pools/cpu", &fleet::pool()).await.expect(201);
    fleet::available(&server, &admin, 4).await;
    // Not in the order of their names.
    for (name, node, pool) in [
        ("b", "n2", "gpu"),
        ("a", "n1", "cpu"),
        ("d", "n4", "gpu"),
        ("c", "n3", "gpu"),
    ] {
        let claim = json!({ "name": name, "spec": { "pool": pool, "node": node } });
        admin.post("/v1/claims", &claim).await.expect(201);
    }
    admin.expecting(1).delete("/v1/claims/d").await.expect(202);
    for (query, names) in [
        ("", ["a", "b", "c", "d"].as_slice()),
        ("sort=-name", &["d", "c", "b", "a"]),
        ("sort=created_at", &["b", "a", "d", "c"]),
        ("sort=-created_at", &["c", "d", "a", "b"]),
        ("filter=pool%3Dgpu", &["b", "c", "d"]),
        ("filter=pool%3Dgpu&sort=-created_at", &["c", "d", "b"]),
        ("pool=gpu&filter=state%3Dbound", &["b", "c"]),
        ("filter=pool!%3Dgpu", &["a"]),
        ("filter=node~n1*%20AND%20name%3Da", &["a"]),
        ("filter=node%3Dn3", &["c"]),
        ("filter=state%3Dreleasing", &["d"]),
    ] {
        assert_eq!(
            walked(&admin, "claims", query, "/name").await,
            names,
            "{query}"
        );
    }
    for (query, nodes) in [
        ("filter=kind%3Dclaim", ["n3", "n4", "n1", "n2"].as_slice()),
        (
            "filter=kind%3Dclaim&sort=created_at",
            &["n2", "n1", "n4", "n3"],
        ),
        ("filter=kind%3Drelease%20AND%20state!%3Dsucceeded", &["n4"]),
        ("filter=kind%3Dclaim%20AND%20node%3Dn2", &["n2"]),
        ("node=n4&filter=kind~rel*", &["n4"]),
    ] {
        assert_eq!(
            walked(&admin, "operations", query, "/target/name").await,
            nodes,
            "{query}"
        );
    }
    for (list, count, part, rest) in [
        ("claims", 4, "status.node", "name"),
        ("operations", 9, "target.name", "self"),
    ] {
        let page = admin
            .get(&format!("/v1/{list}?limit=1&count=exact&fields={part}"))
            .await
            .expect(200)
            .body;
        assert_eq!(page["count"], count);
        let item = page["items"][0].as_object().unwrap();
        assert!(
            item.contains_key(rest) && !item.contains_key("created_at"),
            "{item:?}"
        );
        assert!(
            admin
                .get(&format!("/v1/{list}?count=estimate"))
                .await
                .expect(200)
                .body["count"]
                .is_number()
        );
        assert!(admin.get(&format!("/v1/{list}")).await.expect(200).body["count"].is_null());
        for wrong in [
            "sort=updated_at",
            "count=many",
            "fields=colour",
            "filter=colour%3Dred",
            "filter=state%3Dgone",
        ] {
            assert_eq!(
                admin.get(&format!("/v1/{list}?{wrong}")).await.problem().0,
                422,
                "{list} {wrong}"
            );
        }
        let token = admin
            .get(&format!("/v1/{list}?limit=1"))
            .await
            .expect(200)
            .body["next_page_token"]
            .clone();
        let turned = format!(
            "/v1/{list}?limit=1&sort=created_at&page_token={}",
            token.as_str().unwrap()
        );
        assert_eq!(
            admin.get(&turned).await.problem(),
            (400, "invalid_request", "page_token")
        );
    }
    assert_eq!(
        admin.get("/v1/operations?sort=name").await.problem().0,
        422,
        "operations have none"
    );
}

#[tokio::test]
async fn events_are_read_in_order_and_streamed() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for name in ["a", "b", "c"] {
        admin
            .header("x-request-id", name)
            .put(&format!("/v1/sites/{name}"), &json!({ "spec": {} }))
            .await
            .expect(201);
    }
    let first = admin.get("/v1/events?limit=2").await.expect(200);
    let last = first.body["last_seq"].as_i64().unwrap();
    let second = admin
        .get(&format!("/v1/events?after={last}"))
        .await
        .expect(200);
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
    // A transaction with a number, and not committed yet.
    let mut late = server.app.pool.begin().await.unwrap();
    let event = |summary: &str| {
        format!(
            "INSERT INTO events (id, at, actor, kind, summary) VALUES (gen_random_uuid(), now(), 'test', 'late', '{summary}')"
        )
    };
    sqlx::query(sqlx::AssertSqlSafe(event("first")))
        .execute(&mut *late)
        .await
        .unwrap();
    admin
        .put("/v1/sites/a", &json!({ "spec": {} }))
        .await
        .expect(201);
    let page = admin.get("/v1/events").await.expect(200);
    assert_eq!(
        page.body["items"],
        json!([]),
        "the reader waits for the one in flight"
    );
    late.commit().await.unwrap();
    let page = admin.get("/v1/events").await.expect(200);
    assert_eq!(page.body["items"].as_array().unwrap().len(), 2);
}

/// The later number is committed first, by the older transaction.
#[tokio::test]
async fn an_event_is_not_overtaken_by_one_of_an_older_transaction() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let event = "INSERT INTO events (id, at, actor, kind, summary) VALUES (gen_random_uuid(), now(), 'test', 'late', 'x')";
    let mut old = server.app.pool.begin().await.unwrap();
    sqlx::query("SELECT pg_current_xact_id()")
        .execute(&mut *old)
        .await
        .unwrap();
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
    let seqs: Vec<_> = page.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["seq"].clone())
        .collect();
    assert_eq!(seqs, [json!(1), json!(2)]);
    // A rolled back transaction leaves a gap without a wait.
    let mut gone = server.app.pool.begin().await.unwrap();
    sqlx::query(event).execute(&mut *gone).await.unwrap();
    gone.rollback().await.unwrap();
    admin
        .put("/v1/sites/a", &json!({ "spec": {} }))
        .await
        .expect(201);
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
    assert_eq!(
        admin
            .send(reqwest::Method::HEAD, &path, Vec::new())
            .await
            .status,
        404
    );
    let wrong = admin
        .send(reqwest::Method::PUT, &path, b"another".to_vec())
        .await;
    assert_eq!(wrong.problem(), (422, "unprocessable", ""));
    let stored = async || {
        let events = admin.get("/v1/events?limit=1000").await.expect(200).body["items"].clone();
        let stored = |event: &&Value| event["kind"] == "blob.stored";
        events
            .as_array()
            .unwrap()
            .iter()
            .filter(stored)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        stored().await,
        Vec::<Value>::new(),
        "what was not kept is not told"
    );
    admin
        .send(reqwest::Method::PUT, &path, bytes.clone())
        .await
        .expect(201);
    admin
        .send(reqwest::Method::PUT, &path, bytes.clone())
        .await
        .expect(204);
    let told = stored().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["detail"], json!({ "digest": digest, "size": 8 }));
    assert!(
        told[0]["actor"]
            .as_str()
            .unwrap()
            .starts_with("token:admin"),
        "{told:?}"
    );
    // A server died with the file in place and without an event: the next upload makes the event.
    sqlx::query("DELETE FROM blobs")
        .execute(&server.app.pool)
        .await
        .unwrap();
    admin
        .send(reqwest::Method::PUT, &path, bytes)
        .await
        .expect(204);
    assert_eq!(stored().await.len(), 2);
    assert_eq!(
        admin
            .send(reqwest::Method::HEAD, &path, Vec::new())
            .await
            .header("content-length"),
        "8"
    );
    let left: Vec<_> = std::fs::read_dir(server.app.blobs.as_path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["sha256"], "no partial upload stays");
    assert_eq!(
        admin
            .send(
                reqwest::Method::PUT,
                "/v1/blobs/sha256/..%2f..%2fetc",
                Vec::new()
            )
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_reader_of_a_history_that_is_gone_begins_again() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin
        .put("/v1/sites/a", &json!({ "spec": {} }))
        .await
        .expect(201);
    let last = admin.get("/v1/events").await.expect(200).body["last_seq"]
        .as_i64()
        .unwrap();
    let page = admin
        .get(&format!("/v1/events?after={last}"))
        .await
        .expect(200);
    assert_eq!(
        page.body["last_seq"], last,
        "who has seen all of it waits for more"
    );
    // An older database was restored, without the events known to the reader.
    let gone = (410, "cursor_expired", "");
    assert_eq!(
        admin
            .get(&format!("/v1/events?after={}", last + 1))
            .await
            .problem(),
        gone
    );
    assert_eq!(
        admin
            .get(&format!("/v1/events?after={}&wait=55s", i64::MAX))
            .await
            .problem(),
        gone
    );
    let stream = admin.header("accept", "text/event-stream");
    assert_eq!(
        stream
            .get(&format!("/v1/events?after={}", last + 1))
            .await
            .problem(),
        gone
    );
    assert_eq!(
        stream
            .header("last-event-id", "999999")
            .get("/v1/events")
            .await
            .problem(),
        gone
    );
    assert_eq!(
        admin
            .get("/v1/events?after=9223372036854775808")
            .await
            .problem()
            .0,
        400
    );
}
