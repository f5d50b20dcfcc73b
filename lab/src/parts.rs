//! Muster's own programs as killable processes: the database, the server, the agent. The owner of a
//! run provides the commands.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use muster_api::client::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(25);
const LOOK: Duration = Duration::from_millis(100);

/// A part that can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `muster dev --postgres-only`, which ends its Postgres with itself.
    Postgres,
    Server,
    Agent,
}

/// The running parts, with their data and their logs.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The server's data directory.
    pub(crate) data: PathBuf,
    pub(crate) logs: PathBuf,
    running: Mutex<Vec<(Part, Child)>>,
}

impl Parts {
    /// Creates both directories; no part runs yet.
    ///
    /// # Errors
    /// When a directory cannot be created.
    pub(crate) fn new(data: PathBuf, logs: PathBuf) -> anyhow::Result<Self> {
        for dir in [&data, &logs] {
            std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        }
        Ok(Self {
            data,
            logs,
            running: Mutex::new(Vec::new()),
        })
    }

    /// Returns the URL of the database of [`Part::Postgres`].
    pub(crate) fn database_url(&self) -> String {
        format!(
            "postgresql:///muster?host={}&user=muster",
            self.data.join("postgres").display()
        )
    }

    /// Starts a part. The output is appended to the part's log.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub(crate) async fn spawn(&self, part: Part, mut command: Command) -> anyhow::Result<()> {
        let path = self.log(part);
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path);
        let log = log.with_context(|| format!("open {}", path.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true);
        let child = command
            .spawn()
            .with_context(|| format!("start {:?}", command.as_std().get_program()))?;
        self.running.lock().await.push((part, child));
        Ok(())
    }

    /// Kills a part as a crash would: SIGKILL; Postgres by a fast shutdown, which cuts connections.
    ///
    /// # Errors
    /// When the part ended by itself before, or does not end.
    pub(crate) async fn kill(&self, part: Part) -> anyhow::Result<()> {
        let mut running = self.running.lock().await;
        let index = running
            .iter()
            .position(|(known, _)| *known == part)
            .context("the part does not run")?;
        let (_, mut child) = running.swap_remove(index);
        drop(running);
        if let Some(status) = child.try_wait()? {
            bail!(
                "{part:?} had ended by itself ({status}); its log in {} says why",
                self.logs.display()
            );
        }
        signal(
            &child,
            if part == Part::Postgres {
                Signal::SIGTERM
            } else {
                Signal::SIGKILL
            },
        );
        tokio::time::timeout(STOP_TIMEOUT, child.wait())
            .await
            .context("a killed part did not end")??;
        Ok(())
    }

    /// Returns the process of a running part.
    pub(crate) async fn pid(&self, part: Part) -> Option<u32> {
        let running = self.running.lock().await;
        running
            .iter()
            .find(|(known, _)| *known == part)
            .and_then(|(_, child)| child.id())
    }

    /// Checks that no part has ended by itself.
    ///
    /// # Errors
    /// With the last line of the ended part's log.
    async fn check_running(&self) -> anyhow::Result<()> {
        for (part, child) in self.running.lock().await.iter_mut() {
            if let Some(status) = child.try_wait()? {
                let log = std::fs::read_to_string(self.log(*part)).unwrap_or_default();
                let last = log.lines().rfind(|line| !line.trim().is_empty());
                let last = last.unwrap_or("its log is empty");
                bail!("{part:?} ended ({status}): {last}");
            }
        }
        Ok(())
    }

    fn log(&self, part: Part) -> PathBuf {
        self.logs.join(format!("{part:?}.log").to_lowercase())
    }

    /// Returns a file of the data directory, written by the server or its database when ready.
    ///
    /// # Errors
    /// When a part has ended, or after a minute.
    pub(crate) async fn wait_for_file(&self, name: &str) -> anyhow::Result<String> {
        let path = self.data.join(name);
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Ok(text) = std::fs::read_to_string(&path)
                && !text.is_empty()
            {
                return Ok(text);
            }
            self.check_running().await?;
            if Instant::now() > deadline {
                bail!(
                    "muster did not come up in {} s; see {}",
                    START_TIMEOUT.as_secs(),
                    self.logs.display()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the API answers.
    ///
    /// # Errors
    /// When a part has ended, the API refuses, or after a minute.
    pub(crate) async fn wait_until_it_answers(&self, client: &Client) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(error) = client.get_value(&["sites"], &[]).await {
            self.check_running().await?;
            if !error.away() || Instant::now() > deadline {
                bail!(
                    "the API does not answer: {error}; see {}",
                    self.logs.display()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Ends all parts gently, the database last.
    pub(crate) async fn close(self) {
        let mut running = self.running.into_inner();
        running.sort_by_key(|(part, _)| match part {
            Part::Agent => 0,
            Part::Server => 1,
            Part::Postgres => 2,
        });
        for (_, mut child) in running {
            signal(&child, Signal::SIGTERM);
            if tokio::time::timeout(STOP_TIMEOUT, child.wait())
                .await
                .is_err()
            {
                signal(&child, Signal::SIGKILL);
                child.wait().await.ok();
            }
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        kill(Pid::from_raw(pid), signal).ok();
    }
}

/// Writes a file readable only by its owner.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write_secret(path: &Path, secret: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| file.write_all(secret.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}
