//! Tokens: made once, used, revoked.

use crate::muster::{Server, muster, run};

#[test]
fn a_token_is_made_once_and_revoked() {
    let server = Server::start();
    let made = server
        .muster(&["token", "create", "ci", "--role", "viewer", "--lasts", "1h"])
        .expect(0);
    let secret = made.out.trim().to_owned();
    let listed = server.muster(&["token", "list", "--json"]).expect(0);
    assert!(secret.starts_with("mst_") && !listed.out.contains(&secret));
    let tokens = listed.json();
    let id = tokens
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["name"] == "ci")
        .unwrap()["id"]
        .as_str()
        .unwrap();
    let as_it = |arguments: &[&str]| {
        let mut command = muster(server.dir.path(), arguments);
        run(
            command
                .env("MUSTER_SERVER", &server.url)
                .env("MUSTER_TOKEN", &secret),
            "",
        )
    };
    as_it(&["node", "list"]).expect(0);
    as_it(&["site", "create", "lab"]).expect(7);
    server.muster(&["token", "revoke", id]).expect(0);
    as_it(&["node", "list"]).expect(7);
    // A free port, without a server.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    server
        .muster(&["node", "list", "--server", &gone])
        .expect(5)
        .says("cannot be reached");
}
