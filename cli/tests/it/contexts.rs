//! Several servers: written down, chosen, and never told one another's tokens.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::muster::{Said, Server, folder, muster, run};

const SECRET: &str = "mst_canary_7d1f";

fn typed(home: &Path, arguments: &[&str], input: &str) -> Said {
    run(&mut muster(home, arguments), input)
}

/// Answers one request, and gives back what was sent.
fn listening() -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 8192];
        let length = stream.read(&mut bytes).unwrap();
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"items\":[]}";
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    });
    (url, heard)
}

#[test]
fn a_context_is_written_down_used_and_kept_to_oneself() {
    let server = Server::start();
    let home = folder();
    let home = home.path();
    let set = [
        "context",
        "set",
        "lab",
        "--server",
        &server.url,
        "--token-stdin",
    ];
    typed(home, &set, &server.token()).expect(0);
    let file = home.join(".config/muster/config.toml");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    typed(home, &["node", "list"], "").expect(0);

    let listed = typed(home, &["context", "list", "-o", "json"], "").expect(0);
    assert!(
        listed.out.contains(&server.url) && !listed.out.contains(server.token().trim()),
        "{}",
        listed.out
    );
    typed(home, &["context", "show"], "")
        .expect(0)
        .says("lab")
        .says("kept");
    typed(home, &["context", "use", "prod"], "")
        .expect(2)
        .says("context \"prod\" does not exist");
    typed(home, &["node", "list", "--context", "prod"], "").expect(2);

    // What others may read is not used: whoever read it has the token.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    typed(home, &["node", "list"], "")
        .expect(2)
        .says("chmod 600");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    typed(home, &["context", "delete", "lab"], "").expect(0);
    typed(home, &["context", "list", "-o", "name"], "").expect(0);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("mst_"));
}

#[test]
fn another_server_is_never_told_a_contexts_token() {
    let home = folder();
    let home = home.path();
    let (own, heard) = listening();
    typed(
        home,
        &["context", "set", "own", "--server", &own, "--token-stdin"],
        SECRET,
    )
    .expect(0);
    typed(home, &["node", "list"], "").expect(0);
    assert!(heard.join().unwrap().contains(SECRET));
    let (other, heard) = listening();
    typed(home, &["node", "list", "--server", &other], "").expect(0);
    assert!(!heard.join().unwrap().contains(SECRET));
    // Nor when the context is given another address.
    let (moved, heard) = listening();
    typed(home, &["context", "set", "own", "--server", &moved], "").expect(0);
    typed(home, &["node", "list"], "").expect(0);
    assert!(!heard.join().unwrap().contains(SECRET));
}

#[test]
fn a_broken_file_is_told_without_what_is_in_it() {
    let home = folder();
    let folder = home.path().join(".config/muster");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(
        folder.join("config.toml"),
        format!("[contexts.a]\nserver = \"http://x\"\ntoken = \"{SECRET}\n"),
    )
    .unwrap();
    let said = typed(home.path(), &["node", "list"], "")
        .expect(2)
        .says("line 3");
    assert!(!said.err.contains(SECRET), "{}", said.err);
}
