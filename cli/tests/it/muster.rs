//! Runs `muster` against a private server: `muster dev` with a private Postgres, ended with the
//! test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The path of the built `muster`.
pub(crate) const MUSTER: &str = env!("CARGO_BIN_EXE_muster");

/// A running server, with a home directory for the caller.
pub(crate) struct Server {
    pub(crate) url: String,
    /// The address for agents.
    pub(crate) agent_url: String,
    pub(crate) dir: TempDir,
    child: Child,
}

/// The output and the exit code of a program.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Fails the test unless the program ended with `code`.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(
            self.out.contains(text) || self.err.contains(text),
            "no {text:?} in: {}{}",
            self.out,
            self.err
        );
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// Returns a temporary directory that Postgres can enter. Root's tests run Postgres as a different
/// user.
pub(crate) fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

impl Server {
    /// Starts a server and waits until the server listens.
    pub(crate) fn start() -> Self {
        Self::start_in(folder(), "http", &[])
    }

    /// Starts a server like `start`, with the given folder, options and scheme of the address.
    pub(crate) fn start_in(dir: TempDir, scheme: &str, options: &[&str]) -> Self {
        let mut command = Command::new(MUSTER);
        command.args([
            "dev",
            "--listen",
            "127.0.0.1:0",
            "--agent-listen",
            "127.0.0.1:0",
            "--data-dir",
        ]);
        command
            .arg(dir.path().join("data"))
            .args(options)
            .env("MUSTER_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let (address, agents) = loop {
            line.clear();
            assert!(
                log.read_line(&mut line).unwrap() > 0,
                "the server ended before it served"
            );
            let plain = line
                .replace("\u{1b}[3m", "")
                .replace("\u{1b}[0m", "")
                .replace("\u{1b}[2m", "");
            let told = |word| {
                plain
                    .split_once(word)
                    .and_then(|(_, rest)| rest.split_whitespace().next())
            };
            if let Some((address, agents)) = told(" listen=").zip(told(" agent_listen=")) {
                break (address.to_owned(), agents.to_owned());
            }
        };
        // A thread drains the server's log: a full pipe would block the server.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self {
            url: format!("{scheme}://{address}"),
            agent_url: format!("https://{agents}"),
            dir,
            child,
        }
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("data/token")).unwrap()
    }

    /// Returns the URL of a database in the server's Postgres.
    pub(crate) fn database(&self, name: &str) -> String {
        format!(
            "postgresql:///{name}?host={}&user=muster",
            self.dir.path().join("data/postgres").display()
        )
    }

    /// Runs `muster` as an administrator.
    pub(crate) fn muster(&self, arguments: &[&str]) -> Said {
        self.typed(arguments, "")
    }

    /// Runs `muster` as an administrator, with `input` on standard input.
    pub(crate) fn typed(&self, arguments: &[&str], input: &str) -> Said {
        run(&mut self.command(arguments), input)
    }

    /// Returns the command of `muster` as an administrator.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = muster(self.dir.path(), arguments);
        command
            .env("MUSTER_SERVER", &self.url)
            .env("MUSTER_TOKEN", self.token());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM, as from a service manager, so that Postgres ends with the server.
        let pid = self.child.id().to_string();
        Command::new("kill").arg(&pid).status().ok();
        self.child.wait().ok();
    }
}

/// Returns the command of `muster` in an environment of only `PATH` and `HOME`.
pub(crate) fn muster(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(MUSTER);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home);
    command
}

/// Runs a command to the end.
pub(crate) fn run(command: &mut Command, input: &str) -> Said {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The write fails when the program exits without reading. Tests compare only the output.
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    let output = child.wait_with_output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Reads a file of the repository.
pub(crate) fn file(path: &str) -> String {
    std::fs::read_to_string(
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(path),
    )
    .unwrap()
}
