//! Webhooks against a receiver on the loopback that fails, hangs, redirects and goes away.

mod answers; // `Retry-After`, and certificates of receivers
mod failures; // Receivers that hang, fail for a day, or are gone
mod order; // Order of events, retries, and two servers
mod receiver; // The receiver of a webhook
mod requests; // Pings and redeliveries on request, and the log of attempts
mod topics; // Events selected by a webhook, and seals
mod trust; // Refused addresses, redirects, and signatures

use std::io::Write as _;
use std::process::{Command, Stdio};

use muster_server::tasks;
use serde_json::{Value, json};

use self::receiver::{Receiver, Taken};
use crate::support::server::{Caller, Server};

/// 32 bytes in base64.
const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn spec(receiver: &Receiver, topics: &[&str]) -> Value {
    json!({ "spec": { "url": receiver.url("/hook"), "topics": topics, "secret": SECRET } })
}

/// Starts a receiver, and declares a webhook with the receiver's URL.
async fn hooked(admin: &Caller, topics: &[&str]) -> Receiver {
    let receiver = Receiver::start().await;
    admin
        .put("/v1/webhooks/ops", &spec(&receiver, topics))
        .await
        .expect(201);
    receiver
}

/// Declares a site. The declaration is an event.
async fn site(admin: &Caller, name: &str) {
    admin
        .put(&format!("/v1/sites/{name}"), &json!({ "spec": {} }))
        .await
        .expect(201);
}

async fn status(admin: &Caller) -> Value {
    admin.get("/v1/webhooks/ops").await.expect(200).body["status"].clone()
}

async fn deliveries(admin: &Caller) -> Vec<Value> {
    admin
        .get("/v1/webhooks/ops/deliveries")
        .await
        .expect(200)
        .body["items"]
        .as_array()
        .unwrap()
        .clone()
}

async fn round(server: &Server) {
    tasks::webhooks::round(&server.app).await.unwrap();
}

/// Returns the sequence numbers of all events of a kind, in order.
async fn history(admin: &Caller, kind: &str) -> Vec<i64> {
    let events = admin.get("/v1/events?limit=1000").await.expect(200);
    let of_kind = events.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["kind"] == kind);
    of_kind
        .map(|event| event["seq"].as_i64().unwrap())
        .collect()
}

fn seqs(taken: &[Taken]) -> Vec<i64> {
    taken
        .iter()
        .map(|one| one.event["data"]["seq"].as_i64().unwrap())
        .collect()
}

/// Verifies a delivery by the Python example of `docs/webhooks.md`.
fn verifies(secret: &str, taken: &Taken) -> bool {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/webhooks.md"))
        .unwrap();
    let example = text
        .split("```python\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let call = "\nimport json, sys\nasked = json.load(sys.stdin)\n\
                print(verify(asked['secret'], asked['headers'], asked['body'].encode(), asked['now']))\n";
    let asked = json!({
        "secret": secret, "headers": taken.headers, "body": taken.body,
        "now": taken.header("webhook-timestamp").parse::<i64>().unwrap() + 10,
    });
    let mut python = Command::new("python3")
        .args(["-c", &format!("{example}{call}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python
        .stdin
        .take()
        .unwrap()
        .write_all(asked.to_string().as_bytes())
        .unwrap();
    let done = python.wait_with_output().unwrap();
    assert!(done.status.success());
    String::from_utf8_lossy(&done.stdout).trim() == "True"
}
