//! Seals over tokens, people, role bindings and sessions: a row written without the master key
//! counts for no caller.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_core::values::{Digest, Secret};
use muster_server::auth::passwords::{self, Lane};
use muster_server::auth::seals::{adopt, window};
use muster_server::auth::{sessions, tokens};
use muster_server::db;
use serde_json::json;

use crate::support::server::{Caller, Server};

const PASSWORD: &str = "correct horse battery";

/// Runs a statement past the server, as a writer of the database.
async fn run(server: &Server, statement: &'static str) {
    let run = sqlx::query(statement).execute(&server.app.pool);
    assert!(run.await.unwrap().rows_affected() > 0, "{statement}");
}

/// The summaries of events of a kind, oldest first.
async fn told(server: &Server, kind: &str) -> Vec<String> {
    let query = "SELECT summary FROM events WHERE kind = $1 ORDER BY seq";
    sqlx::query_scalar(query)
        .bind(kind)
        .fetch_all(&server.app.pool)
        .await
        .unwrap()
}

/// Returns whether the binding `bob` keeps lost verbs.
async fn keeps_lost_verbs(server: &Server) -> bool {
    sqlx::query_scalar("SELECT keeps_release_verbs FROM objects WHERE name = 'bob'")
        .fetch_one(&server.app.pool)
        .await
        .unwrap()
}

/// Inserts an administrator's token without the key.
async fn forge(server: &Server, name: &str) -> Caller {
    let minted = tokens::mint(None);
    let now = server.app.clock.now();
    let token = db::tokens::NewToken {
        id: minted.id,
        name: name.to_owned(),
        mac: minted.mac,
        role: "admin",
        created_at: now,
        expires_at: now + SignedDuration::from_hours(24 * 300),
    };
    let mut conn = server.app.pool.acquire().await.unwrap();
    db::tokens::insert(&mut conn, &token).await.unwrap();
    server.with(Some(minted.secret.reveal().to_owned()))
}

async fn insert_person(server: &Server, name: &str, role: &str) {
    let hash = passwords::hash(Secret::new(PASSWORD)).await.unwrap();
    let mut conn = server.app.pool.acquire().await.unwrap();
    db::users::insert(&mut conn, name, &hash, role, server.app.clock.now())
        .await
        .unwrap();
}

/// Signs in. Returns the caller with the session, if any.
async fn sign_in(server: &Server, name: &str) -> Option<Caller> {
    let headers = reqwest::header::HeaderMap::new();
    let password = Secret::new(PASSWORD);
    let cookie = sessions::sign_in(&server.app, &headers, name, password, Lane::Stranger);
    let cookie = cookie.await.unwrap()?;
    let value = format!("{}={}", cookie.name(), cookie.value());
    Some(server.nobody().header("cookie", &value))
}

#[tokio::test]
async fn a_token_inserted_without_the_master_key_counts_for_no_caller() {
    let server = Server::start().await;
    // The same row counts with a seal.
    let adopted = forge(&server, "adopted").await;
    server.seal_rows().await;
    adopted.get("/v1/users").await.expect(200);
    adopted.get("/v1/users").await.expect(200);
    assert_eq!(told(&server, "token.plain_used").await.len(), 1);

    let forged = forge(&server, "forged").await;
    for _ in 0..3 {
        assert_eq!(forged.get("/v1/users").await.status, 401);
    }
    let refused = told(&server, "token.seal_refused").await;
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(
        refused[0].contains("the token forged is refused"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_token_changed_without_the_master_key_is_refused() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let made = json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600 });
    let made = admin.post("/v1/tokens", &made).await.expect(201);
    let ci = server.with(made.body["secret"].as_str().map(str::to_owned));
    ci.get("/v1/sites").await.expect(200);
    for (change, back) in [
        (
            "UPDATE tokens SET role = 'admin' WHERE name = 'ci'",
            "UPDATE tokens SET role = 'viewer' WHERE name = 'ci'",
        ),
        (
            "UPDATE tokens SET expires_at = expires_at + interval '1 day' WHERE name = 'ci'",
            "UPDATE tokens SET expires_at = expires_at - interval '1 day' WHERE name = 'ci'",
        ),
        (
            "UPDATE tokens SET keeps_release_verbs = true WHERE name = 'ci'",
            "UPDATE tokens SET keeps_release_verbs = false WHERE name = 'ci'",
        ),
        (
            "UPDATE tokens SET keeps_unarmed = true WHERE name = 'ci'",
            "UPDATE tokens SET keeps_unarmed = false WHERE name = 'ci'",
        ),
        (
            "UPDATE tokens SET releases_per_hour = releases_per_hour + 1 WHERE name = 'ci'",
            "UPDATE tokens SET releases_per_hour = releases_per_hour - 1 WHERE name = 'ci'",
        ),
        (
            "UPDATE tokens SET scope = '{\"site\": \"lab\"}' WHERE name = 'ci'",
            "UPDATE tokens SET scope = '{}' WHERE name = 'ci'",
        ),
        (
            "UPDATE tokens SET name = 'other' WHERE name = 'ci'",
            "UPDATE tokens SET name = 'ci' WHERE name = 'other'",
        ),
    ] {
        run(&server, change).await;
        assert_eq!(ci.get("/v1/sites").await.status, 401, "{change}");
        run(&server, back).await;
        ci.get("/v1/sites").await.expect(200);
    }
    // A revocation is not taken back by hand.
    admin.expecting(1).delete("/v1/tokens/ci").await.expect(204);
    run(
        &server,
        "UPDATE tokens SET revoked_at = NULL WHERE name = 'ci'",
    )
    .await;
    assert_eq!(ci.get("/v1/sites").await.status, 401);
}

#[tokio::test]
async fn a_person_and_a_session_written_without_the_master_key_are_refused() {
    let server = Server::start().await;
    let admin = server.admin().await;
    insert_person(&server, "ada", "viewer").await;
    assert!(sign_in(&server, "ada").await.is_none(), "no seal yet");
    assert_eq!(told(&server, "user.seal_refused").await.len(), 1);
    server.seal_rows().await;
    let ada = sign_in(&server, "ada").await.unwrap();
    ada.get("/v1/sites").await.expect(200);

    run(
        &server,
        "UPDATE users SET role = 'admin' WHERE name = 'ada'",
    )
    .await;
    assert_eq!(ada.get("/v1/sites").await.status, 401);
    assert!(sign_in(&server, "ada").await.is_none());
    // A change by the server does not make the change by hand valid.
    for action in ["disable", "enable"] {
        let path = format!("/v1/users/ada/actions/{action}");
        admin.post(&path, &json!({})).await.expect(200);
    }
    assert!(sign_in(&server, "ada").await.is_none());
    run(
        &server,
        "UPDATE users SET role = 'viewer' WHERE name = 'ada'",
    )
    .await;
    let ada = sign_in(&server, "ada").await.unwrap();
    ada.get("/v1/sites").await.expect(200);

    // A session under a known cookie.
    let hash = Digest::of(b"known").0;
    sqlx::query("INSERT INTO sessions SELECT $1, id, now(), now() + interval '100 years' FROM users WHERE name = 'ada'")
        .bind(hash)
        .execute(&server.app.pool)
        .await
        .unwrap();
    let forged = server.nobody().header("cookie", "muster_session=known");
    for _ in 0..2 {
        assert_eq!(forged.get("/v1/sites").await.status, 401);
    }
    assert_eq!(told(&server, "session.seal_refused").await.len(), 1);

    // A disabled person is not enabled by hand.
    let path = "/v1/users/ada/actions/disable";
    admin.post(path, &json!({})).await.expect(200);
    run(
        &server,
        "UPDATE users SET disabled_at = NULL, disabled_by = NULL WHERE name = 'ada'",
    )
    .await;
    assert!(sign_in(&server, "ada").await.is_none());
}

#[tokio::test]
async fn a_role_binding_written_without_the_master_key_gives_no_right() {
    let server = Server::start().await;
    let admin = server.admin().await;
    insert_person(&server, "bob", "guest").await;
    server.seal_rows().await;
    let bob = sign_in(&server, "bob").await.unwrap();
    bob.get("/v1/sites").await.expect(403);
    let binding = json!({ "spec": { "subject": "user:bob", "role": "viewer" } });
    let path = "/v1/role_bindings/bob";
    admin.put(path, &binding).await.expect(201);
    bob.get("/v1/sites").await.expect(200);
    bob.get("/v1/users").await.expect(403);

    run(
        &server,
        "UPDATE objects SET spec = jsonb_set(spec, '{role}', '\"admin\"') WHERE name = 'bob'",
    )
    .await;
    for _ in 0..2 {
        bob.get("/v1/sites").await.expect(403);
    }
    assert_eq!(told(&server, "role_binding.seal_refused").await.len(), 1);
    run(
        &server,
        "INSERT INTO objects (id, kind, name, spec, created_at, updated_at)
         VALUES (gen_random_uuid(), 'role_binding', 'eve', '{\"subject\": \"user:bob\", \"role\": \"admin\"}', now(), now())",
    )
    .await;
    bob.get("/v1/users").await.expect(403);
    assert_eq!(told(&server, "role_binding.seal_refused").await.len(), 2);
    // A write by the server seals the document that an administrator has sent.
    admin.put(path, &binding).await.expect(200);
    bob.get("/v1/sites").await.expect(200);
    bob.get("/v1/users").await.expect(403);
}

#[tokio::test]
async fn a_write_by_the_server_seals_no_lost_verbs_set_by_hand() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let binding = |team: &str| {
        let labels = json!({ "team": team });
        json!({ "labels": labels, "spec": { "subject": "user:bob", "role": "viewer" } })
    };
    let path = "/v1/role_bindings/bob";
    admin.put(path, &binding("a")).await.expect(201);
    let by_hand = "UPDATE objects SET keeps_release_verbs = true WHERE name = 'bob'";
    // The mark of the version before, under a valid seal, stays at a write of other labels.
    run(&server, by_hand).await;
    server.seal_rows().await;
    admin.put(path, &binding("b")).await.expect(200);
    assert!(keeps_lost_verbs(&server).await);
    // A mark set by hand goes with the same write.
    let other = json!({ "spec": { "subject": "user:bob", "role": "operator" } });
    admin.put(path, &other).await.expect(200);
    admin.put(path, &binding("b")).await.expect(200);
    run(&server, by_hand).await;
    admin.put(path, &binding("c")).await.expect(200);
    assert!(!keeps_lost_verbs(&server).await);
}

#[tokio::test]
async fn a_late_seal_names_the_rows_that_were_changed_after_their_seal() {
    let server = Server::start().await;
    for name in ["changed", "early"] {
        forge(&server, name).await;
    }
    adopt::adopt_once(&server.app).await.unwrap();
    let late = forge(&server, "late").await;
    late.get("/v1/users").await.expect(200);
    run(
        &server,
        "UPDATE tokens SET role = 'viewer' WHERE name = 'changed'",
    )
    .await;
    adopt::seal_late(&server.app).await.unwrap();
    let query = "SELECT detail FROM events WHERE kind = 'rows.sealed_late'";
    let detail: serde_json::Value = sqlx::query_scalar(query)
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    assert_eq!(detail["wrong_seal"], json!(["token changed"]));
    assert_eq!(
        detail["tokens"].as_array().map(Vec::len),
        Some(2),
        "{detail}"
    );
}

#[tokio::test]
async fn rows_of_the_version_before_are_adopted_once_and_for_a_day() {
    let server = Server::start().await;
    let old = forge(&server, "old").await;
    adopt::adopt_once(&server.app).await.unwrap();
    old.get("/v1/users").await.expect(200);
    let adopted = told(&server, "rows.adopted").await;
    assert_eq!(adopted, ["sealed without a change: 1 token"]);
    // A server of the version before makes a token beside this one.
    let late = forge(&server, "late").await;
    late.get("/v1/users").await.expect(200);
    adopt::seal_late(&server.app).await.unwrap();
    adopt::seal_late(&server.app).await.unwrap();
    assert_eq!(told(&server, "rows.sealed_late").await.len(), 1);

    server.app.clock.advance(window::LASTS);
    let forged = forge(&server, "forged").await;
    adopt::seal_late(&server.app).await.unwrap();
    adopt::adopt_once(&server.app).await.unwrap();
    assert_eq!(forged.get("/v1/users").await.status, 401);
    for sealed in [&old, &late] {
        sealed.get("/v1/users").await.expect(200);
    }
    // Neither a removed mark nor a mark without the key, nor a removed file, opens the time again.
    run(&server, "DELETE FROM row_seals").await;
    adopt::adopt_once(&server.app).await.unwrap();
    assert_eq!(forged.get("/v1/users").await.status, 401);
    std::fs::remove_file(server.app.blobs.join("rows-adopted")).unwrap();
    adopt::adopt_once(&server.app).await.unwrap();
    assert_eq!(forged.get("/v1/users").await.status, 401);
    run(
        &server,
        "INSERT INTO row_seals VALUES (true, now(), now() + interval '100 years', '\\x01')",
    )
    .await;
    adopt::adopt_once(&server.app).await.unwrap();
    assert_eq!(forged.get("/v1/users").await.status, 401);
    server.seal_rows().await;
    forged.get("/v1/users").await.expect(200);
}

#[tokio::test]
async fn a_new_installation_has_no_time_for_rows_without_a_seal() {
    let server = Server::start().await;
    let admin = server.caller(Role::Admin).await;
    adopt::adopt_once(&server.app).await.unwrap();
    let told = told(&server, "rows.adopted").await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("no row is from before the seals: "),
        "{told:?}"
    );
    admin.get("/v1/users").await.expect(200);
    let forged = forge(&server, "forged").await;
    assert_eq!(forged.get("/v1/users").await.status, 401);
}

#[tokio::test]
async fn sealed_rows_are_described_by_the_numbers_of_those_that_exist() {
    let server = Server::start().await;
    let described = async || {
        let mut conn = server.app.pool.acquire().await.unwrap();
        let (master, now) = (&server.app.keys.master, server.app.clock.now());
        let unsealed = adopt::find_unsealed(&mut conn, master, now).await.unwrap();
        unsealed.describe()
    };
    assert_eq!(described().await, "no row");
    forge(&server, "one").await;
    assert_eq!(described().await, "1 token");
    forge(&server, "two").await;
    insert_person(&server, "ada", "viewer").await;
    assert_eq!(described().await, "2 tokens and 1 person");
    insert_person(&server, "bob", "viewer").await;
    run(
        &server,
        "INSERT INTO sessions SELECT '\\x01', id, now(), now() + interval '100 years' FROM users WHERE name = 'ada'",
    )
    .await;
    assert_eq!(described().await, "2 tokens, 2 people and 1 session");
}
