//! Order of events: after a restart, after failed attempts, and from two servers.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use muster_core::clock::Clock;
use muster_server::tasks;
use serde_json::{Value, json};

use super::receiver::Answer;
use super::{deliveries, history, hooked, round, seqs, site, status};
use crate::support::server::{START, Server};

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
    // An event of another kind, and a second server on the same database.
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
    // The site `before` is older than the webhook and is not sent. The webhook's creation is sent.
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
    // A frozen sender holds the webhook until the end of the lease.
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
