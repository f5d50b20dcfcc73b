//! The history by topic, as pages and as a stream.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Reply, Server};

fn kinds(page: &Reply) -> BTreeSet<String> {
    let kind = |event: &Value| event["kind"].as_str().unwrap().to_owned();
    page.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(kind)
        .collect()
}

fn words(kinds: &[&str]) -> BTreeSet<String> {
    kinds.iter().map(|kind| (*kind).to_owned()).collect()
}

/// Events keep the kind that they were written with. Their present kind finds them.
#[tokio::test]
async fn a_renamed_kind_finds_older_events_and_the_former_kind_names_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let add = "INSERT INTO events (id, at, actor, kind, summary, detail)
               VALUES (gen_random_uuid(), now(), 'muster', 'drift.mended', 'it fits again', '{}')";
    sqlx::query(add).execute(&server.app.pool).await.unwrap();
    for topics in ["drift.resolved", "drift.*"] {
        let page = admin
            .get(&format!("/v1/events?topics={topics}"))
            .await
            .expect(200);
        assert_eq!(kinds(&page), words(&["drift.mended"]), "{topics}");
    }
    let refused = admin.get("/v1/events?topics=drift.mended").await;
    assert_eq!(refused.status, 400);
    assert!(
        refused
            .text
            .contains("drift.mended is named drift.resolved now")
    );
    let webhook =
        json!({ "spec": { "url": "https://hooks.example.org/", "topics": ["drift.mended"] } });
    let refused = admin.put("/v1/webhooks/ops", &webhook).await;
    assert_eq!(refused.body["errors"][0]["pointer"], "/spec/topics/0");

    let stored =
        json!({ "url": "https://hooks.example.org/", "topics": ["drift.mended", "node.*"] });
    let present = json!({ "spec": {
        "url": "https://hooks.example.org/", "topics": ["node.*"],
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    } });
    admin.put("/v1/webhooks/old", &present).await.expect(201);
    let old = "UPDATE objects SET spec = $1 WHERE name = 'old'";
    sqlx::query(old)
        .bind(stored)
        .execute(&server.app.pool)
        .await
        .unwrap();
    let upgrade = include_str!("../../migrations/0045_event_kinds.sql");
    sqlx::raw_sql(upgrade)
        .execute(&server.app.pool)
        .await
        .unwrap();
    let topics: Value =
        sqlx::query_scalar("SELECT spec -> 'topics' FROM objects WHERE name = 'old'")
            .fetch_one(&server.app.pool)
            .await
            .unwrap();
    assert_eq!(topics, json!(["drift.resolved", "node.*"]));
}

#[tokio::test]
async fn a_reader_is_told_of_the_topics_they_name_and_how_far_was_looked() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    admin.put("/v1/nodes/n2", &fleet::node(2)).await.expect(201);
    let all = admin.get("/v1/events?limit=1000").await.expect(200);
    assert!(kinds(&all).contains("object.created"));
    for (topics, told) in [
        ("node.registered", words(&["node.registered"])),
        (
            "node.*",
            words(&["node.action_requested", "node.registered"]),
        ),
        (
            "node.action_requested,%20object.*",
            words(&["node.action_requested", "object.created"]),
        ),
        // An underscore is one: it stands for nothing else.
        ("node_registered", words(&[])),
        ("*", kinds(&all)),
    ] {
        let page = admin
            .get(&format!("/v1/events?limit=1000&topics={topics}"))
            .await
            .expect(200);
        assert_eq!(kinds(&page), told, "{topics}");
        assert_eq!(
            page.body["last_seq"], all.body["last_seq"],
            "{topics}: it was looked at to the end"
        );
    }
    let of_node = admin
        .get("/v1/events?topics=node.registered&node=n2")
        .await
        .expect(200);
    assert_eq!(of_node.body["items"].as_array().unwrap().len(), 1);
    // One by one is the same as at once.
    let (mut after, mut seen) = (0, 0);
    while seen < 2 {
        let page = admin
            .get(&format!(
                "/v1/events?topics=node.registered&limit=1&after={after}"
            ))
            .await
            .expect(200);
        seen += page.body["items"].as_array().unwrap().len();
        after = page.body["last_seq"].as_i64().unwrap();
    }
    let many = vec!["a"; 21].join(",");
    for (wrong, code) in [
        ("node.%2A.x", "invalid_topic"),
        ("", "invalid_topic"),
        (many.as_str(), "out_of_range"),
    ] {
        let refused = admin.get(&format!("/v1/events?topics={wrong}")).await;
        assert_eq!(
            refused.problem(),
            (400, "invalid_request", "topics"),
            "{wrong}"
        );
        assert_eq!(refused.body["errors"][0]["code"], code);
    }
    let shown = admin.get("/events?topics=object.*").await.expect(200).text;
    assert!(
        shown.contains("object.created") && !shown.contains("node.registered"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_stream_passes_over_what_is_not_its_topic() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let url = server.listen().await;
    let http = reqwest::Client::builder()
        .timeout(Duration::from_secs(20))
        .no_proxy()
        .build()
        .unwrap();
    let mut stream = http
        .get(format!("{url}/v1/events?topics=object.removed,object.c*"))
        .bearer_auth(admin.token.clone().unwrap())
        .header("accept", "text/event-stream")
        .send()
        .await
        .unwrap();
    // A star ends a word that ends with a dot.
    assert_eq!(stream.status(), 400);
    stream = http
        .get(format!("{url}/v1/events?topics=object.removed"))
        .bearer_auth(admin.token.clone().unwrap())
        .header("accept", "text/event-stream")
        .send()
        .await
        .unwrap();
    admin
        .put("/v1/sites/a", &json!({ "spec": {} }))
        .await
        .expect(201);
    admin.expecting(1).delete("/v1/sites/a").await.expect(204);
    let first = String::from_utf8(stream.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(first.contains("event: object.removed"), "{first}");
}
