//! Copied identities: a renewal with a former key refuses both holders. A lost answer, an upgrade
//! and a restored database refuse no agent.

use std::sync::Arc;

use jiff::SignedDuration;
use muster_agent::work::client::Client;
use muster_agent::work::identity::Identity;
use muster_core::clock::Clock;
use serde_json::json;
use tempfile::TempDir;

use super::{Host, code, events, server_and_door, token};
use crate::support::agents::Door;
use crate::support::postgres::Backup;
use crate::support::server::Server;

/// The identity of a host, copied to another machine.
fn copy(host: &Host, door: &Door) -> Host {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(file(&host.dir), file(&dir)).unwrap();
    Host::at(dir, door, &host.token)
}

fn file(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("identity.json")
}

/// The host as its file was, as after a crash between the request and the answer.
fn put_back(host: Host, kept: &[u8], door: &Door) -> Host {
    std::fs::write(file(&host.dir), kept).unwrap();
    Host::at(host.dir, door, &host.token)
}

async fn renew(host: &Host) {
    host.identity.renew(&host.client).await.unwrap();
}

async fn refused(host: &Host) {
    assert_eq!(
        code(host.identity.renew(&host.client).await),
        "agent_cloned"
    );
    assert_eq!(code(host.hello().await), "agent_cloned");
}

#[tokio::test]
async fn a_former_key_renews_nothing_and_both_holders_are_refused() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    let thief = copy(&host, &door);
    renew(&host).await;
    server.app.clock.advance(SignedDuration::from_hours(2));
    renew(&host).await;
    host.hello().await.unwrap();
    assert_eq!(events(&admin, "agent.cloned").await, 0);
    for _ in 0..2 {
        refused(&thief).await;
    }
    refused(&host).await;
    assert_eq!(events(&admin, "agent.cloned").await, 1, "told once");
    let taken = admin
        .post("/v1/sites/lab/agents", &json!({ "name": "a" }))
        .await;
    assert_eq!(taken.problem().1, "name_taken");
    admin
        .header("if-match", "*")
        .delete("/v1/sites/lab/agents/a")
        .await
        .expect(204);
    let anew = Host::new(&door, &token(&admin, "lab", "a").await);
    anew.enrol().await.unwrap();
    anew.hello().await.unwrap();
    renew(&anew).await;
}

#[tokio::test]
async fn a_thief_that_renews_first_is_found_by_the_next_renewal() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    let thief = copy(&host, &door);
    renew(&thief).await;
    thief.hello().await.unwrap();
    server.app.clock.advance(SignedDuration::from_hours(2));
    refused(&host).await;
    refused(&thief).await;
    assert_eq!(events(&admin, "agent.cloned").await, 1);
}

/// The agent saves its next key before the request: the repeated request is recognised at any time.
#[tokio::test]
async fn a_lost_answer_locks_no_agent_out() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    // A request that reaches no server saves the key.
    let nowhere = Client::new("https://127.0.0.1:9", host.identity.tls().unwrap()).unwrap();
    host.identity.renew(&nowhere).await.unwrap_err();
    let kept = std::fs::read(file(&host.dir)).unwrap();
    renew(&host).await;
    let mut host = put_back(host, &kept, &door);
    for _ in 0..2 {
        server.app.clock.advance(SignedDuration::from_hours(5));
        renew(&host).await;
        host = put_back(host, &kept, &door);
    }
    renew(&host).await;
    host.hello().await.unwrap();
    // From the new key on, the agent renews as usual.
    server.app.clock.advance(SignedDuration::from_hours(5));
    renew(&host).await;
    assert_eq!(events(&admin, "agent.cloned").await, 0);
}

/// An agent of the previous version makes a new key for each request. The former key renews within
/// an hour.
#[tokio::test]
async fn a_lost_answer_of_an_older_agent_is_given_again_within_the_hour() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    let kept = std::fs::read(file(&host.dir)).unwrap();
    renew(&host).await;
    let host = put_back(host, &kept, &door);
    server.app.clock.advance(SignedDuration::from_mins(50));
    renew(&host).await;
    host.hello().await.unwrap();
    let host = put_back(host, &kept, &door);
    server.app.clock.advance(SignedDuration::from_mins(70));
    refused(&host).await;
    assert_eq!(events(&admin, "agent.cloned").await, 1);
}

#[tokio::test]
async fn the_first_renewal_after_an_upgrade_records_the_key() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    sqlx::query("UPDATE agents SET newest_key = NULL, former_key = NULL, newest_key_at = NULL")
        .execute(&server.app.pool)
        .await
        .unwrap();
    let thief = copy(&host, &door);
    renew(&host).await;
    server.app.clock.advance(SignedDuration::from_hours(2));
    renew(&host).await;
    refused(&thief).await;
}

#[tokio::test]
async fn a_restored_database_renews_a_certificate_that_the_backup_lacks() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    let backup = Backup::of(&server.app.pool);
    for _ in 0..2 {
        server.app.clock.advance(SignedDuration::from_hours(30));
        renew(&host).await;
    }
    let now = server.app.clock.now();
    let restored = Server::on(backup.restore().await, Clock::manual(now)).await;
    let door = Door::open(&restored.app).await;
    let host = Host::at(host.dir, &door, &host.token);
    renew(&host).await;
    host.hello().await.unwrap();
    assert_eq!(events(&restored.admin().await, "agent.cloned").await, 0);
}

/// The token and the first key are copied. Once the agent has renewed, they give no certificate.
#[tokio::test]
async fn a_used_token_gives_no_certificate_for_a_former_key() {
    let (_server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    let again = Arc::new(Identity::open(host.dir.path(), Some(&host.token)).unwrap());
    let copied = copy(&host, &door);
    host.enrol().await.unwrap();
    again.enrol(&host.client, &host.token).await.unwrap();
    host.hello().await.unwrap();
    renew(&host).await;
    assert_eq!(code(copied.enrol().await), "agent_cloned");
    assert_eq!(code(host.hello().await), "agent_cloned");
    assert_eq!(events(&admin, "agent.cloned").await, 1);
}
