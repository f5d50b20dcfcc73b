//! The key that lies outside the database is gone, or is another: nothing starts, and it is said why.

use std::os::unix::fs::PermissionsExt as _;

use jiff::Timestamp;
use muster_core::clock::Clock;
use muster_server::keys::{Create, Keys, MasterKey};

use crate::support::postgres;
use crate::support::server::START;

fn refused(path: &std::path::Path) -> String {
    MasterKey::load(path, Create::Never)
        .err()
        .map(|error| format!("{error:#}"))
        .unwrap_or_default()
}

#[tokio::test]
async fn without_its_key_a_server_does_not_start_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("master.key");
    let error = refused(&path);
    assert!(
        error.contains("master.key cannot be read") && error.contains("No such file"),
        "{error}"
    );
    assert!(!path.exists(), "a new key opens nothing that was sealed");
    std::fs::write(&path, [7; 31]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(
        refused(&path).contains("not 32 bytes"),
        "{}",
        refused(&path)
    );
    std::fs::write(&path, [7; 32]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(refused(&path).contains("chmod 600"), "{}", refused(&path));

    // Another key than the one that sealed: closed, and what was sealed stays as it is.
    let pool = postgres::database().await;
    let clock = Clock::manual(START.parse::<Timestamp>().unwrap());
    let right = Keys::load(MasterKey::from_bytes(&[7; 32]), &pool, &clock)
        .await
        .unwrap();
    let error = Keys::load(MasterKey::from_bytes(&[8; 32]), &pool, &clock)
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("was sealed by key"), "{error}");
    let again = Keys::load(MasterKey::from_bytes(&[7; 32]), &pool, &clock)
        .await
        .unwrap();
    let mut conn = pool.acquire().await.unwrap();
    let [again, right] = [
        again.open_permits(&mut conn).await.unwrap().current,
        right.open_permits(&mut conn).await.unwrap().current,
    ];
    assert_eq!(again, right);
}
