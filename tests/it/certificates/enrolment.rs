//! Enrolment with a token: a single use, within a day, at the right server, without a leak.

use jiff::SignedDuration;
use muster_agent::work::client::Client;
use muster_agent::work::client::error::CallError;
use muster_agent::work::identity::Identity;
use muster_agent::work::identity::keep::Keep;
use muster_agent::work::marks::Marks;
use muster_core::ids::EventId;
use muster_core::values::Secret;
use serde_json::json;
use tempfile::TempDir;

use super::{Host, code, events, server_and_door, token};
use crate::support::agents::Door;

#[tokio::test]
async fn a_token_is_used_once_by_one_key_and_within_its_day() {
    let (server, admin, door) = server_and_door().await;
    let stolen = token(&admin, "lab", "a").await;
    let host = Host::new(&door, &stolen);
    assert!(
        matches!(host.hello().await, Err(CallError::Refused { status: 401, code, .. }) if code == "certificate_required")
    );
    // The answer to the first request may be lost, so the same key may ask again.
    let again = Identity::open(host.dir.path(), Some(&stolen)).unwrap();
    host.enrol().await.unwrap();
    again.enrol(&host.client, &stolen).await.unwrap();
    assert_eq!(host.hello().await.unwrap(), 1);
    // The server refuses the token with a different key, and emits an event.
    let thief = Host::new(&door, &stolen);
    assert_eq!(code(thief.enrol().await), "token_used");
    assert_eq!(
        (
            events(&admin, "agent.certified").await,
            events(&admin, "agent.token_replayed").await
        ),
        (1, 1)
    );
    let late = token(&admin, "lab", "b").await;
    server.app.clock.advance(SignedDuration::from_hours(25));
    // The administrator's API token has expired too.
    let admin = server.admin().await;
    assert_eq!(code(Host::new(&door, &late).enrol().await), "token_expired");
    // An agent without a certificate may get a new token. An agent with a certificate may not.
    let fresh = token(&admin, "lab", "b").await;
    Host::new(&door, &fresh).enrol().await.unwrap();
    admin
        .post("/v1/sites/lab/agents", &json!({ "name": "b" }))
        .await
        .expect(409);
    assert_eq!(code(Host::new(&door, &late).enrol().await), "token_unknown");
}

#[tokio::test]
async fn the_first_contact_knows_the_server_and_tells_no_other_one_the_token() {
    let (_server, admin, _door) = server_and_door().await;
    let (_other, other_admin, other_door) = server_and_door().await;
    let ours = token(&admin, "lab", "a").await;
    let misled = Host::new(&other_door, &ours);
    let error = misled.enrol().await.unwrap_err();
    assert!(
        matches!(&error, CallError::Away(why) if why.contains("its authority is another one")),
        "{error}"
    );
    // The agent kept the token back: at the other server, an agent of the same name can enrol.
    let theirs = token(&other_admin, "lab", "a").await;
    Host::new(&other_door, &theirs).enrol().await.unwrap();
    assert!(
        Client::new("http://127.0.0.1:9", misled.identity.tls().unwrap()).is_err(),
        "nothing is said in the clear"
    );
}

#[tokio::test]
async fn no_key_and_no_token_is_told_to_anybody() {
    let (server, admin, door) = server_and_door().await;
    let token = token(&admin, "lab", "a").await;
    let host = Host::new(&door, &token);
    host.enrol().await.unwrap();
    host.identity.renew(&host.client).await.unwrap();
    drop(Host::new(&door, &token).enrol().await.unwrap_err());
    let key = Keep::at(host.dir.path())
        .unwrap()
        .read()
        .unwrap()
        .unwrap()
        .key;
    let line = key.reveal().lines().nth(1).unwrap();
    let secret = token.reveal().split('_').nth(2).unwrap();
    let mut told = Vec::new();
    for path in [
        "/v1/events?limit=1000",
        "/v1/sites/lab/agents",
        "/agents",
        "/events",
        "/metrics",
    ] {
        told.push(admin.get(path).await.text);
    }
    let rows: Vec<String> = sqlx::query_scalar("SELECT agents::text FROM agents UNION ALL SELECT events::text FROM events UNION ALL SELECT server_keys::text FROM server_keys")
        .fetch_all(&server.app.pool)
        .await
        .unwrap();
    told.extend(rows);
    told.push(format!("{:?} {:?}", host.identity, host.client));
    for text in told {
        assert!(
            !text.contains(line) && !text.contains(secret) && !text.contains("PRIVATE KEY"),
            "{text}"
        );
    }
}

async fn enrol_anew(dir: TempDir, door: &Door, token: &Secret) -> Host {
    let host = Host::at(dir, door, token);
    let marks = Marks::open(host.dir.path()).unwrap();
    let client = host.client.clone().remembering(marks);
    host.identity.enrol(&client, token).await.unwrap();
    host
}

/// The event is the witness of a restored database. Another installation would refuse the agent for
/// the event.
#[tokio::test]
async fn a_remembered_event_stays_at_its_own_installation() {
    let (_server, admin, door) = server_and_door().await;
    let (_other, other_admin, other_door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    Marks::open(host.dir.path())
        .unwrap()
        .keep(&EventId::new().to_string(), None);
    admin
        .header("if-match", "*")
        .delete("/v1/sites/lab/agents/a")
        .await
        .expect(204);
    let host = enrol_anew(host.dir, &door, &token(&admin, "lab", "a").await).await;
    assert!(Marks::open(host.dir.path()).unwrap().latest().is_some());
    let theirs = token(&other_admin, "lab", "a").await;
    let host = enrol_anew(host.dir, &other_door, &theirs).await;
    assert_eq!(Marks::open(host.dir.path()).unwrap().latest(), None);
}
