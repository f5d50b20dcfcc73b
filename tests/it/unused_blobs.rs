//! Blobs of the server without a use: noted, kept for the grace time, and removed with an event.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_core::values::Digest;
use muster_server::db;
use muster_server::tasks::retention::blobs::{self, Memory, RemovedBlobs};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::fleet;
use crate::support::server::{Caller, Server};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Runs a round of a replica just started.
async fn round(server: &Server) -> RemovedBlobs {
    let mut memory = Memory::default();
    blobs::remove(&server.app, &mut memory).await.unwrap()
}

/// Sends a request for the blob with these bytes.
async fn send(caller: &Caller, method: Method, bytes: &[u8]) -> u16 {
    let path = format!("/v1/blobs/sha256/{}", Digest::of(bytes).hex());
    let body = match method == Method::PUT {
        true => bytes.to_vec(),
        false => Vec::new(),
    };
    caller.send(method, &path, body).await.status
}

async fn store(admin: &Caller, bytes: &[u8]) {
    assert_eq!(send(admin, Method::PUT, bytes).await, 201);
}

fn path_of(server: &Server, bytes: &[u8]) -> PathBuf {
    server
        .app
        .blobs
        .join("sha256")
        .join(Digest::of(bytes).hex())
}

fn is_stored(server: &Server, bytes: &[u8]) -> bool {
    path_of(server, bytes).exists()
}

async fn count_events(server: &Server, kind: &'static str) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = $1")
        .bind(kind)
        .fetch_one(&server.app.pool)
        .await
        .unwrap()
}

/// A caller after a jump of the clock: tokens end after 30 days.
async fn later(server: &Server, days: i32) -> Caller {
    server.app.clock.advance(DAY * days);
    server.admin().await
}

/// The list of a bundle with one package.
fn bundle(package: &[u8]) -> Vec<u8> {
    let files = json!({ "files": { "chrony.deb": Digest::of(package) } });
    files.to_string().into_bytes()
}

/// Declares a fleet whose documents name the blobs `image`, `kernel`, `initrd`, `firmware` and the
/// bundle of `package`, and stores these blobs.
async fn declare_used(admin: &Caller) {
    let bundle = bundle(b"package");
    for bytes in [
        b"image".as_slice(),
        b"kernel",
        b"initrd",
        b"firmware",
        b"package",
        &bundle,
    ] {
        store(admin, bytes).await;
    }
    fleet::declare_pool(admin).await;
    let live = json!({ "spec": { "live": { "kernel": Digest::of(b"kernel"), "initrd": Digest::of(b"initrd") } } });
    admin.patch("/v1/sites/lab", &live).await.expect(200);
    let stack = json!({ "spec": { "version": "2", "bundle": Digest::of(&bundle),
        "firmware": [{ "component": "BMC", "version": "1.1", "source": "the release notes", "image": Digest::of(b"firmware") }] } });
    admin.patch("/v1/stacks/base", &stack).await.expect(200);
}

#[tokio::test]
async fn unused_blobs_go_after_the_grace_time_and_used_ones_stay() {
    let server = Server::start().await;
    let admin = server.admin().await;
    declare_used(&admin).await;
    store(&admin, b"stray").await;
    // Nodes get the firmware of the lock, which may differ from the firmware of the stack.
    store(&admin, b"locked").await;
    let locked = json!([{ "component": "BMC", "version": "1.0", "image": Digest::of(b"locked") }]);
    sqlx::query(
        "UPDATE objects SET spec = jsonb_set(spec, '{lock,firmware}', $1) WHERE kind = 'stack'",
    )
    .bind(locked)
    .execute(&server.app.pool)
    .await
    .unwrap();
    let note = server.app.blobs.join("sha256/readme");
    std::fs::write(&note, "no blob").unwrap();
    assert_eq!(round(&server).await, RemovedBlobs::default());
    let mut conn = server.app.pool.acquire().await.unwrap();
    let listed = blobs::list_unused(&mut conn, &server.app.blobs)
        .await
        .unwrap();
    drop(conn);
    let since = Some(server.app.clock.now());
    let digests: Vec<_> = listed
        .iter()
        .map(|blob| (blob.digest, blob.bytes, blob.since))
        .collect();
    assert_eq!(digests, [(Digest::of(b"stray"), 5, since)]);

    server.app.clock.advance(DAY * 29);
    assert_eq!(round(&server).await, RemovedBlobs::default());
    server.app.clock.advance(DAY * 2);
    let removed = round(&server).await;
    assert_eq!(removed, RemovedBlobs { blobs: 1, bytes: 5 });
    assert!(!is_stored(&server, b"stray") && note.exists());
    let bundle = bundle(b"package");
    for bytes in [
        b"image".as_slice(),
        b"kernel",
        b"initrd",
        b"firmware",
        b"locked",
        b"package",
        &bundle,
    ] {
        assert!(
            is_stored(&server, bytes),
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }
    assert_eq!(count_events(&server, "blob.removed").await, 1);
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM unused_blobs")
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn blobs_of_a_former_revision_stay_until_the_pool_is_gone() {
    let server = Server::start().await;
    let admin = server.admin().await;
    declare_used(&admin).await;
    // The stack names neither bundle nor firmware any more; a revision of the pool still does.
    let stack = json!({ "spec": { "version": "3", "bundle": null, "firmware": [] } });
    admin.patch("/v1/stacks/base", &stack).await.expect(200);
    round(&server).await;
    let admin = later(&server, 31).await;
    assert_eq!(round(&server).await.blobs, 0);

    admin
        .header("if-match", "*")
        .delete("/v1/pools/gpu")
        .await
        .expect(204);
    assert_eq!(round(&server).await.blobs, 0);
    server.app.clock.advance(DAY * 31);
    // The firmware, the bundle and the package.
    assert_eq!(round(&server).await.blobs, 3);
    assert!(is_stored(&server, b"image") && !is_stored(&server, b"package"));
}

#[tokio::test]
async fn a_question_or_an_upload_restarts_the_grace_time() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for bytes in [b"asked".as_slice(), b"sent", b"read", b"left"] {
        store(&admin, bytes).await;
    }
    round(&server).await;
    let admin = later(&server, 31).await;
    let reader = server.caller(Role::Viewer).await;
    assert_eq!(send(&admin, Method::HEAD, b"asked").await, 200);
    assert_eq!(send(&admin, Method::PUT, b"sent").await, 204);
    // A reader without the right to upload keeps no blob.
    assert_eq!(send(&reader, Method::HEAD, b"read").await, 200);
    assert_eq!(round(&server).await.blobs, 2);
    assert!(is_stored(&server, b"asked") && is_stored(&server, b"sent"));
    assert!(!is_stored(&server, b"read") && !is_stored(&server, b"left"));
    // A removed blob is uploaded like a new one.
    store(&admin, b"left").await;
}

#[tokio::test]
async fn an_upload_or_a_write_under_way_stops_the_removal() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    store(&admin, b"stray").await;
    round(&server).await;
    server.app.clock.advance(DAY * 31);
    let digest = Digest::of(b"stray");

    // A client was told that the blob is stored, and the answer is not committed yet.
    let mut asking = server.app.pool.begin().await.unwrap();
    db::unused_blobs::keep_blob(&mut asking, digest)
        .await
        .unwrap();
    assert_eq!(round(&server).await.blobs, 0);
    asking.rollback().await.unwrap();

    // A document names the blob, and the write is not committed yet.
    let mut writing = server.app.pool.begin().await.unwrap();
    let written = sqlx::query("UPDATE objects SET spec = jsonb_set(spec, '{bundle}', to_jsonb($1::text)) WHERE kind = 'stack'")
        .bind(digest.to_string())
        .execute(&mut *writing)
        .await
        .unwrap();
    assert_eq!(written.rows_affected(), 1);
    assert_eq!(round(&server).await.blobs, 0);
    writing.rollback().await.unwrap();

    // A revision of a pool names the blob, and the write is not committed yet.
    let mut writing = server.app.pool.begin().await.unwrap();
    sqlx::query(
        "INSERT INTO pool_revisions (pool_id, number, image_name, image, stack_name, stack, actor, created_at)
         SELECT pool_id, 9, image_name, jsonb_set(image, '{digest}', to_jsonb($1::text)), stack_name, stack, actor, created_at FROM pool_revisions",
    )
    .bind(digest.to_string())
    .execute(&mut *writing)
    .await
    .unwrap();
    assert_eq!(round(&server).await.blobs, 0);
    writing.rollback().await.unwrap();
    assert_eq!(round(&server).await.blobs, 1);
}

#[tokio::test]
async fn an_unreadable_document_or_bundle_stops_the_removal_with_an_event() {
    let server = Server::start().await;
    let admin = server.admin().await;
    declare_used(&admin).await;
    store(&admin, b"stray").await;
    round(&server).await;
    server.app.clock.advance(DAY * 31);
    let path = path_of(&server, &bundle(b"package"));
    let whole = std::fs::read(&path).unwrap();
    let mut memory = Memory::default();
    for (damage, events) in [(Some("{}"), 1), (Some("{}"), 1), (None, 2)] {
        match damage {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        assert!(blobs::remove(&server.app, &mut memory).await.is_err());
        assert!(is_stored(&server, b"stray") && is_stored(&server, b"package"));
        assert_eq!(count_events(&server, "blob.removal_stopped").await, events);
    }
    std::fs::write(&path, whole).unwrap();

    let change = "UPDATE objects SET spec = jsonb_set(spec, '{digest}', $1) WHERE kind = 'image'";
    for (digest, is_readable) in [
        (json!("sha256:0"), false),
        (json!(fleet::digest("image")), true),
    ] {
        sqlx::query(change)
            .bind(digest)
            .execute(&server.app.pool)
            .await
            .unwrap();
        let removed = blobs::remove(&server.app, &mut memory).await;
        assert_eq!(removed.is_ok(), is_readable, "{removed:?}");
    }
    assert!(!is_stored(&server, b"stray") && is_stored(&server, b"package"));
}

#[tokio::test]
async fn a_bundle_that_was_never_uploaded_does_not_stop_the_removal() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let stack = json!({ "spec": { "version": "2", "bundle": fleet::digest("never") } });
    admin.patch("/v1/stacks/base", &stack).await.expect(200);
    store(&admin, b"stray").await;
    round(&server).await;
    server.app.clock.advance(DAY * 31);
    assert_eq!(round(&server).await.blobs, 1);
}

#[tokio::test]
async fn no_blob_is_removed_in_caution_mode() {
    let server = Server::start().await;
    let admin = server.admin().await;
    store(&admin, b"stray").await;
    round(&server).await;
    server.app.clock.advance(DAY * 31);
    let open = "INSERT INTO cautions (id, because, noticed_at) VALUES (gen_random_uuid(), 'an agent remembers more', now())";
    sqlx::query(open).execute(&server.app.pool).await.unwrap();
    assert_eq!(round(&server).await.blobs, 0);
    // The restored database may lack documents, so the grace time counts from the end of the caution.
    sqlx::query("UPDATE cautions SET confirmed_at = $1::timestamptz, confirmed_by = 'ada'")
        .bind(server.app.clock.now().to_string())
        .execute(&server.app.pool)
        .await
        .unwrap();
    assert_eq!(round(&server).await.blobs, 0);
    server.app.clock.advance(DAY * 31);
    assert_eq!(round(&server).await.blobs, 1);
}

#[tokio::test]
async fn partial_uploads_of_dead_servers_go_after_a_day() {
    let server = Server::start().await;
    let now = SystemTime::from(server.app.clock.now());
    for (name, hours) in [("upload-old", 25), ("upload-new", 23), ("latest-event", 25)] {
        let file = std::fs::File::create(server.app.blobs.join(name)).unwrap();
        file.set_modified(now - Duration::from_secs(3600 * hours))
            .unwrap();
    }
    round(&server).await;
    let names = ["upload-old", "upload-new", "latest-event"];
    let is_there = names.map(|name| server.app.blobs.join(name).exists());
    assert_eq!(is_there, [false, true, true]);
}

#[tokio::test]
async fn the_event_of_a_removal_names_the_blobs() {
    let server = Server::start().await;
    let admin = server.admin().await;
    store(&admin, b"stray").await;
    round(&server).await;
    let admin = later(&server, 31).await;
    round(&server).await;
    let events = admin.get("/v1/events?limit=1000").await.expect(200).body;
    let events = events["items"].as_array().unwrap();
    let removed: Vec<&Value> = events
        .iter()
        .filter(|event| event["kind"] == "blob.removed")
        .collect();
    assert_eq!(removed.len(), 1);
    let detail = json!({ "blobs": [Digest::of(b"stray")], "bytes": 5 });
    assert_eq!(removed[0]["detail"], detail);
}
