//! muster and its database, as processes in the rack's namespace. Undisturbed, one `muster dev`; to be disturbed, each part by itself, so
//! that each can be killed and started again.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use muster_api::client::Client;
use muster_core::values::Secret;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::{DemoOptions, Disturbance};
use crate::Rack;
use crate::plan::GATEWAY;
use crate::rack::{Forwarder, Netns};

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(25);
/// Longer than what is waited for with `--wait`.
const CLI_TIMEOUT: Duration = Duration::from_secs(11 * 60);
const API_PORT: u16 = 8080;
const AGENT_PORT: u16 = 8081;

/// A part that can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Postgres,
    Server,
    Agent,
}

/// The running programs.
pub(super) struct Programs {
    netns: Netns,
    muster: PathBuf,
    data: PathBuf,
    logs: PathBuf,
    ipxe: PathBuf,
    muster_node: PathBuf,
    running: Mutex<Vec<(Part, Child)>>,
    apart: bool,
    client: Client,
    password: String,
    door: Forwarder,
}

impl Programs {
    /// Starts the server on its private Postgres and waits until the API answers.
    pub(super) async fn start(options: &DemoOptions, rack: &Rack) -> anyhow::Result<Self> {
        let data = options.dir.join("muster");
        let logs = options.dir.join("logs");
        std::fs::create_dir_all(&logs)?;
        std::fs::create_dir_all(&data)?;
        let door = rack.forward(([127, 0, 0, 1], options.port).into(), (GATEWAY, API_PORT).into())?;
        let mut programs = Self {
            netns: rack.netns.clone(),
            muster: options.muster.clone(),
            data,
            logs,
            ipxe: options.artifacts.cache.join("ipxe"),
            muster_node: options.artifacts.muster_node.clone(),
            running: Mutex::new(Vec::new()),
            apart: options.disturbance == Disturbance::Kills,
            client: Client::new("http://127.0.0.1", None)?,
            password: String::new(),
            door,
        };
        match programs.start_server().await {
            Ok(()) => Ok(programs),
            Err(error) => {
                programs.close().await;
                Err(error)
            }
        }
    }

    async fn start_server(&mut self) -> anyhow::Result<()> {
        match self.apart {
            true => {
                self.spawn(Part::Postgres).await?;
                self.wait_for_file("token").await?;
                self.spawn(Part::Server).await?;
            }
            false => self.spawn(Part::Server).await?,
        }
        let token = self.wait_for_file("token").await?;
        self.password = self.wait_for_file("password").await?;
        self.client = Client::new(&self.url(), Some(Secret::new(token)))?;
        self.wait_until_it_answers().await
    }

    /// A client with every permission.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.door.address)
    }

    pub(super) fn password(&self) -> &str {
        &self.password
    }

    /// `muster` as a user runs it; what it printed.
    pub(super) async fn cli(&self, verb: &[&str], options: &[&str]) -> anyhow::Result<String> {
        let token = std::fs::read_to_string(self.data.join("token")).context("the admin's token")?;
        let mut muster = Command::new(&self.muster);
        muster.args(verb).args(options).env("MUSTER_URL", self.url()).env("MUSTER_TOKEN", token.trim());
        muster.stdin(Stdio::null()).kill_on_drop(true);
        let ran = tokio::time::timeout(CLI_TIMEOUT, muster.output()).await.context("muster does not end")??;
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        match ran.status.success() {
            true => Ok(said),
            false => bail!("muster {}: {said}{}", verb.join(" "), String::from_utf8_lossy(&ran.stderr)),
        }
    }

    /// Starts the site's agent; `muster dev` does so by itself once the site is declared.
    pub(super) async fn start_agent(&self, client: &Client) -> anyhow::Result<()> {
        if !self.apart {
            return Ok(());
        }
        let enrolled = client.enrol_agent("lab", &"lab-agent".parse()?).await?;
        write_secret(&self.data.join("agent-token"), enrolled.token.reveal())?;
        self.spawn(Part::Agent).await
    }

    /// Kills a part as a crash would (SIGKILL; Postgres by a fast shutdown, which cuts connections) and starts it again.
    pub(super) async fn kill_and_restart(&self, part: Part) -> anyhow::Result<()> {
        self.kill(part).await?;
        self.spawn(part).await
    }

    /// Starts a part that was killed.
    pub(super) async fn start_again(&self, part: Part) -> anyhow::Result<()> {
        self.spawn(part).await?;
        self.wait_until_it_answers().await
    }

    /// Kills a part as a crash would.
    pub(super) async fn kill(&self, part: Part) -> anyhow::Result<()> {
        let mut running = self.running.lock().await;
        let index = running.iter().position(|(known, _)| *known == part).context("the part does not run")?;
        let (_, mut child) = running.swap_remove(index);
        drop(running);
        match part {
            // SIGTERM ends `muster dev --postgres-only`, which shuts Postgres down fast: connections are cut.
            Part::Postgres => signal(&child, Signal::SIGTERM),
            Part::Server | Part::Agent => signal(&child, Signal::SIGKILL),
        }
        tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.context("a killed part did not end")??;
        Ok(())
    }

    async fn spawn(&self, part: Part) -> anyhow::Result<()> {
        let name = format!("{part:?}").to_lowercase();
        let path = self.logs.join(format!("{name}.log"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("open {}", path.display()))?;
        let mut command = self.command(part);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("start {}", self.muster.display()))?;
        self.running.lock().await.push((part, child));
        Ok(())
    }

    fn command(&self, part: Part) -> Command {
        let mut command = self.netns.command(&self.muster.display().to_string());
        let listen = format!("{GATEWAY}:{API_PORT}");
        let agents = format!("{GATEWAY}:{AGENT_PORT}");
        match part {
            Part::Postgres => {
                command.args(["dev", "--postgres-only", "--data-dir"]).arg(&self.data);
            }
            Part::Server if self.apart => {
                let url = format!("postgresql:///muster?host={}&user=muster", self.data.join("postgres").display());
                command.args(["server", "--listen", &listen, "--agent-listen", &agents, "--data-dir"]).arg(&self.data);
                command.arg("--key-file").arg(self.data.join("master.key")).env("MUSTER_DATABASE_URL", url);
            }
            Part::Server => {
                command.args(["dev", "--site", "lab", "--listen", &listen, "--agent-listen", &agents, "--data-dir"]);
                command.arg(&self.data).arg("--ipxe-dir").arg(&self.ipxe).arg("--muster-node").arg(&self.muster_node);
            }
            Part::Agent => {
                command.args(["agent", "--server", &format!("http://{agents}"), "--token-file"]);
                command.arg(self.data.join("agent-token")).arg("--data-dir").arg(self.data.join("agent"));
                command.arg("--ipxe-dir").arg(&self.ipxe).arg("--muster-node").arg(&self.muster_node);
            }
        }
        command
    }

    async fn wait_for_file(&self, name: &str) -> anyhow::Result<String> {
        let path = self.data.join(name);
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Ok(text) = std::fs::read_to_string(&path)
                && !text.is_empty()
            {
                return Ok(text);
            }
            if Instant::now() > deadline {
                bail!("muster did not come up in {} s; see {}", START_TIMEOUT.as_secs(), self.logs.display());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn wait_until_it_answers(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(error) = self.client.get_value(&["sites"], &[]).await {
            if Instant::now() > deadline {
                bail!("the API does not answer: {error}; see {}", self.logs.display());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Ends everything, the database last.
    pub(super) async fn close(self) {
        let mut running = self.running.into_inner();
        running.sort_by_key(|(part, _)| match part {
            Part::Agent => 0,
            Part::Server => 1,
            Part::Postgres => 2,
        });
        for (_, mut child) in running {
            signal(&child, Signal::SIGTERM);
            if tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
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

fn write_secret(path: &Path, secret: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(secret.as_bytes())).with_context(|| format!("write {}", path.display()))
}
