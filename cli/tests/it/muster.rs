//! `muster`, and a server of the test's own: `muster dev` on a private Postgres, ended with the test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The program.
pub(crate) const MUSTER: &str = env!("CARGO_BIN_EXE_muster");

/// A server, and a home of whoever calls it.
pub(crate) struct Server {
    pub(crate) url: String,
    /// Where its agents call it.
    pub(crate) agent_url: String,
    pub(crate) dir: TempDir,
    child: Child,
}

/// What a program said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Fails the test unless it ended so.
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

/// A directory that Postgres, which is another user where a test runs as root, can go through.
pub(crate) fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

impl Server {
    /// Starts one and waits until it serves.
    pub(crate) fn start() -> Self {
        Self::start_in(folder(), "http", &[])
    }

    /// The same in a folder, with more options and the scheme of the address.
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
        // What it goes on to say is read, so that it never waits for a reader.
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

    /// Where its Postgres listens.
    pub(crate) fn database(&self, name: &str) -> String {
        format!(
            "postgresql:///{name}?host={}&user=muster",
            self.dir.path().join("data/postgres").display()
        )
    }

    /// `muster` with these arguments, as an administrator.
    pub(crate) fn muster(&self, arguments: &[&str]) -> Said {
        self.typed(arguments, "")
    }

    /// The same with something on its standard input.
    pub(crate) fn typed(&self, arguments: &[&str], input: &str) -> Said {
        run(&mut self.command(arguments), input)
    }

    /// The command of `muster`, as an administrator.
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
        // As a service manager ends it, so that its Postgres ends with it.
        let pid = self.child.id().to_string();
        Command::new("kill").arg(&pid).status().ok();
        self.child.wait().ok();
    }
}

/// `muster` with these arguments, and nothing of this test's surroundings.
pub(crate) fn muster(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(MUSTER);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home);
    command
}

/// Runs it to its end.
pub(crate) fn run(command: &mut Command, input: &str) -> Said {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that does not read closes its end: what it says is what is tested.
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    let output = child.wait_with_output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A file of the repository.
pub(crate) fn file(path: &str) -> String {
    std::fs::read_to_string(
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(path),
    )
    .unwrap()
}
