//! The programs of a run, each a process that can be killed: Postgres, the server, the agent over simulated machines. Against a server that
//! runs already, the agent alone.

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
use tokio_util::sync::CancellationToken;

use super::{FleetOptions, SITE, ServerOptions};

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(25);

/// A part that can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Postgres,
    Server,
    Agent,
}

/// The running programs.
pub(super) struct Programs {
    muster: Option<PathBuf>,
    dir: PathBuf,
    url: String,
    agent_url: String,
    client: Client,
    running: Mutex<Vec<(Part, Child)>>,
    /// Nothing is killed any more.
    calm: CancellationToken,
}

impl Programs {
    /// Starts what is to be started and waits until the API answers.
    pub(super) async fn start(options: &FleetOptions) -> anyhow::Result<Self> {
        let mut programs = Self {
            muster: None,
            dir: options.dir.clone(),
            url: String::new(),
            agent_url: String::new(),
            client: Client::new("http://127.0.0.1", None)?,
            running: Mutex::new(Vec::new()),
            calm: CancellationToken::new(),
        };
        match programs.start_server(&options.server).await {
            Ok(()) => Ok(programs),
            Err(error) => {
                programs.close().await;
                Err(error)
            }
        }
    }

    async fn start_server(&mut self, server: &ServerOptions) -> anyhow::Result<()> {
        let token = match server {
            ServerOptions::Running { url, agent_url, token_file } => {
                (self.url, self.agent_url) = (url.clone(), agent_url.clone());
                let token = std::fs::read_to_string(token_file);
                token.with_context(|| format!("the token file {}", token_file.display()))?
            }
            ServerOptions::Own { muster } => {
                let [api, agents] = [free_port()?, free_port()?];
                (self.url, self.agent_url) = (format!("http://127.0.0.1:{api}"), format!("http://127.0.0.1:{agents}"));
                self.muster = Some(muster.clone());
                self.spawn(Part::Postgres).await?;
                let token = self.wait_for_file("muster/token").await?;
                self.spawn(Part::Server).await?;
                token
            }
        };
        self.client = Client::new(&self.url, Some(Secret::new(token.trim())))?;
        self.wait_until_it_answers().await
    }

    /// A client with the token's permissions.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the server is ours to kill.
    pub(super) fn owns_server(&self) -> bool {
        self.muster.is_some()
    }

    /// Resolves once nothing is to be killed any more.
    pub(super) fn calmed(&self) -> &CancellationToken {
        &self.calm
    }

    pub(super) fn calm(&self) {
        self.calm.cancel();
    }

    /// Enrols an agent for the site and starts it.
    pub(super) async fn start_agent(&self) -> anyhow::Result<()> {
        let name = format!("{SITE}-{}", hex::encode(rand::random::<[u8; 4]>()));
        let enrolled = self.client.enrol_agent(SITE, &name.parse()?).await?;
        write_secret(&self.dir.join("agent-token"), enrolled.token.reveal())?;
        self.spawn(Part::Agent).await
    }

    /// Ends the agent where it stands: the machines are read from here on.
    pub(super) async fn stop_agent(&self) -> anyhow::Result<()> {
        self.kill(Part::Agent).await
    }

    /// Kills a part by SIGKILL and starts it again at once.
    pub(super) async fn kill_and_restart(&self, part: Part) -> anyhow::Result<()> {
        self.kill(part).await?;
        self.spawn(part).await?;
        match part {
            Part::Server => self.wait_until_it_answers().await,
            Part::Agent | Part::Postgres => Ok(()),
        }
    }

    async fn kill(&self, part: Part) -> anyhow::Result<()> {
        let mut running = self.running.lock().await;
        let index = running.iter().position(|(known, _)| *known == part).context("the part does not run")?;
        let (_, mut child) = running.swap_remove(index);
        if let Some(status) = child.try_wait()? {
            bail!("{part:?} had ended by itself ({status}); its log says why");
        }
        child.start_kill()?;
        tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.context("a killed part did not end")??;
        Ok(())
    }

    async fn spawn(&self, part: Part) -> anyhow::Result<()> {
        let path = self.dir.join("logs").join(format!("{part:?}.log").to_lowercase());
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("open {}", path.display()))?;
        let mut command = self.command(part)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("start {:?}", command.as_std().get_program()))?;
        self.running.lock().await.push((part, child));
        Ok(())
    }

    fn command(&self, part: Part) -> anyhow::Result<Command> {
        let data = self.dir.join("muster");
        let muster = || self.muster.as_ref().map(Command::new).context("the server runs elsewhere");
        Ok(match part {
            Part::Postgres => {
                let mut command = muster()?;
                command.args(["dev", "--postgres-only", "--data-dir"]).arg(data);
                command
            }
            Part::Server => {
                let url = format!("postgresql:///muster?host={}&user=muster", data.join("postgres").display());
                let listen = |url: &str| url.trim_start_matches("http://").to_owned();
                let mut command = muster()?;
                command.arg("server").arg("--listen").arg(listen(&self.url));
                command.arg("--agent-listen").arg(listen(&self.agent_url)).arg("--data-dir").arg(&data);
                command.arg("--key-file").arg(data.join("master.key")).env("MUSTER_DATABASE_URL", url);
                command
            }
            Part::Agent => {
                let mut command = Command::new(std::env::current_exe().context("this program's own file")?);
                command.arg("fleet-agent").arg("--server").arg(&self.agent_url);
                command.arg("--token-file").arg(self.dir.join("agent-token"));
                command.arg("--machines").arg(self.dir.join("machines"));
                command
            }
        })
    }

    pub(super) async fn server_pid(&self) -> Option<u32> {
        let running = self.running.lock().await;
        running.iter().find(|(part, _)| *part == Part::Server).and_then(|(_, child)| child.id())
    }

    async fn wait_for_file(&self, name: &str) -> anyhow::Result<String> {
        let path = self.dir.join(name);
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Ok(text) = std::fs::read_to_string(&path)
                && !text.is_empty()
            {
                return Ok(text);
            }
            if Instant::now() > deadline {
                bail!("muster did not come up in {} s", START_TIMEOUT.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn wait_until_it_answers(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(error) = self.client.get_value(&["sites"], &[]).await {
            if !error.away() || Instant::now() > deadline {
                bail!("the API does not answer: {error}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
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
        for (part, mut child) in running {
            // SIGTERM ends `muster dev --postgres-only`, which shuts Postgres down.
            let gently = if part == Part::Agent { Signal::SIGKILL } else { Signal::SIGTERM };
            signal(&child, gently);
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

/// A port nobody listens on now; it stays the server's when it is killed and started again.
fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0)).context("a port on the loopback")?.local_addr()?.port())
}

fn write_secret(path: &Path, secret: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(secret.as_bytes())).with_context(|| format!("write {}", path.display()))
}
