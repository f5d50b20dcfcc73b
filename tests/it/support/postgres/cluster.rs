//! Two Postgres servers. The second server is a streaming copy of the first server.

use std::path::{Path, PathBuf};
use std::process::Command;

use sqlx::{Executor as _, PgConnection};

use super::{Running, TEMPLATE, connect, copy, own, run, template, unprivileged};

/// The settings of both servers. A killed process loses no written data, also without fsync. Only
/// the standby matters.
const SETTINGS: [&str; 7] = [
    "listen_addresses=",
    "fsync=off",
    "shared_buffers=32MB",
    "max_connections=60",
    "jit=off",
    "wal_sender_timeout=5s",
    "wal_receiver_timeout=5s",
];

/// A server of a pair.
pub(crate) struct Member {
    /// The directory of the server's socket and data.
    pub(crate) dir: PathBuf,
    _running: Running,
}

/// A primary and its standby at the start. A promotion changes the roles.
pub(crate) struct Pair {
    pub(crate) first: Member,
    pub(crate) second: Member,
}

impl Pair {
    /// Starts both servers. With `synchronous`, a commit is acknowledged only when the standby has
    /// the commit.
    pub(crate) fn start(synchronous: bool) -> Self {
        std::thread::spawn(move || Self::start_here(synchronous))
            .join()
            .unwrap()
    }

    fn start_here(synchronous: bool) -> Self {
        let template = template();
        let (first, second) = (directory(), directory());
        copy(&template, &first.join("data"));
        let first = Member {
            _running: run(&first, &SETTINGS, "postgres"),
            dir: first,
        };
        own(&second);
        let mut backup = unprivileged("pg_basebackup");
        backup.extend(
            [
                "-U",
                "muster",
                "-R",
                "-X",
                "stream",
                "-c",
                "fast",
                "--no-sync",
                "-h",
            ]
            .map(str::to_owned),
        );
        backup.extend([
            first.dir.display().to_string(),
            "-D".into(),
            second.join("data").display().to_string(),
        ]);
        command(&backup);
        let second = Member {
            _running: run(&second, &SETTINGS, TEMPLATE),
            dir: second,
        };
        if synchronous {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(first.alter("ALTER SYSTEM SET synchronous_standby_names = '*'"));
        }
        Self { first, second }
    }
}

impl Member {
    /// Kills the main process of the server, like a power cut. No orderly shutdown follows.
    pub(crate) fn kill(&self) {
        let pid = std::fs::read_to_string(self.dir.join("data/postmaster.pid")).unwrap();
        let status = Command::new("kill")
            .args(["-9", pid.lines().next().unwrap()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    pub(crate) fn promote(&self) {
        let mut promote = unprivileged("pg_ctl");
        promote.extend(["promote", "-w", "-D"].map(str::to_owned));
        promote.push(self.dir.join("data").display().to_string());
        command(&promote);
    }

    pub(crate) async fn read_only(&self) {
        self.alter("ALTER SYSTEM SET default_transaction_read_only = on")
            .await;
    }

    pub(crate) async fn writable(&self) {
        self.alter("ALTER SYSTEM SET default_transaction_read_only = off")
            .await;
    }

    /// Lets later commits succeed without a standby.
    pub(crate) async fn leave_standby(&self) {
        self.alter("ALTER SYSTEM SET synchronous_standby_names = ''")
            .await;
    }

    pub(crate) async fn count(&self, query: &'static str) -> i64 {
        let mut conn = self.connect().await;
        sqlx::query_scalar(query)
            .fetch_one(&mut conn)
            .await
            .unwrap()
    }

    async fn alter(&self, statement: &'static str) {
        let mut conn = self.connect().await;
        conn.execute(statement).await.unwrap();
        conn.execute("SELECT pg_reload_conf()").await.unwrap();
    }

    async fn connect(&self) -> PgConnection {
        connect(&self.dir, TEMPLATE).await.unwrap()
    }
}

fn directory() -> PathBuf {
    tempfile::Builder::new()
        .prefix("muster-pg-")
        .tempdir()
        .unwrap()
        .keep()
}

fn command(argv: &[String]) {
    let output = Command::new(&argv[0])
        .args(&argv[1..])
        .current_dir(Path::new("/"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}: {}",
        argv[0],
        String::from_utf8_lossy(&output.stderr)
    );
}
