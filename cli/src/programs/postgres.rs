//! A private Postgres from the system's packages: a socket in its directory, peer authentication,
//! no TCP port, no password.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User};
use sqlx::PgPool;
use tokio::process::{Child, Command};

use super::startup::closed_to;

const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// A running Postgres, stopped on drop.
pub(crate) struct Postgres {
    dir: PathBuf,
    child: Child,
}

impl Postgres {
    /// Creates the database cluster if missing, and starts Postgres.
    ///
    /// # Errors
    /// When Postgres is not installed or does not start. The log has the cause.
    pub(crate) async fn start(dir: &Path) -> anyhow::Result<Self> {
        let dir = std::path::absolute(dir)?;
        let owner = owner()?;
        make(&dir, owner.as_ref())?;
        if !dir.join("data/PG_VERSION").exists() {
            init(&dir, owner.as_ref()).await?;
        }
        let log = dir.join("postgres.log");
        let log = std::fs::File::create(&log)
            .with_context(|| format!("write the database's log {}", log.display()))?;
        let mut command = Command::new(binary("postgres")?);
        command
            .arg("-D")
            .arg(dir.join("data"))
            .arg("-k")
            .arg(&dir)
            .args(["-c", "listen_addresses="]);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .current_dir(&dir)
            .kill_on_drop(true);
        drop_to(&mut command, owner.as_ref());
        let mut child = command
            .spawn()
            .with_context(|| format!("start postgres in {}", dir.display()))?;
        let started = tokio::time::timeout(START_TIMEOUT, ready(&dir, &mut child)).await;
        started.with_context(|| {
            let log = dir.join("postgres.log");
            format!("postgres gave no answer in 30 s; see {}", log.display())
        })??;
        Ok(Self { dir, child })
    }

    /// Returns the URL.
    pub(crate) fn url(&self) -> String {
        url(&self.dir, "muster")
    }

    /// Fast shutdown: connections are closed, committed data is kept.
    pub(crate) async fn stop(mut self) {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            kill(Pid::from_raw(pid), Signal::SIGINT).ok();
        }
        tokio::time::timeout(STOP_TIMEOUT, self.child.wait())
            .await
            .ok();
    }

    /// Waits for an unexpected end.
    pub(crate) async fn ended(&mut self) -> std::io::Result<std::process::ExitStatus> {
        self.child.wait().await
    }
}

fn url(dir: &Path, database: &str) -> String {
    format!(
        "postgresql:///{database}?host={}&user=muster",
        dir.display()
    )
}

/// Postgres refuses to run as root and then runs as an unprivileged user of the system.
fn owner() -> anyhow::Result<Option<User>> {
    if !nix::unistd::Uid::effective().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some(user));
        }
    }
    bail!(
        "Postgres refuses to run as root, and the users postgres and nobody do not exist; install the package postgresql"
    )
}

fn drop_to(command: &mut Command, owner: Option<&User>) {
    if let Some(user) = owner {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
}

/// Creates the directory, owned by the user of Postgres, and checks that the user can enter.
fn make(dir: &Path, owner: Option<&User>) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("change the mode of {}", dir.display()))?;
    let Some(user) = owner else { return Ok(()) };
    nix::unistd::chown(dir, Some(user.uid), Some(user.gid))
        .with_context(|| format!("change the owner of {} to {}", dir.display(), user.name))?;
    if let Some(closed) = closed_to(user, dir) {
        let (closed, name) = (closed.display(), &user.name);
        bail!(
            "Postgres runs as user {name}, and {name} cannot enter {closed}; choose another \
             --data-dir, such as /var/lib/muster, or run: chmod o+x {closed}"
        );
    }
    Ok(())
}

async fn init(dir: &Path, owner: Option<&User>) -> anyhow::Result<()> {
    let mut command = Command::new(binary("initdb")?);
    command.arg("-D").arg(dir.join("data")).args([
        "-A",
        "peer",
        "-U",
        "muster",
        "--no-sync",
        "-E",
        "UTF8",
    ]);
    command
        .args(["--locale", "C.UTF-8"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    drop_to(&mut command, owner);
    let output = tokio::time::timeout(START_TIMEOUT, command.output())
        .await
        .context("initdb took over 30 s")?
        .with_context(|| format!("start initdb in {}", dir.display()))?;
    ensure!(
        output.status.success(),
        "initdb: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let me = User::from_uid(nix::unistd::Uid::effective())?
        .context("the user this runs as has no name")?;
    // The user running Muster is `muster` in the database, by peer authentication without a
    // password.
    write(
        &dir.join("data/pg_hba.conf"),
        "local all all peer map=muster\n",
    )?;
    write(
        &dir.join("data/pg_ident.conf"),
        &format!("muster {} muster\n", me.name),
    )
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Waits for an answer, then creates the database if missing.
async fn ready(dir: &Path, child: &mut Child) -> anyhow::Result<()> {
    loop {
        if let Some(status) = child.try_wait()? {
            let log = dir.join("postgres.log");
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            bail!(
                "postgres ended ({status}): {}; see {}",
                text.lines().last().unwrap_or_default(),
                log.display()
            );
        }
        match PgPool::connect(&url(dir, "postgres")).await {
            Ok(pool) => {
                let exists: bool = sqlx::query_scalar(
                    "SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'muster')",
                )
                .fetch_one(&pool)
                .await?;
                if !exists {
                    sqlx::query("CREATE DATABASE muster").execute(&pool).await?;
                }
                pool.close().await;
                return Ok(());
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Debian keeps the programs of each major version in a separate directory, outside of PATH.
fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut debian: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    debian.sort();
    let found = debian
        .into_iter()
        .rev()
        .chain(on_path)
        .map(|dir| dir.join(name))
        .find(|path| path.exists());
    found.with_context(|| format!("{name} is not installed; on Debian: apt install postgresql"))
}
