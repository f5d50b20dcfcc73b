//! Receivers that hang, fail for a day, or are gone.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use muster_server::outbound::policy::Policy;
use muster_server::outbound::{Names, Outbound};
use serde_json::json;

use super::receiver::{Answer, Receiver};
use super::{deliveries, history, hooked, round, seqs, site, spec, status};
use crate::support::server::Server;

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
    // An endless answer has a status, and the body is cut off.
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
    // A write without a change leaves the webhook stopped. After the action `resume` of a
    // person, no event is skipped.
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
