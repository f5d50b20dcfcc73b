//! Receivers that ask for time, and receivers that say by TLS who they are.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use muster_server::outbound::policy::Policy;
use muster_server::outbound::{Names, Outbound};
use serde_json::json;

use super::receiver::{Answer, Receiver};
use super::{SECRET, hooked, round, site, spec, status, verifies};
use crate::support::server::Server;

/// As it asks, where that is later than it would be tried anyway, and never later than an hour.
#[tokio::test]
async fn a_receiver_that_asks_for_time_gets_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let receiver = hooked(&admin, &["object.created"]).await;
    let date = (server.app.clock.now() + SignedDuration::from_secs(302 + 900))
        .strftime("%a, %d %b %Y %T GMT");
    let asked = [
        "300".to_owned(),
        date.to_string(),
        "1".into(),
        "86400".into(),
    ]
    .map(Answer::Later);
    // It is told of itself first, and of the site with what it takes at last.
    receiver.answer(asked);
    site(&admin, "lab").await;
    round(&server).await;
    for (wait, tries) in [
        (299, 1),
        (2, 2),
        (899, 2),
        (3, 3),
        (15, 3),
        (10, 4),
        (3598, 4),
        (3, 6),
    ] {
        server.app.clock.advance(SignedDuration::from_secs(wait));
        round(&server).await;
        assert_eq!(receiver.taken().len(), tries, "{wait} s later");
    }
    assert_eq!(status(&admin).await["state"], "active");
}

#[tokio::test]
async fn a_receiver_certified_by_a_configured_authority_is_called() {
    let (receiver, root) = Receiver::certified().await;
    let (_, other) = Receiver::certified().await;
    let outbound = || {
        let allowed = Policy {
            allowed: vec!["127.0.0.1/32".parse().unwrap()],
        };
        let names = [("hooks.test".to_owned(), vec!["127.0.0.1".parse().unwrap()])];
        Outbound::new(allowed, Names::Fixed(names.into()), Duration::from_secs(10))
    };
    assert!(outbound().trusting(b"no certificate").is_err());
    let mut server = Server::start().await;
    let admin = server.admin().await;
    admin
        .put("/v1/webhooks/ops", &spec(&receiver, &["object.created"]))
        .await
        .expect(201);
    site(&admin, "lab").await;
    for stranger in [outbound(), outbound().trusting(other.as_bytes()).unwrap()] {
        server.app.outbound = Arc::new(stranger);
        round(&server).await;
        let because = status(&admin).await["because"].as_str().unwrap().to_owned();
        assert!(
            because.starts_with("no connection: ") && because.contains("ertificate"),
            "{because}"
        );
        server.app.clock.advance(SignedDuration::from_secs(15));
    }
    assert_eq!(
        receiver.taken().len(),
        0,
        "nothing is said to whom nobody vouches for"
    );
    server.app.outbound = Arc::new(outbound().trusting(root.as_bytes()).unwrap());
    round(&server).await;
    let taken = receiver.taken();
    assert_eq!(
        (taken.len(), status(&admin).await["state"].clone()),
        (2, json!("active"))
    );
    assert!(verifies(SECRET, &taken[0]));
    // Its certificate is of this name and of no other.
    let elsewhere = receiver.url("/hook").replace("hooks.test", "127.0.0.1");
    let body =
        json!({ "spec": { "url": elsewhere, "topics": ["object.created"], "secret": SECRET } });
    admin.put("/v1/webhooks/other", &body).await.expect(201);
    site(&admin, "far").await;
    round(&server).await;
    let because = admin.get("/v1/webhooks/other").await.body["status"]["because"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        because,
        "no connection: the certificate is for another name"
    );
}
