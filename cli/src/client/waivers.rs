//! `muster waiver`.

use std::time::Duration;

use anyhow::Context as _;
use clap::{ArgGroup, Args, Subcommand};
use jiff::SignedDuration;
use muster_api::waivers::CreateWaiver;
use uuid::Uuid;

use super::asking;
use super::session::Session;
use crate::duration::parse_duration;

/// What can be done with waivers.
#[derive(Debug, Subcommand)]
pub(crate) enum WaiverVerb {
    /// Ask to let a gate count as passed somewhere; a second person agrees by `muster approval approve`.
    Create(CreateArgs),
    /// End a waiver before its time. Nodes that are in service stay there.
    Delete {
        id: Uuid,
        /// Do not ask. Nobody is asked where nobody can answer.
        #[arg(short, long)]
        yes: bool,
    },
}

/// What to ask for.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("place").required(true).args(["node", "rack", "pool"])))]
pub(crate) struct CreateArgs {
    /// On this node.
    #[arg(long)]
    node: Option<String>,
    /// On every node of this rack.
    #[arg(long)]
    rack: Option<String>,
    /// On every node that this pool has claimed.
    #[arg(long)]
    pool: Option<String>,
    /// The gate's id.
    #[arg(long)]
    gate: String,
    /// Why, for whoever is to agree.
    #[arg(long)]
    reason: String,
    /// For how long: 12h, 120h; at most 90 days.
    #[arg(long = "for", value_parser = parse_duration, value_name = "TIME")]
    lasts: Duration,
}

pub(super) async fn run(session: &Session, verb: WaiverVerb) -> anyhow::Result<()> {
    match verb {
        WaiverVerb::Create(args) => {
            let CreateArgs {
                node,
                rack,
                pool,
                gate,
                reason,
                lasts,
            } = args;
            let lasts = SignedDuration::try_from(lasts).context("--for")?;
            let until = session.clock.now().checked_add(lasts).context("--for")?;
            let request = CreateWaiver {
                node,
                rack,
                pool,
                gate,
                reason,
                until,
            };
            let waiver = session.client.create_waiver(&request).await?;
            session.output.print_lines(&waiver, || {
                let approval = waiver.approval.map(|id| id.to_string()).unwrap_or_default();
                let next = format!(
                    "it counts once somebody else has agreed: muster approval approve {approval}"
                );
                vec![waiver.id.to_string(), next]
            })
        }
        WaiverVerb::Delete { id, yes } => {
            if asking::agreed(
                "Nodes on their way must pass the gate again. End the waiver?",
                yes,
            )? {
                let waiver = session.client.end_waiver(id).await?;
                session.output.print_lines(&waiver, || {
                    vec![format!("the waiver of {} is over", waiver.gate)]
                })?;
            }
            Ok(())
        }
    }
}
