//! The log of the long-running programs: JSON lines, and the level changed by signals.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use crate::muster::{folder, muster};

/// A program under test. Every line of its log must be JSON.
struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                sender.send(line).ok();
            }
        });
        Self { child, lines }
    }

    /// Returns the next line with the message.
    fn wait_for(&self, message: &str) -> Value {
        loop {
            let line = self
                .lines
                .recv()
                .unwrap_or_else(|error| panic!("no {message:?}: {error}"));
            let line: Value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if line["message"] == message {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal("TERM");
        self.child.wait().ok();
    }
}

fn get(address: &str, path: &str, id: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nX-Request-Id: {id}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_server_logs_json_and_its_level_follows_signals() {
    let dir = folder();
    let data = dir.path().join("data");
    let mut command = muster(dir.path(), &["dev", "--log-format", "json"]);
    command
        .args(["--listen", "127.0.0.1:0", "--agent-listen", "127.0.0.1:0"])
        .arg("--data-dir")
        .arg(&data);
    let program = Program::start(&mut command);
    let serving = program.wait_for("serving");
    assert_eq!(serving["level"], "INFO");
    let address = serving["listen"].as_str().unwrap().to_owned();

    // A read is logged at debug, so the first read leaves no line.
    get(&address, "/v1/sites?filter=canary-query", "first");
    program.signal("USR1");
    let changed = program.wait_for("log level changed by a signal");
    let filter = changed["filter"].as_str().unwrap();
    assert!(filter.contains("muster_server=debug"), "{filter}");
    get(&address, "/v1/sites?filter=canary-query", "second");
    let answered = program.wait_for("request answered");
    let span = &answered["spans"][0];
    assert_eq!(
        (&answered["level"], &answered["status"]),
        (&"DEBUG".into(), &401.into())
    );
    for (field, value) in [
        ("name", "request"),
        ("request_id", "second"),
        ("method", "GET"),
        ("route", "/v1/sites"),
    ] {
        assert_eq!(span[field], value, "{answered}");
    }
    assert!(!answered.to_string().contains("canary-query"), "{answered}");

    program.signal("USR2");
    let changed = program.wait_for("log level changed by a signal");
    assert_eq!(changed["filter"], "info");
    get(&address, "/v1/sites", "third");
    program.signal("USR1");
    get(&address, "/v1/sites", "fourth");
    program.wait_for("log level changed by a signal");
    get(&address, "/v1/sites", "fifth");
    let answered = program.wait_for("request answered");
    assert_ne!(answered["spans"][0]["request_id"], "third", "{answered}");
}

#[test]
fn an_agent_logs_json_and_its_level_follows_signals() {
    let dir = folder();
    for file in ["undionly.kpxe", "snponly.efi", "muster.ipxe", "muster-node"] {
        std::fs::write(dir.path().join(file), file).unwrap();
    }
    // A token for an unknown authority, with a checksum.
    let token = dir.path().join("agent-token");
    std::fs::write(&token, format!("msa_1_secret_{}", "0".repeat(72))).unwrap();
    let mut command = muster(dir.path(), &["agent", "--server", "https://127.0.0.1:9"]);
    command
        .env("MUSTER_LOG_FORMAT", "json")
        .env("MUSTER_LOG", "warn")
        .env("MUSTER_IPXE_DIR", dir.path())
        .env("MUSTER_NODE_BINARY", dir.path().join("muster-node"))
        .arg("--token-file")
        .arg(token)
        .arg("--data-dir")
        .arg(dir.path().join("data"));
    let program = Program::start(&mut command);
    let retrying = "server not reachable; retrying; check the server and the network";
    assert_eq!(program.wait_for(retrying)["level"], "WARN");
    program.signal("USR1");
    let changed = program.wait_for("log level changed by a signal");
    let filter = changed["filter"].as_str().unwrap();
    assert!(filter.contains("muster_agent=info"), "{filter}");
    program.signal("USR2");
    let changed = program.wait_for("log level changed by a signal");
    assert_eq!(changed["filter"], "warn");
}
