//! Hostile input to every documented route: refused in the common form, never a server error.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Reply, Server};

/// Hostile texts in the place of a name, an id or a number.
fn words() -> Vec<String> {
    let long = "a".repeat(5000);
    let words = [
        "%00",
        "a%00b",
        "%ff%fe",
        "..%2f..%2fetc",
        "9223372036854775808",
        "-1",
        "%F0%9F%92%A9",
        "%25",
        "'%3B--",
        "+",
        "0",
        "%5C",
    ];
    words.into_iter().map(str::to_owned).chain([long]).collect()
}

/// Hostile bodies in the place of a document.
fn bodies() -> Vec<Vec<u8>> {
    let deep = |open: &str, close: &str| {
        format!("{}{}", open.repeat(5000), close.repeat(5000)).into_bytes()
    };
    vec![
        Vec::new(),
        b"{".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"\xff\xfe{}".to_vec(),
        b"{\"spec\": \"\xff\"}".to_vec(),
        deep("[", "]"),
        deep("{\"spec\":", "}"),
        br#"{"spec": {}, "spec": {}}"#.to_vec(),
        br#"{"name": "a\u0000b", "spec": {"site": "\u0000"}, "role": "admin", "expires_in_s": 9223372036854775808}"#
            .to_vec(),
        br#"{"name": "\ud800", "spec": {}}"#.to_vec(),
        json!({ "spec": { "units": u64::MAX, "power_budget_w": -1, "site": "lab" } }).to_string().into_bytes(),
        json!({ "labels": { "": "" }, "annotations": { "x".repeat(500): "\u{7f}" }, "spec": {} })
            .to_string()
            .into_bytes(),
        json!({ "reason": "r".repeat(100_000), "until": "+999999-01-01T00:00:00Z" }).to_string().into_bytes(),
        json!({ "objects": [{ "kind": "node", "name": "\u{202e}", "spec": 1e308 }] }).to_string().into_bytes(),
    ]
}

#[track_caller]
fn judge(reply: &Reply, what: &str) {
    assert!(
        reply.status < 500,
        "{what}: {} {}",
        reply.status,
        reply.text
    );
    if reply.status >= 400 && !reply.text.is_empty() {
        assert_eq!(
            reply.header("content-type"),
            "application/problem+json",
            "{what}: {}",
            reply.text
        );
        for member in ["code", "detail", "request_id", "title"] {
            assert!(
                reply.body[member].is_string(),
                "{what}: no {member}: {}",
                reply.text
            );
        }
        assert!(
            reply.body["retryable"].is_boolean() && reply.body["status"] == reply.status,
            "{what}: {}",
            reply.text
        );
    }
}

/// Method, path template and the names of its query parameters.
fn operations() -> Vec<(Method, String, Vec<String>)> {
    let description = serde_json::to_value(muster_server::http::description()).unwrap();
    let mut operations = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let queries = parameters
                .iter()
                .filter(|parameter| parameter["in"] == "query");
            let names = queries
                .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
                .collect();
            operations.push((method.to_uppercase().parse().unwrap(), path.clone(), names));
        }
    }
    operations
}

/// The path with every parameter filled in.
fn filled(path: &str, word: &str) -> String {
    let mut filled = path.to_owned();
    while let Some((before, rest)) = filled.split_once('{') {
        filled = format!("{before}{word}{}", rest.split_once('}').unwrap().1);
    }
    filled
}

#[tokio::test]
async fn no_address_is_a_bug() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let admin = admin
        .header("if-match", "*")
        .header("content-type", "application/json");
    for (method, path, queries) in operations() {
        for word in words() {
            if path.contains('{') {
                let reply = admin
                    .send(method.clone(), &filled(&path, &word), b"{}".to_vec())
                    .await;
                judge(&reply, &format!("{method} {} ", filled(&path, &word)));
            }
            for query in &queries {
                // No wait.
                let at = format!("{}?{query}={word}", filled(&path, "lab"));
                let reply = admin.send(method.clone(), &at, b"{}".to_vec()).await;
                judge(&reply, &format!("{method} {at}"));
            }
        }
    }
}

#[tokio::test]
async fn no_body_is_a_bug() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    admin
        .put("/v1/nodes/lab", &fleet::node(1))
        .await
        .expect(201);
    let admin = admin
        .header("if-match", "*")
        .header("content-type", "application/json");
    let writes = operations()
        .into_iter()
        .filter(|(method, ..)| !matches!(*method, Method::GET | Method::HEAD));
    for (method, path, _) in writes {
        for (at, body) in bodies().into_iter().enumerate() {
            let path = filled(&path.replace("{action}", "inspect"), "lab");
            let reply = admin.send(method.clone(), &path, body).await;
            judge(&reply, &format!("{method} {path} with body {at}"));
        }
    }
}

#[tokio::test]
async fn no_header_and_no_cursor_is_a_bug() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    for (name, value) in [
        ("if-match", "\"9223372036854775808\""),
        ("if-match", "\"-9223372036854775808\""),
        ("if-none-match", "\"1\""),
        ("idempotency-key", ""),
        ("x-request-id", "a b"),
        ("last-event-id", "9223372036854775808"),
        ("accept", "text/event-stream;q=0"),
        ("content-type", "application/json; charset=latin1"),
    ] {
        let odd = admin.header(name, value);
        judge(
            &odd.put("/v1/sites/lab", &json!({ "spec": {} })).await,
            name,
        );
        judge(
            &odd.post("/v1/claims", &json!({ "spec": { "pool": "gpu" } }))
                .await,
            name,
        );
    }
    let long = admin.header("idempotency-key", &"k".repeat(129));
    assert_eq!(long.post("/v1/claims", &json!({})).await.problem().0, 400);
    // A token of another list, cut, or with a byte outside of every name.
    let page = admin.get("/v1/sites?limit=1").await.expect(200);
    assert_eq!(page.body["next_page_token"], Value::Null);
    admin
        .put("/v1/sites/other", &json!({ "spec": {} }))
        .await
        .expect(201);
    let token = admin.get("/v1/sites?limit=1").await.expect(200).body["next_page_token"]
        .as_str()
        .unwrap()
        .to_owned();
    for bad in [
        &token[1..],
        &token[..token.len() - 3],
        &format!("{token}AA"),
        "%00",
        "====",
        &"A".repeat(4000),
    ] {
        let reply = admin
            .get(&format!("/v1/sites?limit=1&page_token={bad}"))
            .await;
        judge(&reply, bad);
    }
    assert_eq!(
        admin
            .get(&format!("/v1/racks?page_token={token}"))
            .await
            .problem(),
        (400, "invalid_request", "page_token")
    );
    let filtered = admin
        .get(&format!("/v1/sites?filter=label.a%3Db&page_token={token}"))
        .await;
    assert_eq!(
        filtered.problem(),
        (400, "invalid_request", "page_token"),
        "bound to its filter"
    );
}

#[tokio::test]
async fn an_unreadable_form_is_answered_with_a_page() {
    let server = Server::start().await;
    const FORM: &str = "application/x-www-form-urlencoded";
    for (kind, body, status, reason) in [
        ("application/json", "{\"name\": \"%00\"}", 400, FORM),
        (FORM, "name=a%00b&password=c", 400, "U+0000"),
        (FORM, "name=a", 400, "missing field `password`"),
        (
            FORM,
            "name=a&name=b&password=c",
            400,
            "duplicate field `name`",
        ),
    ] {
        let browser = server
            .nobody()
            .header("content-type", kind)
            .header("accept", "text/html");
        let sent = browser.send(Method::POST, "/sign-in", body.into()).await;
        let text = sent.expect(status).text;
        let is_page = text.contains("<!doctype html>") || text.contains("<!DOCTYPE html>");
        assert!(is_page && text.contains(reason), "{body}: {text}");
    }
}
