//! muster and its database, as processes in the rack's namespace. An undisturbed run uses a single
//! `muster dev`. A run with faults starts each part as a separate process, for kills and restarts
//! of single parts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use muster_api::client::Client;
use muster_core::values::Secret;
use tokio::process::Command;

use super::{DemoOptions, Disturbance};
use crate::Rack;
use crate::parts::{Part, Parts, write_secret};
use crate::plan::GATEWAY;
use crate::rack::{Forwarder, Netns};

/// Time limit of a `muster` command, longer than any `--wait` timeout in the scenarios.
const CLI_TIMEOUT: Duration = Duration::from_secs(11 * 60);
const API_PORT: u16 = 8080;
const AGENT_PORT: u16 = 8081;

/// The running programs.
pub(super) struct Programs {
    netns: Netns,
    muster: PathBuf,
    /// The program of the first start of each part. A database of an older version has the older schema.
    first: PathBuf,
    parts: Parts,
    ipxe: PathBuf,
    muster_node: PathBuf,
    /// Programs of Slurm used in place of the host's programs.
    tools: Option<PathBuf>,
    apart: bool,
    client: Client,
    password: String,
    door: Forwarder,
}

impl Programs {
    /// Starts the server with its private Postgres, and waits until the API answers. The programs
    /// find Slurm in the folder `tools` first.
    pub(super) async fn start(
        options: &DemoOptions,
        rack: &Rack,
        tools: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let door = rack.forward(
            ([127, 0, 0, 1], options.port).into(),
            (GATEWAY, API_PORT).into(),
        )?;
        let mut programs = Self {
            netns: rack.netns.clone(),
            muster: options.muster.clone(),
            first: options.before.as_ref().unwrap_or(&options.muster).clone(),
            parts: Parts::new(options.dir.join("muster"), options.dir.join("logs"))?,
            ipxe: options.artifacts.cache.join("ipxe"),
            muster_node: options.artifacts.muster_node.clone(),
            tools: tools.map(Path::to_path_buf),
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
                self.spawn(Part::Postgres, &self.first).await?;
                self.parts.wait_for_file("token").await?;
                self.spawn(Part::Server, &self.first).await?;
            }
            false => self.spawn(Part::Server, &self.first).await?,
        }
        let token = self.parts.wait_for_file("token").await?;
        self.password = self.parts.wait_for_file("password").await?;
        self.client = Client::new(&self.url(), Some(Secret::new(token)))?;
        self.parts.wait_until_it_answers(&self.client).await
    }

    /// Returns a client with all permissions.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.door.address)
    }

    pub(super) fn password(&self) -> &str {
        &self.password
    }

    /// Runs `muster` as a user does, and returns its standard output. A non-zero exit status is an
    /// error with the output of the command.
    pub(super) async fn cli(&self, verb: &[&str], options: &[&str]) -> anyhow::Result<String> {
        let token =
            std::fs::read_to_string(self.parts.data.join("token")).context("the admin's token")?;
        let mut muster = Command::new(&self.muster);
        muster
            .args(verb)
            .args(options)
            .env("MUSTER_SERVER", self.url())
            .env("MUSTER_TOKEN", token.trim());
        muster.stdin(Stdio::null()).kill_on_drop(true);
        let ran = tokio::time::timeout(CLI_TIMEOUT, muster.output())
            .await
            .context("muster does not end")??;
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        match ran.status.success() {
            true => Ok(said),
            false => bail!(
                "muster {}: {said}{}",
                verb.join(" "),
                String::from_utf8_lossy(&ran.stderr)
            ),
        }
    }

    /// Enrols and starts the site's agent. `muster dev` starts an agent without help after the
    /// site is declared.
    pub(super) async fn start_agent(&self, client: &Client) -> anyhow::Result<()> {
        if !self.apart {
            return Ok(());
        }
        let enrolled = client.enrol_agent("lab", &"lab-agent".parse()?).await?;
        write_secret(
            &self.parts.data.join("agent-token"),
            enrolled.token.reveal(),
        )?;
        self.spawn(Part::Agent, &self.first).await
    }

    /// Kills a part like a crash, and starts the part of today's version.
    pub(super) async fn kill_and_restart(&self, part: Part) -> anyhow::Result<()> {
        self.parts.kill(part).await?;
        self.spawn(part, &self.muster).await
    }

    /// Starts a killed part again, and waits until the API answers.
    pub(super) async fn start_again(&self, part: Part) -> anyhow::Result<()> {
        self.spawn(part, &self.muster).await?;
        self.parts.wait_until_it_answers(&self.client).await
    }

    /// Kills a part like a crash.
    pub(super) async fn kill(&self, part: Part) -> anyhow::Result<()> {
        self.parts.kill(part).await
    }

    /// Checks that a running part is of today's version, or of the version of its first start.
    pub(super) async fn check_version(&self, part: Part, is_today: bool) -> anyhow::Result<()> {
        let pid = self
            .parts
            .pid(part)
            .await
            .context("the part does not run")?;
        let runs = std::fs::read_link(format!("/proc/{pid}/exe"))?;
        let expected = match is_today {
            true => &self.muster,
            false => &self.first,
        };
        ensure!(
            runs == expected.canonicalize()?,
            "the {part:?} runs {}, and not {}",
            runs.display(),
            expected.display()
        );
        Ok(())
    }

    async fn spawn(&self, part: Part, muster: &Path) -> anyhow::Result<()> {
        let mut command = self.command(part, muster);
        if let Some(folder) = &self.tools {
            command.env("PATH", prepend_path(folder));
        }
        self.parts.spawn(part, command).await
    }

    fn command(&self, part: Part, muster: &Path) -> Command {
        let mut command = self.netns.command(&muster.display().to_string());
        let listen = format!("{GATEWAY}:{API_PORT}");
        let agents = format!("{GATEWAY}:{AGENT_PORT}");
        // The API is plain HTTP inside the lab's own network.
        command.env("MUSTER_BEHIND_TLS_PROXY", "true");
        match part {
            Part::Postgres => {
                command
                    .args(["dev", "--postgres-only", "--data-dir"])
                    .arg(&self.parts.data);
            }
            Part::Server if self.apart => {
                command
                    .args([
                        "server",
                        "--listen",
                        &listen,
                        "--agent-listen",
                        &agents,
                        "--data-dir",
                    ])
                    .arg(&self.parts.data);
                command
                    .arg("--key-file")
                    .arg(self.parts.data.join("master.key"))
                    .env("MUSTER_DATABASE_URL", self.parts.database_url());
            }
            Part::Server => {
                command.args([
                    "dev",
                    "--site",
                    "lab",
                    "--listen",
                    &listen,
                    "--agent-listen",
                    &agents,
                    "--data-dir",
                ]);
                command
                    .arg(&self.parts.data)
                    .arg("--ipxe-dir")
                    .arg(&self.ipxe)
                    .arg("--muster-node")
                    .arg(&self.muster_node);
            }
            Part::Agent => {
                command.args([
                    "agent",
                    "--server",
                    &format!("https://{agents}"),
                    "--token-file",
                ]);
                command
                    .arg(self.parts.data.join("agent-token"))
                    .arg("--data-dir")
                    .arg(self.parts.data.join("agent"));
                command
                    .arg("--ipxe-dir")
                    .arg(&self.ipxe)
                    .arg("--muster-node")
                    .arg(&self.muster_node);
            }
        }
        command
    }

    /// Ends all programs, the database last.
    pub(super) async fn close(self) {
        self.parts.close().await;
    }
}

/// Returns `PATH` with the folder at the front.
fn prepend_path(folder: &Path) -> OsString {
    let mut path = OsString::from(folder);
    if let Some(former) = std::env::var_os("PATH") {
        path.push(":");
        path.push(former);
    }
    path
}
