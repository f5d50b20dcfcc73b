//! An upgrade with stored rows. The real server of the version before writes the rows; today's
//! server then serves the same database, beside the older server and after a restart.
//! When tests/previous/COMMIT moves, the rows become those that the next rules refuse.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::doctor::{doctor, tells};
use crate::muster::{MUSTER, Said, file, folder, run};

const PASSWORD: &str = "correct horse battery";

/// Objects that the version before accepts and a rule of today refuses: a site without networks of
/// BMCs, a node with a BMC there, a suite with a program of no parser.
const OBJECTS: &str = "
kind: site
name: lab
spec: {}
---
kind: credential
name: bmc
spec: {purpose: bmc, user: root, secret: calvin}
---
kind: node
name: n1
spec: {site: lab, power: {redfish: {bmc: {address: 10.78.0.1, credential: bmc}}}, macs: [{mac: '52:54:00:00:00:01'}], accept: false}
---
kind: suite
name: checks
spec:
  name: checks
  version: '1'
  gates: [{id: site.disk, title: A disk, stage: inventory, timeout_s: 30, parser: fio, argv: [setsid, fio], finding: The disk is broken.,
           criteria: [{metric: fio.error, op: ==, limit: 0, unit: errno}]}]
---
kind: role_binding
name: infra
spec: {subject: 'group:infra', role: operator}
";

/// Returns the path of `muster` of the version before. A missing program fails the test: a skipped
/// test would look like a passed test.
fn find_former() -> PathBuf {
    let commit = file("tests/previous/COMMIT");
    let place = format!("../.cache/previous/{}/muster", commit.trim());
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(place);
    assert!(
        program.exists(),
        "muster of the version before ({}) is not built: run `make previous`",
        commit.trim()
    );
    program
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // As a service manager ends a program, so that a private Postgres ends too.
        let pid = self.0.id().to_string();
        Command::new("kill").arg(&pid).status().ok();
        self.0.wait().ok();
    }
}

/// Reads the lines of a program up to a line with the text, and returns the line.
fn read_until(output: impl Read + Send + 'static, text: &str) -> String {
    let mut lines = BufReader::new(output);
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        let read = lines.read_line(&mut line).unwrap();
        assert!(read > 0, "the program ended before {text:?}");
    }
    // The rest is read too, so that the program never waits for a reader.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    line
}

/// The database, the data directory and the master key of an installation.
struct Installation {
    database: String,
    // Postgres ends before the directory is removed.
    _postgres: Program,
    dir: TempDir,
}

impl Installation {
    /// Starts a private Postgres, with an administrator's token of the version before.
    fn start(former: &Path) -> Self {
        let dir = folder();
        let mut command = Command::new(former);
        command
            .args(["dev", "--postgres-only", "--data-dir"])
            .arg(dir.path().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut postgres = Program(command.spawn().unwrap());
        let output = postgres.0.stdout.take().unwrap();
        let database = read_until(output, "postgresql://").trim().to_owned();
        Self {
            database,
            _postgres: postgres,
            dir,
        }
    }

    /// Returns the path of a file in the data directory.
    fn place(&self, name: &str) -> String {
        let place = self.dir.path().join("data").join(name);
        place.display().to_string()
    }

    fn token(&self) -> String {
        std::fs::read_to_string(self.place("token")).unwrap()
    }

    /// Runs `muster admin` of a version.
    fn act(&self, program: &Path, words: &[&str], input: &str) -> Said {
        let mut command = self.command(program);
        run(command.arg("admin").args(words), input).expect(0)
    }

    /// Returns a command of a version, with the database and the master key. The environment names
    /// both, because the versions differ in the options of `muster admin`.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.path())
            .env("MUSTER_DATABASE_URL", &self.database)
            .env("MUSTER_KEY_FILE", self.place("master.key"));
        command
    }
}

/// A server of one of the versions.
struct Replica<'host> {
    installation: &'host Installation,
    program: PathBuf,
    url: String,
    _serving: Program,
}

impl<'host> Replica<'host> {
    /// Starts a server, and waits until the server serves.
    fn start(installation: &'host Installation, program: &Path) -> Self {
        let data = installation.place("replica");
        let mut command = installation.command(program);
        command
            .args(["server", "--listen", "127.0.0.1:0"])
            .args(["--agent-listen", "127.0.0.1:0", "--data-dir", &data])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut serving = Program(command.spawn().unwrap());
        let output = serving.0.stderr.take().unwrap();
        let line = read_until(output, " listen=");
        let (_, rest) = line.split_once(" listen=").unwrap();
        let address = rest.split_whitespace().next().unwrap();
        Self {
            installation,
            program: program.to_owned(),
            url: format!("http://{address}"),
            _serving: serving,
        }
    }

    /// Runs the command line of the same version, as the first administrator.
    fn muster(&self, words: &[&str], input: &str) -> Said {
        let mut command = self.installation.command(&self.program);
        command
            .args(words)
            .env("MUSTER_SERVER", &self.url)
            .env("MUSTER_TOKEN", self.installation.token());
        run(&mut command, input).expect(0)
    }

    /// Makes a token of a role.
    fn make_token(&self, name: &str, role: &str) -> Caller {
        let words = ["token", "create", name, "--role", role, "--json"];
        let made = self.muster(&words, "").json();
        Caller::of_token(made["secret"].as_str().unwrap())
    }

    /// The number of events of a kind.
    fn count_events(&self, kind: &str) -> usize {
        let listed = self.muster(&["event", "list", "--json"], "");
        let events = listed.out.lines().map(|line| {
            let event: Value = serde_json::from_str(line).expect("an event");
            event["kind"] == kind
        });
        events.filter(|is_of_kind| *is_of_kind).count()
    }

    /// Calls a path. Returns the status and the answer.
    fn call(&self, caller: &Caller, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let mut command = Command::new("curl");
        command
            .args(["-sS", "--noproxy", "*", "--max-time", "60", "-X", method])
            .args(["-w", "\n%{http_code}", "-H", &caller.0])
            .args(["-H", "content-type: application/json"])
            .arg(format!("{}{path}", self.url));
        if let Some(body) = body {
            command.arg("--data").arg(body.to_string());
        }
        let said = run(&mut command, "").expect(0);
        let (text, status) = said.out.rsplit_once('\n').unwrap();
        Reply {
            status: status.parse().unwrap(),
            text: text.to_owned(),
        }
    }

    fn get(&self, caller: &Caller, path: &str) -> Reply {
        self.call(caller, "GET", path, None)
    }

    fn put(&self, caller: &Caller, path: &str, body: &Value) -> Reply {
        self.call(caller, "PUT", path, Some(body))
    }

    /// Signs ada in.
    fn sign_in(&self) -> Caller {
        let mut command = Command::new("curl");
        command
            .args(["-sS", "--noproxy", "*", "--max-time", "60", "--include"])
            .args(["--data-urlencode", "name=ada", "--data-urlencode"])
            .arg(format!("password={PASSWORD}"))
            .arg(format!("{}/sign-in", self.url));
        let said = run(&mut command, "").expect(0);
        let (_, rest) = said
            .out
            .split_once("muster_session=")
            .unwrap_or_else(|| panic!("no session in {said:?}"));
        let session = rest.split(';').next().unwrap();
        Caller(format!("cookie: muster_session={session}"))
    }
}

/// A credential, as a header.
struct Caller(String);

impl Caller {
    fn of_token(token: &str) -> Self {
        Self(format!("authorization: Bearer {}", token.trim()))
    }
}

/// The answer of a server.
#[derive(Debug)]
struct Reply {
    status: u16,
    text: String,
}

impl Reply {
    /// Fails the test for another status.
    #[track_caller]
    fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// Fails the test for an answer without the text.
    #[track_caller]
    fn says(&self, text: &str) {
        assert!(self.text.contains(text), "no {text:?} in {}", self.text);
    }
}

/// Callers of the version before.
struct Former {
    operator: Caller,
    viewer: Caller,
    /// An administrator's token without a person.
    host: Caller,
    /// A session of ada, an administrator.
    ada: Caller,
}

impl Former {
    /// Writes the rows by the server of the version before.
    fn write(before: &Replica<'_>) -> Self {
        before.muster(&["apply", "-f", "-", "-q"], OBJECTS);
        let installation = before.installation;
        let program = &before.program;
        installation.act(program, &["password", "--user", "ada"], PASSWORD);
        let host = installation.act(program, &["token", "--name", "host"], "");
        Self {
            operator: before.make_token("former-operator", "operator"),
            viewer: before.make_token("former-viewer", "viewer"),
            host: Caller::of_token(&host.out),
            ada: before.sign_in(),
        }
    }
}

/// The suite of [`OBJECTS`] with another program.
fn suite(argv: &Value) -> Value {
    json!({ "labels": { "team": "a" }, "spec": { "name": "checks", "version": "1", "gates": [{
        "id": "site.disk", "title": "A disk", "stage": "inventory", "timeout_s": 30, "parser": "fio", "argv": argv,
        "finding": "The disk is broken.", "criteria": [{ "metric": "fio.error", "op": "==", "limit": 0, "unit": "errno" }],
    }]}})
}

/// The node of [`OBJECTS`] with another address of the BMC.
fn node(address: &str) -> Value {
    json!({ "labels": { "team": "a" }, "spec": {
        "site": "lab", "power": { "redfish": { "bmc": { "address": address, "credential": "bmc" } } },
        "macs": [{ "mac": "52:54:00:00:00:01" }],
    }})
}

const SUITE: &str = "/v1/suites/checks";
const NODE: &str = "/v1/nodes/n1";
const CONSOLE: &str = "/v1/nodes/n1/console";

/// The rows go on, and the same request is refused to rows of today.
fn expect_to_go_on(today: &Replica<'_>, former: &Former) {
    today.get(&former.host, "/v1/users").expect(200);
    today.get(&former.ada, "/v1/users").expect(200);

    let stored = suite(&json!(["setsid", "fio"]));
    today.put(&former.operator, SUITE, &stored).expect(200);
    let operator = today.make_token("operator", "operator");
    let refused = today.put(&operator, SUITE, &stored).expect(403);
    refused.says("suite.write");
    let worse = suite(&json!(["dd", "if=/dev/zero", "of=/dev/sda"]));
    let refused = today.put(&former.operator, SUITE, &worse).expect(422);
    refused.says("unsound_gate");

    today.get(&former.viewer, CONSOLE).expect(200);
    let viewer = today.make_token("viewer", "viewer");
    today.get(&viewer, CONSOLE).expect(403).says("node.console");
    assert_eq!(today.count_events("role.kept_verb_used"), 2);

    today
        .put(&former.host, NODE, &node("10.78.0.1"))
        .expect(200);
    let moved = today.put(&former.host, NODE, &node("10.78.0.2"));
    moved.expect(422).says("no_networks");
}

/// The doctor names each of the rows.
fn expect_to_be_named(today: &Replica<'_>) {
    let installation = today.installation;
    let (token, key) = (
        installation.place("token"),
        installation.place("master.key"),
    );
    let arguments = [
        "--as",
        "server",
        "--only",
        "roles,seals,suites,networks,documents",
        "--database-url",
        &installation.database,
        "--key-file",
        &key,
        "--server",
        &today.url,
        "--token-file",
        &token,
    ];
    let told = doctor(installation.dir.path(), &arguments, 0);
    for text in [
        "the token former-operator (operator) writes images",
        "the token former-viewer (viewer) reads consoles",
        "the role binding infra of group:infra (operator)",
        "the administrator's token host has no person",
        "rows without a seal count until",
        "the suite checks is from before the rule of programs",
        "the site lab declares no bmc_networks",
    ] {
        tells(&told, "warn", text);
    }
    tells(&told, "ok", "every stored document");
    let named = format!("{told:?}");
    for of_today in ["the token operator", "the token viewer"] {
        assert!(!named.contains(of_today), "{named}");
    }
}

#[test]
fn rows_of_the_version_before_go_on_and_the_doctor_names_them() {
    let former = find_former();
    let installation = Installation::start(&former);
    let before = Replica::start(&installation, &former);
    let rows = Former::write(&before);
    let today = Replica::start(&installation, Path::new(MUSTER));
    expect_to_go_on(&today, &rows);
    expect_to_be_named(&today);
}

#[test]
fn rows_are_adopted_once_while_the_older_server_goes_on() {
    let former = find_former();
    let installation = Installation::start(&former);
    let before = Replica::start(&installation, &former);
    let rows = Former::write(&before);
    let today = Replica::start(&installation, Path::new(MUSTER));
    assert_eq!(today.count_events("rows.adopted"), 1);

    // The older server serves the rows of both versions, and writes.
    let site = json!({ "spec": {} });
    before.put(&rows.host, "/v1/sites/other", &site).expect(201);
    let viewer = today.make_token("viewer", "viewer");
    for caller in [&rows.operator, &rows.viewer, &rows.ada, &viewer] {
        for server in [&before, &today] {
            server.get(caller, NODE).expect(200);
        }
    }
    // A token of the older server counts within the hours of the upgrade.
    let late = before.make_token("late", "viewer");
    today.get(&late, NODE).expect(200);

    // The administrator ends the hours. A further token counts for no server of today.
    installation.act(Path::new(MUSTER), &["seal-rows", "--yes"], "");
    let later = before.make_token("later", "viewer");
    before.get(&later, NODE).expect(200);
    today.get(&later, NODE).expect(401);
    // A restart adopts no row.
    let adopted = today.count_events("rows.adopted");
    drop(today);
    let today = Replica::start(&installation, Path::new(MUSTER));
    today.get(&later, NODE).expect(401);
    for caller in [&rows.operator, &rows.viewer, &rows.ada, &late] {
        today.get(caller, NODE).expect(200);
    }
    assert_eq!(today.count_events("rows.adopted"), adopted);
}
