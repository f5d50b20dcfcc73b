//! `muster admin`: acts on the host need the master key, and are events with user and host.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::muster::{Said, Server};

/// Runs an act with a key file.
fn act(server: &Server, words: &[&str], key: &str, input: &str) -> Said {
    let url = server.database("muster");
    let host = ["--database-url", &url, "--key-file", key];
    server.typed(&[&["admin"], words, &host].concat(), input)
}

/// The events of a kind with an actor on the host.
fn told(server: &Server, kind: &str) -> usize {
    let listed = server.muster(&["event", "list", "--json"]).expect(0);
    let items: Vec<Value> = listed
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("an event"))
        .collect();
    let is_act = |event: &&Value| {
        let actor = event["actor"].as_str().unwrap_or_default();
        event["kind"] == kind && actor.starts_with("host:")
    };
    items.iter().filter(is_act).count()
}

#[test]
fn an_act_on_the_host_needs_the_master_key_and_is_an_event() {
    let server = Server::start();
    let key = server.dir.path().join("data/master.key");
    let key = key.display().to_string();
    let other = server.dir.path().join("other.key");
    std::fs::write(&other, [9; 32]).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
    let other = other.display().to_string();
    let password = "correct horse battery";
    // The first start of `muster dev` makes a user and a token.
    let made = told(&server, "token.created");
    assert_eq!((made, told(&server, "user.password_set")), (1, 1));

    let acts: [(&[&str], &str); 7] = [
        (&["token", "--name", "second"], ""),
        (&["password", "--user", "ada"], password),
        (&["arm", "--reason", "a test"], ""),
        (&["disarm"], ""),
        (&["rotate-token-key"], ""),
        (&["forget-plain-tokens"], ""),
        (&["seal-rows"], ""),
    ];
    for (words, input) in acts {
        act(&server, words, "/nonexistent/master.key", input)
            .expect(1)
            .says("needs the server's master key");
        act(&server, words, &other, input)
            .expect(1)
            .says("was sealed by key");
    }
    assert_eq!(told(&server, "token.created"), 1);
    for (words, input) in acts {
        act(&server, words, &key, input).expect(0);
    }
    for (kind, count) in [
        ("token.created", 2),
        ("user.password_set", 2),
        ("break_glass.armed", 1),
        ("break_glass.disarmed", 1),
        ("token.key_rotated", 1),
        ("rows.adopted", 1),
    ] {
        assert_eq!(told(&server, kind), count, "{kind}");
    }
}
