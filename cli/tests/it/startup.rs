//! Errors at the start of a program, and `muster version`: each message names the file or the
//! address, and the remedy.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::muster::{MUSTER, Server, folder, muster, run};

/// Starts `muster dev` with this data directory and this console address.
fn dev(home: &Path, dir: &Path, listen: &str) -> crate::muster::Said {
    let dir = dir.to_str().unwrap();
    let arguments = [
        "dev",
        "--data-dir",
        dir,
        "--listen",
        listen,
        "--agent-listen",
        "127.0.0.1:0",
    ];
    run(&mut muster(home, &arguments), "")
}

/// Starts `muster agent` with a token file and a data directory.
fn agent(home: &Path, token: &Path, dir: &Path) -> crate::muster::Said {
    let arguments = [
        "agent",
        "--server",
        "https://127.0.0.1:1",
        "--token-file",
        token.to_str().unwrap(),
        "--data-dir",
        dir.to_str().unwrap(),
    ];
    run(&mut muster(home, &arguments), "")
}

#[test]
fn a_closed_data_directory_is_named_with_the_user_and_the_remedy() {
    let home = folder();
    let closed = home.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    let root = nix::unistd::Uid::effective().is_root();
    // A test running as root needs a directory closed to the user of Postgres.
    let mode = if root { 0o700 } else { 0o500 };
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).unwrap();
    let said = dev(home.path(), &closed.join("data"), "127.0.0.1:0").expect(1);
    let said = said.says(closed.to_str().unwrap());
    match root {
        true => said
            .says("Postgres runs as user ")
            .says(&format!("chmod o+x {}", closed.display())),
        false => said.says("The program runs as user "),
    };
}

#[test]
fn a_port_in_use_is_named_with_the_option() {
    let home = folder();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    dev(home.path(), &home.path().join("data"), &address)
        .expect(1)
        .says(&format!("listen on {address}"))
        .says("--listen")
        .says("The program runs as user ")
        .says("Another program uses the address.");
}

#[test]
fn plain_http_beyond_loopback_is_refused_with_both_options() {
    let home = folder();
    let said = dev(home.path(), &home.path().join("data"), "0.0.0.0:0").expect(1);
    said.says("plain http on 0.0.0.0:0")
        .says("--tls-cert FILE --tls-key FILE")
        .says("--behind-tls-proxy");
}

#[test]
fn a_server_with_a_certificate_is_called_with_its_authority_alone() {
    let dir = folder();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (certificate, key) = (at("cert.pem"), at("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl
        .args([
            "req",
            "-x509",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=muster",
        ])
        .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-out", &certificate, "-keyout", &key]);
    run(&mut openssl, "").expect(0);
    let options = ["--tls-cert", &certificate, "--tls-key", &key];
    let server = Server::start_in(dir, "https", &options);
    server
        .muster(&["site", "create", "lab", "--ca", &certificate])
        .expect(0);
    let mut named = server.command(&["site", "list"]);
    run(named.env("MUSTER_CA", &certificate), "")
        .expect(0)
        .says("lab");
    server
        .muster(&["site", "list"])
        .expect(5)
        .says("invalid peer certificate");
}

#[test]
fn a_passed_descriptor_other_than_a_socket_is_named_with_the_remedy() {
    let home = folder();
    let data = home.path().join("data");
    let mut command = Command::new("sh");
    // The process of the shell becomes the program, as with a service manager.
    command
        .arg("-c")
        .arg("export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\" 3</dev/null")
        .args([MUSTER, "dev", "--agent-listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home.path());
    run(&mut command, "")
        .expect(1)
        .says("LISTEN_FDS")
        .says("pass a listening TCP socket")
        .says("fd 3 is not a socket");
}

#[test]
fn an_identity_readable_by_others_has_a_single_remedy() {
    let home = folder();
    let (token, dir) = (home.path().join("token"), home.path().join("agent"));
    std::fs::write(&token, "mst_e").unwrap();
    std::fs::create_dir(&dir).unwrap();
    let identity = dir.join("identity.json");
    std::fs::write(&identity, "{}").unwrap();
    std::fs::set_permissions(&identity, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = agent(home.path(), &token, &dir).expect(1);
    assert!(!said.err.contains("Give the user access"), "{said:?}");
    said.says(identity.to_str().unwrap()).says("chmod 600");
}

#[test]
fn an_unreadable_file_is_named_with_the_remedy() {
    let home = folder();
    let missing = home.path().join("enrolment-token");
    agent(home.path(), &missing, &home.path().join("agent"))
        .expect(1)
        .says(missing.to_str().unwrap())
        .says("The program runs as user ")
        .says("Create the file, or correct its path.");
    // An agent's data directory below a file.
    let (token, dir) = (home.path().join("token"), home.path().join("token/data"));
    std::fs::write(&token, "mst_e").unwrap();
    let said = agent(home.path(), &token, &dir).expect(1);
    assert_eq!(said.err.matches("Not a directory").count(), 1, "{said:?}");
    said.says(&format!("data directory ({})", dir.display()))
        .says("A part of the path is a file.");
    // A directory is unreadable as a file, for root as well.
    let config = home.path().join(".config/muster/config.toml");
    std::fs::create_dir_all(&config).unwrap();
    let said = run(&mut muster(home.path(), &["node", "list"]), "");
    assert_ne!(said.code, 0);
    said.says(config.to_str().unwrap())
        .says("The path is a directory.");
    // The version of the program itself needs no configuration.
    run(&mut muster(home.path(), &["version"]), "")
        .expect(0)
        .says(&format!("muster  {} (commit ", env!("CARGO_PKG_VERSION")))
        .says(config.to_str().unwrap());
}

#[test]
fn versions_of_program_server_and_agents_are_shown() {
    let server = Server::start();
    let shown = server.muster(&["version", "-o", "json"]).expect(0).json();
    assert_eq!(shown["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(shown["server"], env!("CARGO_PKG_VERSION"));
    assert!(shown["schema"].as_i64().unwrap() > 0, "{shown}");
    assert_eq!(shown["error"], serde_json::Value::Null);
    assert_eq!(shown["agents"], serde_json::json!([]));
    let home = folder();
    let alone = ["version", "--server", "http://127.0.0.1:1"];
    run(&mut muster(home.path(), &alone), "")
        .expect(0)
        .says("(commit ")
        .says("server  unknown: ");
}

/// Runs a command without a reader from the first line on. Returns the exit code and the messages.
fn run_unread(mut command: Command) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), errors)
}

#[test]
fn a_command_without_a_reader_goes_on_to_its_end() {
    let home = folder();
    for shell in ["bash", "elvish"] {
        let ended = run_unread(muster(home.path(), &["completion", shell]));
        assert_eq!(ended, (Some(0), String::new()), "{shell}");
    }
    let bad = home.path().join("bad.toml");
    std::fs::write(&bad, "name = \"bad\"\nversion = \"1\"\ngates = []\n").unwrap();
    let lint = ["gate", "lint", bad.to_str().unwrap()];
    let read = run(&mut muster(home.path(), &lint), "");
    assert_ne!(read.code, 0, "{}", read.out);
    let (code, errors) = run_unread(muster(home.path(), &lint));
    assert_eq!(code, Some(read.code), "{errors}");
}

#[test]
fn without_a_reader_all_objects_are_removed_and_a_lost_secret_is_an_error() {
    let server = Server::start();
    for name in ["a", "b", "c"] {
        server.muster(&["site", "set", name]).expect(0);
    }
    let delete = server.command(&["site", "delete", "a", "b", "c", "--yes"]);
    assert_eq!(run_unread(delete).0, Some(0));
    let left = server.muster(&["site", "list", "-o", "json"]).expect(0);
    assert_eq!(left.json(), serde_json::json!([]));
    let create = ["token", "create", "robot", "--role", "viewer"];
    let (code, errors) = run_unread(server.command(&create));
    assert!(
        code != Some(0) && errors.contains("make another"),
        "{errors}"
    );
}
