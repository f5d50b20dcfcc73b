//! Webhooks against a receiver on the loopback that fails, hangs, redirects and goes away.

mod answers; // What receivers ask for, and who they are
mod receiver; // Somebody else's server

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use muster_core::clock::Clock;
use muster_server::outbound::policy::Policy;
use muster_server::outbound::{Names, Outbound};
use muster_server::{audit, tasks};
use serde_json::{Value, json};

use self::receiver::{Answer, Receiver, Taken};
use crate::support::fleet;
use crate::support::server::{Caller, START, Server};

/// 32 bytes in base64.
const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER: &str = "whsec_Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";

fn spec(receiver: &Receiver, topics: &[&str]) -> Value {
    json!({ "spec": { "url": receiver.url("/hook"), "topics": topics, "secret": SECRET } })
}

/// A receiver, and a webhook that leads there.
async fn hooked(admin: &Caller, topics: &[&str]) -> Receiver {
    let receiver = Receiver::start().await;
    admin
        .put("/v1/webhooks/ops", &spec(&receiver, topics))
        .await
        .expect(201);
    receiver
}

/// Something that happens: a site, which is an event.
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

/// What the history has of a kind, in order.
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

#[tokio::test]
async fn events_come_in_order_and_go_on_after_a_restart_where_they_were() {
    let server = Server::start().await;
    let admin = server.admin().await;
    site(&admin, "before").await;
    let receiver = hooked(&admin, &["object.created"]).await;
    for number in 0..5 {
        site(&admin, &format!("s{number}")).await;
    }
    round(&server).await;
    // Another kind of event, and a server that begins anew on the same database.
    admin
        .put(
            "/v1/sites/s1",
            &json!({ "labels": { "a": "b" }, "spec": {} }),
        )
        .await
        .expect(200);
    site(&admin, "s5").await;
    let next = Server::on(
        server.app.pool.clone(),
        Clock::manual(START.parse().unwrap()),
    )
    .await;
    drop(server);
    round(&next).await;
    let taken = receiver.taken();
    let admin = next.admin().await;
    let created = history(&admin, "object.created").await;
    // Not the site before it; the webhook's own is after its beginning.
    assert_eq!(seqs(&taken), created[1..], "{taken:?}");
    let last = &taken.last().unwrap().event;
    assert_eq!(
        (&last["specversion"], &last["type"]),
        (&json!("1.0"), &json!("muster.object.created"))
    );
    assert_eq!(
        (&last["id"], &last["source"]),
        (&last["data"]["id"], &json!("/v1/events"))
    );
    assert_eq!(last["time"], last["data"]["at"]);
    assert_eq!(
        last["subject"],
        format!("objects/{}", last["data"]["object"].as_str().unwrap())
    );
    assert_eq!(
        taken[0].header("content-type"),
        "application/cloudevents+json"
    );
    assert_eq!(status(&admin).await["state"], "active");
    round(&next).await;
    assert_eq!(receiver.taken().len(), taken.len(), "nothing is left");
}

#[tokio::test]
async fn a_receiver_that_fails_twice_gets_the_same_once_more_and_then_the_rest() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let receiver = hooked(&admin, &["object.changed"]).await;
    receiver.answer([Answer::Status(500), Answer::Status(503)]);
    site(&admin, "lab").await;
    for label in ["a", "b"] {
        admin
            .patch("/v1/sites/lab", &json!({ "labels": { "x": label } }))
            .await
            .expect(200);
    }
    round(&server).await;
    let failing = status(&admin).await;
    assert_eq!(
        (&failing["state"], &failing["attempts"]),
        (&json!("failing"), &json!(1)),
        "{failing}"
    );
    assert_eq!(failing["because"], "answered 500");
    round(&server).await;
    assert_eq!(receiver.taken().len(), 1, "not before its time");
    for expected in [2, 4] {
        server.app.clock.advance(SignedDuration::from_secs(15));
        round(&server).await;
        assert_eq!(receiver.taken().len(), expected);
    }
    let taken = receiver.taken();
    let changed = history(&admin, "object.changed").await;
    assert_eq!(
        seqs(&taken),
        [changed[0], changed[0], changed[0], changed[1]]
    );
    let ids: BTreeSet<&str> = taken[..3]
        .iter()
        .map(|one| one.header("webhook-id"))
        .collect();
    assert_eq!(ids.len(), 1, "the same has the same id");
    assert_ne!(
        taken[0].header("webhook-timestamp"),
        taken[2].header("webhook-timestamp")
    );
    let tried: Vec<(Value, Value)> = deliveries(&admin)
        .await
        .iter()
        .map(|one| (one["attempt"].clone(), one["status"].clone()))
        .collect();
    assert_eq!(
        tried,
        [(1, 200), (3, 200), (2, 503), (1, 500)]
            .map(|(attempt, status)| (json!(attempt), json!(status)))
    );
    assert_eq!(status(&admin).await["state"], "active");
}

#[tokio::test]
async fn one_that_hangs_is_given_up_on_in_time_and_keeps_nobody_waiting() {
    let mut server = Server::start().await;
    let allowed = Policy {
        allowed: vec!["127.0.0.1/32".parse().unwrap()],
    };
    let short = Outbound::new(allowed, Names::System, Duration::from_secs(2));
    server.app.outbound = Arc::new(short);
    let admin = server.admin().await;
    let stuck = hooked(&admin, &["object.created"]).await;
    stuck.answer([Answer::Never, Answer::Endless]);
    let other = Receiver::start().await;
    admin
        .put("/v1/webhooks/other", &spec(&other, &["object.created"]))
        .await
        .expect(201);
    site(&admin, "lab").await;
    round(&server).await;
    assert_eq!(
        seqs(&other.taken()).len(),
        2,
        "its own creation and the site"
    );
    let hung = status(&admin).await;
    assert!(
        hung["because"]
            .as_str()
            .unwrap()
            .starts_with("no whole answer within"),
        "{hung}"
    );
    // An answer that never ends has a status, and is cut off.
    server.app.clock.advance(SignedDuration::from_secs(60));
    round(&server).await;
    assert_eq!(status(&admin).await["state"], "active");
    assert!(
        deliveries(&admin)
            .await
            .iter()
            .all(|one| !one.to_string().contains("endless"))
    );
}

#[tokio::test]
async fn a_receiver_that_is_gone_stops_its_webhook_until_somebody_resumes_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let receiver = hooked(&admin, &["object.created"]).await;
    receiver.answer([Answer::Status(410)]);
    let watching = Receiver::start().await;
    admin
        .put("/v1/webhooks/watch", &spec(&watching, &["webhook.*"]))
        .await
        .expect(201);
    round(&server).await;
    site(&admin, "lab").await;
    server.app.clock.advance(SignedDuration::from_hours(12));
    round(&server).await;
    round(&server).await;
    let stopped = status(&admin).await;
    assert_eq!(
        (&stopped["state"], receiver.taken().len()),
        (&json!("stopped"), 1),
        "{stopped}"
    );
    assert!(
        stopped["because"].as_str().unwrap().contains("410"),
        "{stopped}"
    );
    let told = watching.taken();
    assert_eq!(
        (told.len(), &told[0].event["type"]),
        (1, &json!("muster.webhook.stopped"))
    );
    // A write that changes nothing does not resume it; a person does, and nothing was skipped.
    admin
        .put("/v1/webhooks/ops", &spec(&receiver, &["object.created"]))
        .await
        .expect(200);
    assert_eq!(status(&admin).await["state"], "stopped");
    admin
        .post("/v1/webhooks/ops/actions/resume", &json!({}))
        .await
        .expect(200);
    round(&server).await;
    let taken = seqs(&receiver.taken());
    assert_eq!(
        taken[1..],
        history(&admin, "object.created").await,
        "{taken:?}"
    );
}

#[tokio::test]
async fn a_day_of_failed_deliveries_stops_a_webhook_until_a_change() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let receiver = hooked(&admin, &["object.created"]).await;
    receiver.answer(vec![Answer::Status(500); 100]);
    let mut tries = 0;
    // A token lasts no longer than the day.
    while status(&server.admin().await).await["state"] != "stopped" {
        tries += 1;
        assert!(tries < 60, "it is tried for ever");
        round(&server).await;
        server.app.clock.advance(SignedDuration::from_mins(75));
    }
    assert_eq!(receiver.taken().len(), tries);
    assert!(
        (18..=22).contains(&tries),
        "a day of hours and a quarter: {tries}"
    );
    let admin = server.admin().await;
    assert_eq!(history(&admin, "webhook.stopped").await.len(), 1);
    let elsewhere = Receiver::start().await;
    admin
        .patch(
            "/v1/webhooks/ops",
            &json!({ "spec": { "url": elsewhere.url("/new") } }),
        )
        .await
        .expect(200);
    round(&server).await;
    assert_eq!(
        seqs(&elsewhere.taken()),
        history(&admin, "object.created").await
    );
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let receiver = hooked(&admin, &["object.created"]).await;
    let inside = Receiver::start().await;
    receiver.answer([Answer::Redirect(inside.url("/inside"))]);
    round(&server).await;
    assert_eq!((receiver.taken().len(), inside.taken().len()), (1, 0));
    let because = status(&admin).await["because"].clone();
    assert_eq!(because, "answered 307: no redirect is followed");
}

#[tokio::test]
async fn what_only_the_server_can_reach_is_refused_when_written_and_when_called() {
    let mut server = Server::start().await;
    let admin = server.admin().await;
    for url in [
        "https://169.254.169.254/latest/meta-data",
        "http://169.254.169.254/",
        "https://10.0.0.1/",
        "https://[::1]/",
        "https://[fd00:ec2::254]/",
        "https://[::ffff:169.254.169.254]/",
        "https://2852039166/",
        "https://127.0.0.2/",
    ] {
        let body = json!({ "spec": { "url": url, "topics": ["*"], "secret": SECRET } });
        let refused = admin.put("/v1/webhooks/ops", &body).await;
        assert_eq!(
            refused.problem(),
            (422, "unprocessable", "/spec/url"),
            "{url}: {}",
            refused.text
        );
        assert_eq!(
            refused.body["errors"][0]["code"], "address_refused",
            "{url}"
        );
    }
    for url in [
        "ftp://example.org/",
        "https://user:pw@example.org/",
        "https://example.org/#x",
        "/hook",
        "https://",
    ] {
        let body = json!({ "spec": { "url": url, "topics": ["*"], "secret": SECRET } });
        let refused = admin.put("/v1/webhooks/ops", &body).await;
        assert_eq!(
            refused.body["errors"][0]["code"], "invalid_url",
            "{url}: {}",
            refused.text
        );
    }
    // A name that leads there is told when it is called; the receiver on the loopback, under the other name, hears nothing.
    let receiver = Receiver::start().await;
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let names = [(
        "hooks.test".to_owned(),
        vec![address("127.0.0.1"), address("169.254.169.254")],
    )];
    let allowed = Policy {
        allowed: vec!["127.0.0.1/32".parse().unwrap()],
    };
    let outbound = Outbound::new(allowed, Names::Fixed(names.into()), Duration::from_secs(10));
    server.app.outbound = Arc::new(outbound);
    let url = receiver.url("/hook").replace("127.0.0.1", "hooks.test");
    let body = json!({ "spec": { "url": url, "topics": ["object.*"], "secret": SECRET } });
    admin.put("/v1/webhooks/ops", &body).await.expect(201);
    round(&server).await;
    let because = status(&admin).await["because"].as_str().unwrap().to_owned();
    assert!(
        because.contains("169.254.169.254 is not called"),
        "{because}"
    );
    assert!(receiver.taken().is_empty());
}

/// Runs the example of docs/webhooks.md.
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

#[tokio::test]
async fn a_delivery_is_verified_as_documented_with_both_secrets() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let receiver = hooked(&admin, &["object.created"]).await;
    round(&server).await;
    let one = receiver.taken().remove(0);
    assert!(verifies(SECRET, &one));
    assert!(!verifies(OTHER, &one));
    let changed = Taken {
        body: one.body.replace("object.created", "object.removed"),
        ..one.clone()
    };
    assert!(!verifies(SECRET, &changed));
    let mut later = one.clone();
    later.headers.insert("webhook-timestamp".into(), "1".into());
    assert!(!verifies(SECRET, &later), "the time is signed as well");

    let hash = status(&admin).await["secret_hash"].clone();
    let both = format!("{OTHER} {SECRET}");
    let answered = admin
        .patch("/v1/webhooks/ops", &json!({ "spec": { "secret": both } }))
        .await
        .expect(200);
    assert!(!answered.text.contains("whsec_"), "{}", answered.text);
    site(&admin, "lab").await;
    round(&server).await;
    let two = receiver.taken().remove(1);
    assert!(verifies(SECRET, &two) && verifies(OTHER, &two));
    assert_ne!(status(&admin).await["secret_hash"], hash);
    for wrong in ["hunter2", "whsec_c2hvcnQ=", ""] {
        let refused = admin
            .patch("/v1/webhooks/ops", &json!({ "spec": { "secret": wrong } }))
            .await;
        assert_eq!(
            refused.problem(),
            (422, "unprocessable", "/spec/secret"),
            "{}",
            refused.text
        );
    }
    let unsigned = json!({ "spec": { "url": receiver.url("/hook"), "topics": ["*"] } });
    assert_eq!(
        admin.put("/v1/webhooks/none", &unsigned).await.problem(),
        (422, "unprocessable", "/spec/secret")
    );
}

#[tokio::test]
async fn two_servers_tell_each_event_once_and_whoever_takes_over_goes_on() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let receiver = hooked(&admin, &["object.created"]).await;
    let second = Server::on(server.app.pool.clone(), server.app.clock.clone()).await;
    for number in 0..40 {
        site(&admin, &format!("s{number}")).await;
        if number % 4 == 0 {
            let (one, two) = tokio::join!(
                tasks::webhooks::round(&server.app),
                tasks::webhooks::round(&second.app)
            );
            assert!(one.unwrap() + two.unwrap() <= 1, "both took it");
        }
    }
    round(&second).await;
    assert_eq!(
        seqs(&receiver.taken()),
        history(&admin, "object.created").await
    );
    // A sender that froze holds it until its lease is over, and nobody longer.
    let now = server.app.clock.now();
    let mut conn = server.app.pool.acquire().await.unwrap();
    site(&admin, "late").await;
    let frozen = uuid::Uuid::new_v4();
    let until = now + SignedDuration::from_secs(60);
    let taken = muster_server::db::webhooks::lease(&mut conn, frozen, now, until, 10)
        .await
        .unwrap();
    assert_eq!(taken.len(), 1);
    round(&second).await;
    assert_eq!(receiver.taken().len(), 41);
    server.app.clock.advance(SignedDuration::from_secs(61));
    round(&second).await;
    assert_eq!(receiver.taken().len(), 42);
    let held = muster_server::db::webhooks::find_held(&mut conn, taken[0], frozen)
        .await
        .unwrap();
    assert!(held.is_none(), "the frozen one writes nothing any more");
}

#[tokio::test]
async fn only_what_is_wanted_is_told_and_a_disabled_one_is_told_afterwards() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    site(&admin, "far").await;
    let receiver = Receiver::start().await;
    let body = |enabled: bool| {
        json!({ "spec": { "url": receiver.url("/hook"), "topics": ["node.*", "object.*"], "site": "lab", "enabled": enabled,
                          "secret": SECRET } })
    };
    admin
        .put("/v1/webhooks/ops", &body(false))
        .await
        .expect(201);
    admin.put("/v1/nodes/n1", &fleet::node(1)).await.expect(201);
    admin
        .put(
            "/v1/racks/r9",
            &json!({ "spec": { "site": "far", "units": 1, "power_budget_w": 1 } }),
        )
        .await
        .expect(201);
    admin
        .patch("/v1/images/debian-12", &json!({ "labels": { "a": "b" } }))
        .await
        .expect(200);
    round(&server).await;
    assert_eq!(
        (
            receiver.taken().len(),
            status(&admin).await["state"].clone()
        ),
        (0, json!("disabled"))
    );
    assert_eq!(
        admin.expecting(1).delete("/v1/sites/lab").await.problem().1,
        "in_use",
        "it names the site"
    );
    admin.put("/v1/webhooks/ops", &body(true)).await.expect(200);
    round(&server).await;
    let kinds: Vec<String> = receiver
        .taken()
        .iter()
        .map(|one| one.event["data"]["summary"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        !kinds.is_empty()
            && kinds
                .iter()
                .all(|told| told.contains("n1") || told.contains("webhook ops")),
        "{kinds:?}"
    );
    assert_eq!(
        status(&admin).await["delivered_seq"],
        admin.get("/v1/events?limit=1000").await.body["last_seq"]
    );
}

#[tokio::test]
async fn pings_and_redeliveries_are_sent_on_request_and_the_log_is_bounded() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let receiver = hooked(&admin, &["object.created"]).await;
    admin
        .patch("/v1/webhooks/ops", &json!({ "spec": { "enabled": false } }))
        .await
        .expect(200);
    let keyed = admin.header("idempotency-key", "once");
    let asked = keyed
        .post("/v1/webhooks/ops/actions/test", &json!({}))
        .await
        .expect(201);
    let again = keyed
        .post("/v1/webhooks/ops/actions/test", &json!({}))
        .await
        .expect(201);
    assert_eq!(asked.body["id"], again.body["id"], "asked once");
    assert_eq!(asked.body["state"], "queued");
    round(&server).await;
    let ping = receiver.taken().remove(0);
    assert_eq!(
        (&ping.event["type"], &ping.event["data"]["webhook"]),
        (&json!("muster.webhook.ping"), &json!("ops"))
    );
    assert!(verifies(SECRET, &ping));
    admin
        .patch("/v1/webhooks/ops", &json!({ "spec": { "enabled": true } }))
        .await
        .expect(200);
    receiver.answer([Answer::Status(500)]);
    round(&server).await;
    let failed = deliveries(&admin).await.remove(0);
    assert_eq!(
        (&failed["state"], &failed["attempt"]),
        (&json!("failed"), &json!(1)),
        "{failed}"
    );
    // It waits for its next attempt; what a person asks for does not.
    let body = json!({ "delivery": failed["id"] });
    admin
        .post("/v1/webhooks/ops/actions/redeliver", &body)
        .await
        .expect(201);
    round(&server).await;
    let taken = receiver.taken();
    assert_eq!(taken.len(), 3);
    assert_eq!(taken[1].header("webhook-id"), taken[2].header("webhook-id"));
    let log = deliveries(&admin).await;
    assert_eq!(
        (&log[0]["reason"], &log[0]["state"], log.len()),
        (&json!("redelivery"), &json!("delivered"), 3)
    );
    let unknown = json!({ "delivery": uuid::Uuid::nil() });
    let refused = admin
        .post("/v1/webhooks/ops/actions/redeliver", &unknown)
        .await;
    assert_eq!(refused.problem(), (422, "unprocessable", "/delivery"));
    for _ in 0..20 {
        admin
            .post("/v1/webhooks/ops/actions/test", &json!({}))
            .await
            .expect(201);
    }
    assert_eq!(
        admin
            .post("/v1/webhooks/ops/actions/test", &json!({}))
            .await
            .problem()
            .1,
        "queue_full"
    );

    server.app.clock.advance(SignedDuration::from_secs(60));
    for number in 0..tasks::webhooks::KEPT {
        site(&admin, &format!("s{number}")).await;
    }
    round(&server).await;
    let page = admin
        .get("/v1/webhooks/ops/deliveries?limit=150")
        .await
        .expect(200);
    let token = page.body["next_page_token"].as_str().unwrap();
    let rest = admin
        .get(&format!(
            "/v1/webhooks/ops/deliveries?limit=150&page_token={token}"
        ))
        .await
        .expect(200);
    let count = |page: &Value| page["items"].as_array().unwrap().len();
    assert_eq!((count(&page.body), count(&rest.body)), (150, 50));
    assert!(rest.body["next_page_token"].is_null());
}

#[tokio::test]
async fn seals_are_sent_by_a_webhook_without_sealing_themselves() {
    let server = Server::start().await;
    let admin = server.admin().await;
    site(&admin, "lab").await;
    tasks::seals::round(&server.app, 0).await.unwrap();
    assert_eq!(
        history(&admin, "audit.sealed").await.len(),
        0,
        "nobody wants to hear of it"
    );
    let receiver = hooked(&admin, &["audit.sealed"]).await;
    let mut anchored = 0;
    for number in 0..3 {
        site(&admin, &format!("s{number}")).await;
        anchored = tasks::seals::round(&server.app, anchored).await.unwrap();
        round(&server).await;
    }
    // One more seal for the last of these events; then nothing is left to seal.
    for _ in 0..3 {
        anchored = tasks::seals::round(&server.app, anchored).await.unwrap();
    }
    let anchors: Vec<Value> = receiver
        .taken()
        .iter()
        .map(|one| one.event["data"]["detail"].clone())
        .collect();
    assert_eq!((anchors.len(), anchored), (3, 5), "{anchors:?}");
    // What the receiver kept is a file of anchors like the server's own.
    let lines: Vec<String> = anchors.iter().map(|anchor| format!("{anchor}\n")).collect();
    let kept = server.data_dir.path().join("kept-elsewhere");
    std::fs::write(&kept, lines.concat()).unwrap();
    let read = audit::read_anchors(&kept).unwrap();
    let report = audit::verify(&mut server.app.pool.acquire().await.unwrap(), &read)
        .await
        .unwrap();
    assert_eq!(
        (report.whole, report.anchors, report.unsealed),
        (true, 3, 0),
        "{report:?}"
    );
    let forged: String = lines
        .concat()
        .replace(anchors[1]["hash"].as_str().unwrap(), &"0".repeat(64));
    std::fs::write(&kept, forged).unwrap();
    let read = audit::read_anchors(&kept).unwrap();
    let report = audit::verify(&mut server.app.pool.acquire().await.unwrap(), &read)
        .await
        .unwrap();
    assert!(!report.whole);
}
