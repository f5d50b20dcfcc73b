//! `muster agent list`, `enrol`, `remove`: the agents of a site, from the server. `muster agent
//! --server …` starts an agent.

use clap::Subcommand;
use muster_core::values::Name;

use super::asking;
use super::kinds::read::{self, ListArgs};
use super::output::{Column, Form};
use super::session::Session;

const COLUMNS: &[Column] = &[
    Column::new("NAME", "/name", Form::Text),
    Column::new("SITE", "/site", Form::Text),
    Column::new("VERSION", "/version", Form::Text),
    Column::new("HEARD", "/last_seen", Form::Age),
    Column::new("CLOCK", "/clock_offset_ms", Form::Milliseconds),
    Column::new("REFUSED", "/refused", Form::Text),
    Column::wide("ID", "/id", Form::Text),
];

/// Subcommands of agents.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentVerb {
    /// List the agents of a site, or of all sites
    List {
        site: Option<String>,
        #[command(flatten)]
        args: ListArgs,
    },
    /// Enrol an agent, and print the agent's token. The token is shown once
    Enrol { site: String, agent: Name },
    /// Remove an agent. The agent's certificates become invalid at once
    Remove {
        site: String,
        agent: String,
        /// Skip the confirmation. Scripts without a terminal are never asked
        #[arg(short, long)]
        yes: bool,
    },
}

pub(super) async fn run(session: &Session, verb: AgentVerb) -> anyhow::Result<()> {
    match verb {
        AgentVerb::List { site, args } => {
            let sites = match site {
                Some(site) => vec![site],
                None => {
                    let sites = session
                        .client
                        .list_all::<muster_api::sites::SiteSpec>(None)
                        .await?;
                    sites
                        .into_iter()
                        .map(|site| site.name.to_string())
                        .collect()
                }
            };
            let mut agents = Vec::new();
            for site in &sites {
                agents.extend(
                    read::all(session, &["sites", site, "agents"], &args, Vec::new()).await?,
                );
            }
            if agents.is_empty() && !args.narrows() {
                session
                    .output
                    .note("no agents. A site needs an agent to act: muster agent enrol SITE NAME");
            }
            read::print(session, &agents, COLUMNS, &args)
        }
        AgentVerb::Enrol { site, agent } => {
            let enrolled = session.client.enrol_agent(&site, &agent).await?;
            session
                .output
                .print_lines(&enrolled, || vec![enrolled.token.reveal().to_owned()])?;
            crate::printing::ensure_read("the token")
        }
        AgentVerb::Remove { site, agent, yes } => {
            // The id is read here, so an agent enrolled meanwhile under the same name stays.
            let seen = session.client.agent(&site, &agent).await?;
            if asking::agreed(
                &format!("Nothing moves in {site} while no agent acts for it. Remove {agent}?"),
                yes,
            )? {
                session
                    .client
                    .remove_agent(&site, &agent, seen.generation)
                    .await?;
                session.output.note(&format!("agent {agent} removed"));
            }
            Ok(())
        }
    }
}
