//! `muster version`: the versions of this program, of the server, and of the agents. An unreachable
//! server is a line of the result, not a failure.

use muster_api::agents::Agent;
use muster_api::client::{Client, ClientError};
use muster_api::sites::SiteSpec;
use serde::Serialize;

use super::session::Session;

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

pub(super) async fn run(session: &Session) -> anyhow::Result<()> {
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
    match session.client.server_version().await {
        Ok(server) => versions.server = Some(server),
        Err(error) => versions.error = Some(error.to_string()),
    }
    if versions.server.is_some() {
        match list_agents(&session.client).await {
            Ok(agents) => versions.agents = agents.into_iter().map(AgentVersion::of).collect(),
            Err(error) => versions.error = Some(error.to_string()),
        }
    }
    session
        .output
        .print_lines(&versions, || describe(&versions))
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
