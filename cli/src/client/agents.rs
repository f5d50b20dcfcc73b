//! `muster agent list`, `enrol`, `remove`: the agents of a site, as the server knows them. `muster agent --server …` runs one.

use clap::Subcommand;
use muster_core::values::Name;

use super::asking;
use super::output::{Column, Form};
use super::session::Session;

const COLUMNS: &[Column] = &[
    Column::new("NAME", "/name", Form::Text),
    Column::new("SITE", "/site", Form::Text),
    Column::new("VERSION", "/version", Form::Text),
    Column::new("HEARD", "/last_seen", Form::Age),
    Column::new("CLOCK", "/clock_offset_ms", Form::Milliseconds),
    Column::wide("ID", "/id", Form::Text),
];

/// What can be done with agents.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentVerb {
    /// List the agents of a site, or of every site.
    List { site: Option<String> },
    /// Enrol an agent and print its token, this once.
    Enrol { site: String, agent: Name },
    /// Remove an agent: its token ends at once.
    Remove {
        site: String,
        agent: String,
        /// Do not ask. Nobody is asked where nobody can answer.
        #[arg(short, long)]
        yes: bool,
    },
}

pub(super) async fn run(session: &Session, verb: AgentVerb) -> anyhow::Result<()> {
    match verb {
        AgentVerb::List { site } => {
            let sites = match site {
                Some(site) => vec![site],
                None => {
                    let sites = session.client.list_all::<muster_api::sites::SiteSpec>(None).await?;
                    sites.into_iter().map(|site| site.name.to_string()).collect()
                }
            };
            let mut agents = Vec::new();
            for site in &sites {
                agents.extend(session.client.list_agents(site).await?.items);
            }
            if agents.is_empty() {
                session.output.note("no agents: nothing moves in a site without one; muster agent enrol SITE NAME");
            }
            session.output.list_of(&agents, COLUMNS, session.clock.now())
        }
        AgentVerb::Enrol { site, agent } => {
            let enrolled = session.client.enrol_agent(&site, &agent).await?;
            session.output.print_lines(&enrolled, || vec![enrolled.token.reveal().to_owned()])
        }
        AgentVerb::Remove { site, agent, yes } => {
            if asking::agreed(&format!("Nothing moves in {site} while no agent acts for it. Remove {agent}?"), yes)? {
                session.client.remove_agent(&site, &agent).await?;
                session.output.note(&format!("agent {agent} removed"));
            }
            Ok(())
        }
    }
}
