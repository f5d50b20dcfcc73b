//! Pings and redeliveries on request, the bound of the queue, and the bound of the log.

use jiff::SignedDuration;
use muster_server::tasks;
use serde_json::{Value, json};

use super::receiver::Answer;
use super::{SECRET, deliveries, hooked, round, site, verifies};
use crate::support::server::{Caller, Server};

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
    // The next attempt is not due yet. A redelivery on request is sent without a wait.
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
    fill_queue(&admin).await;
    fill_log(&server, &admin).await;
}

/// Requests pings up to the bound of the queue. The next ping is refused.
async fn fill_queue(admin: &Caller) {
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
}

/// Sends more events than the log of attempts keeps, and reads the whole log in two pages.
async fn fill_log(server: &Server, admin: &Caller) {
    server.app.clock.advance(SignedDuration::from_secs(60));
    for number in 0..tasks::webhooks::KEPT {
        site(admin, &format!("s{number}")).await;
    }
    round(server).await;
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
