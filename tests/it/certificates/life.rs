//! The life of a certificate: renewal, expiry, removal of the agent, and reuse of the agent's name.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_agent::work::client::Client;
use muster_core::clock::Clock;
use muster_core::values::Secret;
use muster_core::wire::PROTOCOL;
use muster_core::wire::calls::Hello;
use muster_server::tasks::certificates;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::routes::{ROUTES, ask};
use super::{Host, LIMIT, code, events, server_and_door, site, token};
use crate::support::agents::Door;
use crate::support::server::Server;

#[tokio::test]
async fn a_certificate_is_renewed_at_half_life_and_the_former_stays_valid() {
    let (server, admin, door) = server_and_door().await;
    let clock = server.app.clock.clone();
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    let (first, former) = (
        host.identity.issued().unwrap(),
        Client::new(&door.url, host.identity.tls().unwrap()).unwrap(),
    );
    let life = first.not_after.duration_since(first.not_before);
    assert!(
        life > SignedDuration::from_hours(7 * 24) - SignedDuration::from_mins(5),
        "{life}"
    );
    assert!(clock.now() < first.renew_at());
    clock.advance(first.renew_at().duration_since(clock.now()));
    let renewing = Arc::clone(&host.identity).keep_renewed(host.client.clone(), clock.clone());
    let _renewing = AbortOnDropHandle::new(tokio::spawn(renewing));
    let renewed = tokio::time::timeout(LIMIT, async {
        loop {
            match host.identity.issued() {
                Some(issued) if issued != first => return issued,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let second = renewed.await.unwrap();
    assert!(second.not_after > first.not_after && second.certificate != first.certificate);
    let hello = Hello {
        protocol: PROTOCOL,
        version: "0".into(),
        instance: "a".into(),
    };
    former.hello(&hello).await.unwrap();
    host.hello().await.unwrap();
    let shown = server
        .admin()
        .await
        .get("/v1/sites/lab/agents")
        .await
        .expect(200);
    assert_eq!(
        shown.body["items"][0]["certified_until"],
        json!(second.not_after)
    );
    // A connection from before the certificate's end is refused after the end.
    clock.advance(first.not_after.duration_since(clock.now()));
    let refused = former.hello(&hello).await.unwrap_err();
    assert!(
        refused.to_string().contains("the server's time is"),
        "{refused}"
    );
    assert_eq!(code(Err::<(), _>(refused)), "certificate_expired");
    host.hello().await.unwrap();
}

#[tokio::test]
async fn an_expiring_certificate_emits_an_event_and_allows_enrolment() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    for (days, told) in [(5, 0), (1, 1), (0, 1)] {
        server
            .app
            .clock
            .advance(SignedDuration::from_hours(days * 24));
        certificates::tell_late(&server.app).await.unwrap();
        let admin = server.admin().await;
        assert_eq!(
            events(&admin, "agent.certificate_late").await,
            told,
            "{days}"
        );
    }
    server.app.clock.advance(SignedDuration::from_hours(48));
    assert_eq!(
        code(host.identity.renew(&host.client).await),
        "certificate_expired"
    );
    let again = token(&server.admin().await, "lab", "a").await;
    let host = Host::at(host.dir, &door, &again);
    host.enrol().await.unwrap();
    host.hello().await.unwrap();
}

#[tokio::test]
async fn every_replica_accepts_a_certificate_until_the_agent_is_removed() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    let now = server.app.clock.now();
    let other = Server::on(server.app.pool.clone(), Clock::manual(now)).await;
    let other_door = Door::open(&other.app).await;
    let there = Host::at(host.dir, &other_door, &host.token);
    there.hello().await.unwrap();
    assert_eq!(
        other.app.keys.authorities.now().digests(),
        server.app.keys.authorities.now().digests()
    );
    admin
        .header("if-match", "*")
        .delete("/v1/sites/lab/agents/a")
        .await
        .expect(204);
    assert_eq!(code(there.hello().await), "agent_removed");
    assert_eq!(
        code(
            host.client
                .hello(&Hello {
                    protocol: PROTOCOL,
                    version: "0".into(),
                    instance: "a".into()
                })
                .await
        ),
        "agent_removed"
    );
}

#[tokio::test]
async fn a_certificate_from_the_future_is_named_as_a_clock_that_was_put_back() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    let earlier: Timestamp = server.app.clock.now() - SignedDuration::from_hours(1);
    let restored = Server::on(server.app.pool.clone(), Clock::manual(earlier)).await;
    let other_door = Door::open(&restored.app).await;
    let host = Host::at(host.dir, &other_door, &host.token);
    assert_eq!(code(host.hello().await), "certificate_early");
}

/// A new agent gets the name of a removed agent. The certificate and the tokens of the removed
/// agent are refused.
#[tokio::test]
async fn a_name_is_given_again_and_nothing_of_the_former_goes_with_it() {
    let (server, admin, door) = server_and_door().await;
    site(&admin, "elsewhere").await;
    let used = token(&admin, "lab", "a").await;
    let former = Host::new(&door, &used);
    former.enrol().await.unwrap();
    let epoch = former.hello().await.unwrap();
    // The name of an agent with a certificate is taken in every site.
    for site in ["lab", "elsewhere"] {
        let taken = admin
            .post(&format!("/v1/sites/{site}/agents"), &json!({ "name": "a" }))
            .await;
        assert_eq!(taken.problem().1, "name_taken", "{site}");
    }
    let never = token(&admin, "lab", "b").await;
    let taken = admin
        .post("/v1/sites/elsewhere/agents", &json!({ "name": "b" }))
        .await;
    assert_eq!(
        taken.problem().1,
        "name_taken",
        "one without a certificate is not moved to another site either"
    );
    for name in ["a", "b"] {
        admin
            .header("if-match", "*")
            .delete(&format!("/v1/sites/lab/agents/{name}"))
            .await
            .expect(204);
    }
    let late = token(&admin, "elsewhere", "b").await;
    let fresh = token(&admin, "elsewhere", "a").await;
    let next = Host::new(&door, &fresh);
    next.enrol().await.unwrap();
    next.hello().await.unwrap();
    let issued = next.identity.issued().unwrap();
    assert_eq!(
        (
            issued.site.as_str(),
            former.identity.issued().unwrap().site.as_str()
        ),
        ("elsewhere", "lab")
    );
    assert_ne!(
        issued.agent,
        former.identity.issued().unwrap().agent,
        "it is somebody else"
    );
    expect_refused(&former, &door, (&used, &never), epoch).await;
    // The next agent's token works once, for a single key, within a day.
    assert_eq!(code(Host::new(&door, &fresh).enrol().await), "token_used");
    server.app.clock.advance(SignedDuration::from_hours(25));
    assert_eq!(code(Host::new(&door, &late).enrol().await), "token_expired");
    next.hello().await.unwrap();
    let listed = server
        .admin()
        .await
        .get("/v1/sites/elsewhere/agents")
        .await
        .expect(200);
    let names: Vec<_> = listed.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| agent["name"].clone())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

/// The certificate, the renewal and the tokens of a removed agent are refused.
async fn expect_refused(former: &Host, door: &Door, (used, never): (&Secret, &Secret), epoch: i64) {
    assert_eq!(code(former.hello().await), "agent_removed");
    assert_eq!(
        code(former.identity.renew(&former.client).await),
        "agent_removed"
    );
    assert_eq!(code(Host::new(door, used).enrol().await), "token_unknown");
    assert_eq!(code(Host::new(door, never).enrol().await), "token_unknown");
    for route in ROUTES {
        let told = ask(former, door, route, &uuid::Uuid::nil().to_string(), epoch).await;
        assert_eq!(told, (401, "agent_removed".into()), "{route:?}");
    }
}
