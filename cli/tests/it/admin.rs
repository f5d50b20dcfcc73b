//! `muster admin`: acts on the host need the master key, and are events with user and host.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::doctor::psql;
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

    let acts: [(&[&str], &str); 8] = [
        (&["token", "--name", "second"], ""),
        (&["password", "--user", "ada"], password),
        (&["arm", "--reason", "a test"], ""),
        (&["disarm"], ""),
        (&["rotate-token-key"], ""),
        (&["forget-plain-tokens"], ""),
        (&["seal-rows", "--yes"], ""),
        (&["keys"], ""),
    ];
    let holds: [&[&str]; 4] = [
        &["hold-records", "--node", "n1", "--reason", "a lawsuit"],
        &["release-records", "--node", "n1", "--reason", "it is over"],
        &["list-holds"],
        &["unused-blobs"],
    ];
    for (words, input) in acts.into_iter().chain(holds.map(|words| (words, ""))) {
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
        ("rows.sealed", 1),
    ] {
        assert_eq!(told(&server, kind), count, "{kind}");
    }
}

#[test]
fn a_rotation_needs_the_master_key_and_two_acts() {
    let server = Server::start();
    let key = server.dir.path().join("data/master.key");
    let key = key.display().to_string();
    let other = server.dir.path().join("other.key");
    std::fs::write(&other, [9; 32]).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
    let other = other.display().to_string();
    let begin = |verb: &str, key: &str, code: i32| act(&server, &[verb], key, "").expect(code);
    let end = |words: &[&str], code: i32| act(&server, words, &key, "").expect(code);

    for verb in ["rotate-ssh-ca", "rotate-permit", "rotate-agent-ca"] {
        begin(verb, "/nonexistent/master.key", 1).says("needs the server's master key");
        begin(verb, &other, 1).says("was sealed by key");
        end(&[verb, "--finish"], 1).says("no rotation of");
        end(&[verb, "--forget", "n1"], 2).says("--finish");
        begin(verb, &key, 0).says("a new key is valid beside the former key");
        begin(verb, &key, 0).says("a rotation is under way");
    }
    assert_eq!(told(&server, "key.rotation_started"), 3);
    let keys = end(&["keys"], 0);
    for name in ["ssh_user_ca", "permit", "agent_ca"] {
        assert!(keys.out.contains(&format!("{name} is rotated from")));
    }
    for verb in ["rotate-ssh-ca", "rotate-permit"] {
        end(&[verb, "--finish", "--forget", "n7"], 1).says("--forget n7");
        end(&[verb, "--finish"], 0).says("is ended");
    }
    // A server of the version before accepts one authority.
    psql(
        &server.database("muster"),
        "DELETE FROM key_holders; INSERT INTO key_holders VALUES (gen_random_uuid(), 'server-9', '{}', now())",
    );
    end(&["rotate-agent-ca", "--finish"], 1).says("server-9");
    assert_eq!(told(&server, "key.rotated"), 2);

    begin("rotate-master", "/nonexistent/master.key", 1).says("needs the server's master key");
    begin("rotate-master", &key, 1).says("is the present key");
    let missing = ["rotate-master", "--new-key-file", "/nonexistent/2.key"];
    end(&missing, 1).says("--new-key-file");
    end(&["rotate-master", "--new-key-file", &other], 1).says("server-9");
    end(&["rotate-master", "--new-key-file", &other, "--finish"], 1)
        .says("no rotation of the master key");
}

#[test]
fn arming_without_a_valid_local_administrator_names_the_way() {
    let server = Server::start();
    let key = server.dir.path().join("data/master.key");
    let key = key.display().to_string();
    let arm = ["arm", "--reason", "the provider is away"];
    act(&server, &arm, &key, "")
        .expect(0)
        .says("may sign in until");
    let url = server.database("muster");
    psql(&url, "UPDATE users SET seal = NULL");
    act(&server, &arm, &key, "")
        .expect(1)
        .says("no login counts")
        .says("muster admin seal-rows");
    act(&server, &["token", "--name", "later"], &key, "")
        .expect(0)
        .says("have no valid seal, and are refused");
    act(
        &server,
        &["seal-rows", "--only", "person:admin", "--yes"],
        &key,
        "",
    )
    .expect(0);
    act(&server, &arm, &key, "")
        .expect(0)
        .says("may sign in until");
    psql(
        &url,
        "UPDATE users SET disabled_at = now(), disabled_by = 'x'",
    );
    act(&server, &arm, &key, "")
        .expect(0)
        .says("muster admin password");
}

#[test]
fn seal_rows_prints_the_names_and_seals_only_at_a_word() {
    let server = Server::start();
    let key = server.dir.path().join("data/master.key");
    let key = key.display().to_string();
    psql(
        &server.database("muster"),
        "INSERT INTO tokens (id, name, token_hash, role, created_at, expires_at)
         VALUES (gen_random_uuid(), 'forged', '\\x01', 'admin', now(), now() + interval '1 day')",
    );
    let seal = |words: &[&str], code: i32| {
        let words = [&["seal-rows"], words].concat();
        act(&server, &words, &key, "").expect(code)
    };
    for _ in 0..2 {
        seal(&[], 0)
            .says("token forged (admin)")
            .says("and not sealed: 1 token.");
    }
    seal(&["--only", "token:other", "--yes"], 1).says("no such row named other");
    seal(&["--only", "session:1", "--yes"], 2).says("token:NAME");
    assert_eq!(told(&server, "rows.sealed"), 0);
    seal(&["--only", "token:forged", "--yes"], 0).says("sealed without a change: 1 token");
    assert_eq!(told(&server, "rows.sealed"), 1);
    seal(&[], 0).says("no row");
}

#[test]
fn a_legal_hold_names_a_known_node_and_is_an_event() {
    let server = Server::start();
    let key = server.dir.path().join("data/master.key");
    let key = key.display().to_string();
    let hold = ["hold-records", "--node", "n1", "--reason", "a lawsuit"];
    let release = ["release-records", "--node", "n1", "--reason", "it is over"];
    act(&server, &hold, &key, "").expect(1).says("no node n1");
    server.muster(&["site", "create", "lab"]).expect(0);
    psql(
        &server.database("muster"),
        "INSERT INTO nodes (id, name, created_at, updated_at, spec, site_id, power, power_person, state, entered_at)
         SELECT gen_random_uuid(), 'n1', now(), now(), '{}', id, 'manual', 'ada', 'discovered', now() FROM objects WHERE kind = 'site'",
    );
    act(&server, &hold, &key, "").expect(0);
    act(&server, &hold, &key, "")
        .expect(0)
        .says("under a legal hold already");
    act(&server, &["list-holds"], &key, "")
        .expect(0)
        .says("a lawsuit");
    act(&server, &release, &key, "").expect(0);
    act(&server, &release, &key, "")
        .expect(0)
        .says("is not under a legal hold");
    assert_eq!(told(&server, "records.held"), 1);
    assert_eq!(told(&server, "records.released"), 1);
    let vague = ["hold-records", "--node", "n1", "--reason", " "];
    act(&server, &vague, &key, "").expect(1).says("--reason");
}

#[test]
fn unused_blobs_are_listed_and_stay() {
    let server = Server::start();
    let data = server.dir.path().join("data");
    let key = data.join("master.key").display().to_string();
    let file = server.dir.path().join("firmware.bin");
    std::fs::write(&file, "unused").unwrap();
    let file = file.display().to_string();
    server.muster(&["blob", "put", &file]).expect(0);
    let nowhere = ["unused-blobs", "--data-dir", "/nonexistent"];
    act(&server, &nowhere, &key, "")
        .expect(1)
        .says("name the data directory of the servers with --data-dir");
    let data = data.display().to_string();
    let list = ["unused-blobs", "--data-dir", &data];
    for _ in 0..2 {
        act(&server, &list, &key, "")
            .expect(0)
            .says("6 bytes, noted by the next round of a server")
            .says("1 unused blobs, 6 bytes");
    }
    psql(
        &server.database("muster"),
        "INSERT INTO unused_blobs SELECT digest, timestamptz '2026-01-05 08:00Z' FROM blobs",
    );
    let keep = [&list[..], &["--keep-unused-blobs-days", "10"]].concat();
    act(&server, &keep, &key, "")
        .expect(0)
        .says("unused since 2026-01-05T08:00:00Z, removed after 2026-01-15T08:00:00Z");
}
