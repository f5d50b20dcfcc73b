//! The newest seal of the history.

use serde_json::Value;

use super::fleet;

/// An anchor kept elsewhere proves the history, like the server's own file.
#[test]
fn the_newest_seal_is_shown_and_kept() {
    let server = fleet();
    let kept = server.dir.path().join("kept");
    let mut anchor = String::new();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while anchor.is_empty() {
        assert!(std::time::Instant::now() < until, "nothing is sealed");
        anchor = server.muster(&["audit", "head", "--anchor"]).expect(0).out;
    }
    std::fs::write(&kept, &anchor).unwrap();
    let head = server.muster(&["audit", "head", "--json"]).expect(0).json();
    assert!(
        head["number"].as_i64().unwrap() >= 1 && head["hash"].as_str().unwrap().len() == 64,
        "{head}"
    );
    server
        .muster(&["audit", "head"])
        .expect(0)
        .says("over every event up to")
        .says("hash ");
    let (database, kept) = (server.database("muster"), kept.display().to_string());
    let verify = [
        "audit",
        "verify",
        "--database-url",
        &database,
        "--anchors",
        &kept,
    ];
    server.muster(&verify).expect(0).says("1 anchors");
    let hash = serde_json::from_str::<Value>(&anchor).unwrap()["hash"]
        .as_str()
        .unwrap()
        .to_owned();
    std::fs::write(&kept, anchor.replace(&hash, &"0".repeat(64))).unwrap();
    server
        .muster(&verify)
        .expect(6)
        .says("not the one in the anchors");
}
