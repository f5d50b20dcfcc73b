//! `muster version`: the versions of this program, of the server, and of the agents. An unreachable
//! server, or an unreadable configuration, is a line of the result, not a failure.

use clap::Command;
use muster_api::agents::Agent;
use muster_api::client::{Client, ClientError};
use muster_api::sites::SiteSpec;
use serde::Serialize;

use super::session::Common;

/// The versions.
#[derive(Serialize)]
struct Versions {
    version: &'static str,
    /// Commit of the build; `unknown` for a build outside of a git working tree.
    commit: &'static str,
    /// Number of the newest migration of this program.
    schema: i64,
    /// Version of the server; absent if the server gave no answer.
    server: Option<String>,
    /// The reason of an absent server or of absent agents.
    error: Option<String>,
    agents: Vec<AgentVersion>,
}

#[derive(Serialize)]
struct AgentVersion {
    site: String,
    name: String,
    /// Absent before the agent's first call.
    version: Option<String>,
}

/// `muster version`, without arguments of its own.
pub(super) fn command() -> Command {
    Command::new("version").about("Show the versions of this program, the server and the agents")
}

pub(super) async fn run(common: &Common) -> anyhow::Result<()> {
    let migrations = muster_server::schema::MIGRATOR.iter();
    let mut versions = Versions {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("MUSTER_COMMIT"),
        schema: migrations
            .map(|migration| migration.version)
            .max()
            .unwrap_or(0),
        server: None,
        error: None,
        agents: Vec::new(),
    };
    if let Err(error) = ask(&mut versions, common).await {
        versions.error = Some(format!("{error:#}"));
    }
    common.output.print_lines(&versions, || describe(&versions))
}

/// Asks the server for the versions of the server and of the agents.
async fn ask(versions: &mut Versions, common: &Common) -> anyhow::Result<()> {
    let client = common.connection.client()?;
    versions.server = Some(client.server_version().await?);
    let agents = list_agents(&client).await?;
    versions.agents = agents.into_iter().map(AgentVersion::of).collect();
    Ok(())
}

async fn list_agents(client: &Client) -> Result<Vec<Agent>, ClientError> {
    let mut agents = Vec::new();
    for site in client.list_all::<SiteSpec>(None).await? {
        agents.extend(client.list_agents(site.name.as_str()).await?.items);
    }
    Ok(agents)
}

impl AgentVersion {
    fn of(agent: Agent) -> Self {
        Self {
            site: agent.site,
            name: agent.name,
            version: agent.version,
        }
    }
}

fn describe(versions: &Versions) -> Vec<String> {
    let mut lines = vec![format!(
        "muster  {} (commit {}, schema {})",
        versions.version, versions.commit, versions.schema
    )];
    let unknown = versions.error.as_deref().unwrap_or("unknown");
    lines.push(match &versions.server {
        Some(server) => format!("server  {server}"),
        None => format!("server  unknown: {unknown}"),
    });
    for agent in &versions.agents {
        let version = agent.version.as_deref().unwrap_or("unknown: no call yet");
        lines.push(format!(
            "agent   {version}  {} of {}",
            agent.name, agent.site
        ));
    }
    if let (Some(_), Some(error)) = (&versions.server, &versions.error) {
        lines.push(format!("agents  unknown: {error}"));
    }
    lines
}
