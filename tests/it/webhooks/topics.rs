//! Events selected by topic and site, a disabled webhook, and seals as events.

use muster_server::{audit, tasks};
use serde_json::{Value, json};

use super::receiver::Receiver;
use super::{SECRET, history, hooked, round, site, status};
use crate::support::fleet;
use crate::support::server::Server;

/// The anchors of a file, without exported events.
fn copies(anchors: &[Result<audit::Anchor, i64>]) -> audit::Copies<'_> {
    audit::Copies {
        anchors,
        exports: None,
    }
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
    // A further seal covers the last of the events. Afterwards no event is left to seal.
    for _ in 0..3 {
        anchored = tasks::seals::round(&server.app, anchored).await.unwrap();
    }
    let anchors: Vec<Value> = receiver
        .taken()
        .iter()
        .map(|one| one.event["data"]["detail"].clone())
        .collect();
    assert_eq!((anchors.len(), anchored), (3, 5), "{anchors:?}");
    // The anchors of the receiver, as a file, are read like the server's file of anchors.
    let lines: Vec<String> = anchors.iter().map(|anchor| format!("{anchor}\n")).collect();
    let kept = server.data_dir.path().join("kept-elsewhere");
    std::fs::write(&kept, lines.concat()).unwrap();
    let read = audit::read_anchors(&kept).unwrap();
    let report = audit::verify(&mut server.app.pool.acquire().await.unwrap(), copies(&read))
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
    let report = audit::verify(&mut server.app.pool.acquire().await.unwrap(), copies(&read))
        .await
        .unwrap();
    assert!(!report.whole);
}
