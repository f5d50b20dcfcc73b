//! Another authority of agents' certificates: two valid authorities, crashes and restarts between
//! the acts, agents that cannot follow, and an agent that was away.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use jiff::Timestamp;
use muster_agent::work::client::Client;
use muster_agent::work::client::error::CallError;
use muster_agent::work::identity::keep::Keep;
use muster_core::ids::{AgentId, ObjectId};
use muster_core::values::Digest;
use muster_server::http::agent::tls::Peer;
use muster_server::intents::rotations::events::Act;
use muster_server::intents::rotations::{report, signing};
use muster_server::keys::authority::Certified;
use muster_server::keys::rings::RingKey;
use muster_server::tasks::keys::{Replica, follow};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt as _;

use super::{Host, LIMIT, events, server_and_door, token};
use crate::support::agents::Door;
use crate::support::server::{Caller, Server};

fn act(server: &Server) -> Act<'static> {
    Act {
        actor: "host:ada@server-1",
        now: server.app.clock.now(),
    }
}

/// Whether an act ends before or after its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Committed,
    Crashed,
}

async fn begin(server: &Server, ends: Ends) -> Result<bool, String> {
    let master = &server.app.keys.master;
    let mut tx = server.app.pool.begin().await.unwrap();
    let begun = signing::begin(&mut tx, master, RingKey::AgentCa, act(server)).await;
    let begun = begun.map_err(|error| error.to_string())?;
    match ends {
        Ends::Committed => tx.commit().await.unwrap(),
        Ends::Crashed => tx.rollback().await.unwrap(),
    }
    Ok(begun)
}

async fn finish(server: &Server, forgotten: &[&str], ends: Ends) -> Result<String, String> {
    let master = &server.app.keys.master;
    let forgotten = owned(forgotten);
    let mut tx = server.app.pool.begin().await.unwrap();
    let key = RingKey::AgentCa;
    let ended = signing::finish(&mut tx, master, key, &forgotten, act(server)).await;
    let ended = ended.map_err(|error| error.to_string())?;
    match ends {
        Ends::Committed => tx.commit().await.unwrap(),
        Ends::Crashed => tx.rollback().await.unwrap(),
    }
    Ok(ended)
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The holders of the former authority, as `muster admin keys` prints them.
async fn needs(server: &Server) -> Vec<String> {
    let mut conn = server.app.pool.acquire().await.unwrap();
    let now = server.app.clock.now();
    let rotations = report::list_rotations(&mut conn, now).await.unwrap();
    rotations
        .into_iter()
        .flat_map(|rotation| rotation.needs)
        .collect()
}

/// The certificates of the present authority and of the successor, as stored.
async fn authorities(server: &Server) -> (String, Option<String>) {
    let mut conn = server.app.pool.acquire().await.unwrap();
    let ring = server.app.keys.open_authorities(&mut conn).await.unwrap();
    let next = ring.next.map(|next| next.pem().to_owned());
    (ring.current.pem().to_owned(), next)
}

/// The certificate of the authority that has signed the certificate of an agent.
fn signer(host: &Host) -> String {
    host.identity.issued().unwrap().authority
}

/// The only running server compares its keys with the database's.
async fn learn(server: &Server) {
    forget_servers(server).await;
    follow(&server.app, &mut Replica::here()).await.unwrap();
}

/// A new process of the server. The former process is gone.
async fn restart(server: &Server) -> (Server, Door) {
    let (pool, clock) = (server.app.pool.clone(), server.app.clock.clone());
    let next = Server::on(pool, clock).await;
    learn(&next).await;
    let door = Door::open(&next.app).await;
    (next, door)
}

async fn forget_servers(server: &Server) {
    sqlx::query("DELETE FROM key_holders")
        .execute(&server.app.pool)
        .await
        .unwrap();
}

/// A running server with these authorities.
async fn add_server(server: &Server, authorities: &[&str]) {
    let query = "INSERT INTO key_holders (replica, host, keys, seen_at, authorities) VALUES (gen_random_uuid(), 'server-9', '{}', $1::text::timestamptz, $2)";
    sqlx::query(query)
        .bind(server.app.clock.now().to_string())
        .bind(owned(authorities))
        .execute(&server.app.pool)
        .await
        .unwrap();
}

async fn enrolled(admin: &Caller, door: &Door, name: &str) -> Host {
    let host = Host::new(door, &token(admin, "lab", name).await);
    host.enrol().await.unwrap();
    host.hello().await.unwrap();
    host
}

/// A new process of the agent, with the stored authorities.
fn restart_agent(host: Host, door: &Door) -> Host {
    let host = Host::at(host.dir, door, &host.token);
    host.identity.follow_authorities(&host.client).unwrap();
    host
}

/// The authorities in the file of an agent.
fn stored(host: &Host) -> Vec<Digest> {
    let keep = Keep::at(host.dir.path()).unwrap();
    keep.read().unwrap().unwrap().authorities()
}

/// The agent hears of the new authority, stores the authority, and shows the list.
async fn take(host: &Host) {
    host.hello().await.unwrap();
    assert!(host.identity.follow_authorities(&host.client).unwrap());
    host.hello().await.unwrap();
}

#[tokio::test]
async fn agents_move_to_another_authority_through_crashes_and_restarts() {
    let (server, admin, door) = server_and_door().await;
    let host = enrolled(&admin, &door, "a").await;
    let away = enrolled(&admin, &door, "away").await;
    let late = token(&admin, "lab", "late").await;
    let (former, _) = authorities(&server).await;
    learn(&server).await;
    assert_eq!(begin(&server, Ends::Crashed).await, Ok(true));
    assert_eq!(authorities(&server).await, (former.clone(), None));

    assert_eq!(begin(&server, Ends::Committed).await, Ok(true));
    assert_eq!(begin(&server, Ends::Committed).await, Ok(false));
    let next = authorities(&server).await.1.unwrap();
    host.hello().await.unwrap();
    assert!(!host.identity.follow_authorities(&host.client).unwrap());
    learn(&server).await;
    take(&host).await;
    let both = server.app.keys.authorities.now().digests();
    assert_eq!((both.len(), stored(&host)), (2, both.clone()));

    // Both sides start again. The answer with the new certificate is lost, and asked for again.
    let (server, door) = restart(&server).await;
    let host = restart_agent(host, &door);
    let file = host.dir.path().join("identity.json");
    let kept = std::fs::read(&file).unwrap();
    host.identity.renew(&host.client).await.unwrap();
    assert_eq!(signer(&host), next);
    std::fs::write(&file, kept).unwrap();
    let host = restart_agent(host, &door);
    assert_eq!(signer(&host), former);
    host.hello().await.unwrap();
    assert_eq!(needs(&server).await.len(), 3);
    host.identity.renew(&host.client).await.unwrap();
    assert_eq!(signer(&host), next);
    host.hello().await.unwrap();
    assert_eq!(needs(&server).await.len(), 2);

    // A token of before the begin enrols an agent until the end.
    let late = Host::new(&door, &late);
    late.enrol().await.unwrap();
    assert_eq!(signer(&late), former);
    take(&late).await;
    late.identity.renew(&late.client).await.unwrap();
    late.hello().await.unwrap();
    away_is_given_up(&server, host, away, both[1]).await;
}

/// The end of the rotation, for an agent that has followed and an agent that was away.
async fn away_is_given_up(server: &Server, host: Host, away: Host, next: Digest) {
    let (server, door) = restart(server).await;
    let host = restart_agent(host, &door);
    host.hello().await.unwrap();
    let refused = finish(&server, &[], Ends::Committed).await.unwrap_err();
    assert!(
        refused.contains("the agent away of lab (no call since the begin"),
        "{refused}"
    );
    let refused = finish(&server, &["a"], Ends::Committed).await.unwrap_err();
    assert!(refused.contains("--forget a"), "{refused}");
    finish(&server, &["away"], Ends::Crashed).await.unwrap();
    assert_eq!(needs(&server).await.len(), 1);
    finish(&server, &["away"], Ends::Committed).await.unwrap();

    // Until the server has heard of the end, both authorities are accepted.
    host.hello().await.unwrap();
    learn(&server).await;
    let host = restart_agent(host, &door);
    host.hello().await.unwrap();
    assert!(!host.identity.follow_authorities(&host.client).unwrap());
    assert_eq!(stored(&host), [next]);
    let (server, door) = restart(&server).await;
    let host = restart_agent(host, &door);
    host.hello().await.unwrap();
    host.identity.renew(&host.client).await.unwrap();
    host.hello().await.unwrap();

    let away = restart_agent(away, &door);
    let lost = away.hello().await.unwrap_err();
    assert!(
        matches!(&lost, CallError::Away(why) if why.contains("enrol the agent again")),
        "{lost}"
    );
    let admin = server.admin().await;
    admin
        .header("if-match", "*")
        .delete("/v1/sites/lab/agents/away")
        .await
        .expect(204);
    let again = Host::at(away.dir, &door, &token(&admin, "lab", "away").await);
    again.enrol().await.unwrap();
    again.hello().await.unwrap();
    for kind in ["key.rotation_started", "key.rotated"] {
        assert_eq!(events(&admin, kind).await, 1, "{kind}");
    }
}

#[tokio::test]
async fn an_agent_of_the_version_before_is_named_and_blocks_the_end() {
    let (server, admin, door) = server_and_door().await;
    // An agent of the version before stores and shows no list.
    let old = enrolled(&admin, &door, "old").await;
    let (former, _) = authorities(&server).await;
    begin(&server, Ends::Committed).await.unwrap();
    learn(&server).await;
    assert!(needs(&server).await[0].contains("no call since the begin"));
    old.hello().await.unwrap();
    let told = needs(&server).await;
    assert!(
        told[0].contains("the agent old of lab (upgrade the agent"),
        "{told:?}"
    );
    old.identity.renew(&old.client).await.unwrap();
    assert_eq!(signer(&old), former);
    old.hello().await.unwrap();
    assert_eq!(needs(&server).await, told);
    let refused = finish(&server, &[], Ends::Committed).await.unwrap_err();
    assert!(refused.contains("upgrade the agent"), "{refused}");

    // An agent that goes back to the version before needs the former authority again.
    let upgraded = restart_agent(old, &door);
    take(&upgraded).await;
    upgraded.identity.renew(&upgraded.client).await.unwrap();
    upgraded.hello().await.unwrap();
    assert_eq!(needs(&server).await, [""; 0]);
    let tls = upgraded.identity.tls().unwrap();
    let downgraded = Host {
        client: Client::new(&door.url, tls).unwrap(),
        ..upgraded
    };
    downgraded.hello().await.unwrap();
    assert_eq!(needs(&server).await, told);
}

#[tokio::test]
async fn no_certificate_of_the_new_authority_before_every_server_accepts_it() {
    let (server, admin, door) = server_and_door().await;
    let host = enrolled(&admin, &door, "a").await;
    let (former, _) = authorities(&server).await;
    add_server(&server, &[]).await;
    let refused = begin(&server, Ends::Committed).await.unwrap_err();
    assert!(refused.contains("of the version before"), "{refused}");
    forget_servers(&server).await;
    begin(&server, Ends::Committed).await.unwrap();
    learn(&server).await;
    take(&host).await;

    add_server(&server, &["former"]).await;
    host.identity.renew(&host.client).await.unwrap();
    assert_eq!(signer(&host), former);
    let told = needs(&server).await;
    assert!(
        told.contains(&"the server on server-9".to_owned()),
        "{told:?}"
    );
    let refused = finish(&server, &["a"], Ends::Committed).await.unwrap_err();
    assert!(refused.contains("run without the new key"), "{refused}");
    forget_servers(&server).await;
    host.identity.renew(&host.client).await.unwrap();
    assert_eq!(Some(signer(&host)), authorities(&server).await.1);
    // From now on the agent gets no former certificate, also beside such a server.
    host.hello().await.unwrap();
    add_server(&server, &["former"]).await;
    host.identity.renew(&host.client).await.unwrap();
    assert_ne!(signer(&host), former);
}

/// A new enrolment under the same name may come from another machine.
#[tokio::test]
async fn an_agent_enrolled_again_needs_the_former_authority_again() {
    let (server, admin, door) = server_and_door().await;
    let host = enrolled(&admin, &door, "a").await;
    begin(&server, Ends::Committed).await.unwrap();
    learn(&server).await;
    take(&host).await;
    host.identity.renew(&host.client).await.unwrap();
    host.hello().await.unwrap();
    assert_eq!(needs(&server).await, [""; 0]);
    sqlx::query("UPDATE agents SET certified_until = certified_at")
        .execute(&server.app.pool)
        .await
        .unwrap();
    let again = Host::new(&door, &token(&admin, "lab", "a").await);
    again.enrol().await.unwrap();
    assert_eq!(needs(&server).await.len(), 1);
}

/// A running agent hears of the new authority, stores the authority, and renews its certificate
/// until the certificate is of the new authority.
#[tokio::test]
async fn a_running_agent_takes_the_new_authority_without_a_restart() {
    let (server, admin, door) = server_and_door().await;
    let host = enrolled(&admin, &door, "a").await;
    let clock = server.app.clock.clone();
    let renewing = Arc::clone(&host.identity).keep_renewed(host.client.clone(), clock);
    let _renewing = AbortOnDropHandle::new(tokio::spawn(renewing));
    let first = host.identity.issued();
    begin(&server, Ends::Committed).await.unwrap();
    learn(&server).await;
    // The first renewal comes too early: a server still lacks the new authority.
    add_server(&server, &["former"]).await;
    let moved = tokio::time::timeout(LIMIT / 2, async {
        loop {
            host.hello().await.unwrap();
            if host.identity.issued() != first {
                forget_servers(&server).await;
            }
            if needs(&server).await.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    moved.await.unwrap();
    assert_eq!(Some(signer(&host)), authorities(&server).await.1);
    finish(&server, &[], Ends::Committed).await.unwrap();
}

/// A connection from before the end of a rotation.
#[tokio::test]
async fn a_certificate_of_an_ended_authority_is_refused_on_an_open_call() {
    let (server, admin, door) = server_and_door().await;
    let host = enrolled(&admin, &door, "a").await;
    let query = "SELECT id, site_id FROM agents";
    let (agent, site) = sqlx::query_as::<_, (AgentId, ObjectId)>(query)
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    let status = async |issuer: Digest| {
        let peer = Certified {
            agent,
            site,
            key: Digest::of(b"key"),
            issuer,
            not_before: Timestamp::UNIX_EPOCH,
            not_after: Timestamp::MAX,
        };
        let hello = json!({ "protocol": 1, "version": "0", "instance": "a" });
        let mut request = axum::http::Request::post("/agent/v1/hello")
            .header("content-type", "application/json")
            .body(Body::from(hello.to_string()))
            .unwrap();
        request
            .extensions_mut()
            .insert(ConnectInfo(Peer(Some(peer))));
        let routes = muster_server::http::agent::router(server.app.clone());
        let answer = routes.oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
        let text = String::from_utf8_lossy(&body.unwrap()).into_owned();
        (status, text.contains("certificate_former"))
    };
    let present = server.app.keys.authorities.now().current.subject();
    assert_eq!(status(present).await, (200, false));
    assert_eq!(status(Digest::of(b"former")).await, (401, true));
    drop(host);
}
