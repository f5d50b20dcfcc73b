//! Refused addresses, redirects, and signatures of deliveries.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use muster_server::outbound::policy::Policy;
use muster_server::outbound::{Names, Outbound};
use serde_json::json;

use super::receiver::{Answer, Receiver, Taken};
use super::{SECRET, hooked, round, site, status, verifies};
use crate::support::server::Server;

/// 32 other bytes in base64.
const OTHER: &str = "whsec_Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";

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
    // The address of a name is checked at the call. The name `hooks.test` has a refused address,
    // and the receiver on the loopback gets no request.
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
