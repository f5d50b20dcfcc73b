//! The programs of a run, each a killable process: Postgres, the server, the agent over simulated machines. With a
//! running server, only the agent.

use std::path::PathBuf;

use anyhow::Context;
use muster_api::client::Client;
use muster_core::values::Secret;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::{FleetOptions, SITE, ServerOptions};
use crate::parts::{Part, Parts, write_secret};

/// The running programs.
pub(super) struct Programs {
    muster: Option<PathBuf>,
    dir: PathBuf,
    url: String,
    agent_url: String,
    client: Client,
    parts: Parts,
    /// Cancelled at the end of all kills.
    calm: CancellationToken,
}

impl Programs {
    /// Starts the programs and waits until the API answers.
    pub(super) async fn start(options: &FleetOptions) -> anyhow::Result<Self> {
        let mut programs = Self {
            muster: None,
            dir: options.dir.clone(),
            url: String::new(),
            agent_url: String::new(),
            client: Client::new("http://127.0.0.1", None)?,
            parts: Parts::new(options.dir.join("muster"), options.dir.join("logs"))?,
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
            ServerOptions::Running {
                url,
                agent_url,
                token_file,
            } => {
                (self.url, self.agent_url) = (url.clone(), agent_url.clone());
                let token = std::fs::read_to_string(token_file);
                token.with_context(|| format!("the token file {}", token_file.display()))?
            }
            ServerOptions::Own { muster, port } => {
                let api = match *port {
                    0 => free_port()?,
                    port => port,
                };
                let agents = free_port()?;
                (self.url, self.agent_url) = (
                    format!("http://127.0.0.1:{api}"),
                    format!("https://127.0.0.1:{agents}"),
                );
                self.muster = Some(muster.clone());
                self.spawn(Part::Postgres).await?;
                let token = self.parts.wait_for_file("token").await?;
                self.spawn(Part::Server).await?;
                token
            }
        };
        self.client = Client::new(&self.url, Some(Secret::new(token.trim())))?;
        self.parts.wait_until_it_answers(&self.client).await
    }

    /// Returns a client with the token's permissions.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the URL of the run's own database.
    pub(super) fn database_url(&self) -> String {
        self.parts.database_url()
    }

    /// Returns the address of the API and the console.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the console's password of the user `admin`.
    pub(super) async fn password(&self) -> anyhow::Result<String> {
        self.parts.wait_for_file("password").await
    }

    /// Returns whether the run started the server, and may kill the server.
    pub(super) fn owns_server(&self) -> bool {
        self.muster.is_some()
    }

    /// Resolves at the end of all kills.
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
        std::fs::write(self.dir.join("agent-token.authority"), &enrolled.authority)
            .context("write the authority")?;
        self.spawn(Part::Agent).await
    }

    /// Kills the agent. Afterwards the files of the machines no longer change.
    pub(super) async fn stop_agent(&self) -> anyhow::Result<()> {
        self.parts.kill(Part::Agent).await
    }

    /// Kills a part by SIGKILL and starts the part again.
    pub(super) async fn kill_and_restart(&self, part: Part) -> anyhow::Result<()> {
        self.parts.kill(part).await?;
        self.spawn(part).await?;
        match part {
            Part::Server => self.parts.wait_until_it_answers(&self.client).await,
            Part::Agent | Part::Postgres => Ok(()),
        }
    }

    async fn spawn(&self, part: Part) -> anyhow::Result<()> {
        self.parts.spawn(part, self.command(part)?).await
    }

    fn command(&self, part: Part) -> anyhow::Result<Command> {
        let data = &self.parts.data;
        let muster = || {
            self.muster
                .as_ref()
                .map(Command::new)
                .context("the server runs elsewhere")
        };
        Ok(match part {
            Part::Postgres => {
                let mut command = muster()?;
                command
                    .args(["dev", "--postgres-only", "--data-dir"])
                    .arg(data);
                command
            }
            Part::Server => {
                let listen = |url: &str| url.rsplit('/').next().unwrap_or_default().to_owned();
                let mut command = muster()?;
                command.arg("server").arg("--listen").arg(listen(&self.url));
                command
                    .arg("--agent-listen")
                    .arg(listen(&self.agent_url))
                    .arg("--data-dir")
                    .arg(data);
                command
                    .arg("--key-file")
                    .arg(data.join("master.key"))
                    .env("MUSTER_DATABASE_URL", self.parts.database_url());
                command
            }
            Part::Agent => {
                let mut command =
                    Command::new(std::env::current_exe().context("this program's own file")?);
                command
                    .arg("fleet-agent")
                    .arg("--server")
                    .arg(&self.agent_url);
                command
                    .arg("--token-file")
                    .arg(self.dir.join("agent-token"));
                command.arg("--machines").arg(self.dir.join("machines"));
                command
            }
        })
    }

    pub(super) async fn server_pid(&self) -> Option<u32> {
        self.parts.pid(Part::Server).await
    }

    /// Ends all programs, the database last.
    pub(super) async fn close(self) {
        self.parts.close().await;
    }
}

/// Returns an unused port. The server keeps the port across kills.
fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))
        .context("a port on the loopback")?
        .local_addr()?
        .port())
}
