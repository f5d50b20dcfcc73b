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

/// Subcommands of waivers.
#[derive(Debug, Subcommand)]
pub(crate) enum WaiverVerb {
    /// Request a waiver: a failing gate counts as passed. A second person approves by `muster
    /// approval approve`
    Create(CreateArgs),
    /// End a waiver early. Nodes in service stay in service
    Delete {
        id: Uuid,
        /// Skip the confirmation. Scripts without a terminal are never asked
        #[arg(short, long)]
        yes: bool,
    },
}

/// The requested waiver.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("place").required(true).args(["node", "rack", "pool"])))]
pub(crate) struct CreateArgs {
    /// Node of the waiver
    #[arg(long)]
    node: Option<String>,
    /// Rack of the waiver, with all its nodes
    #[arg(long)]
    rack: Option<String>,
    /// Pool of the waiver, with all its claimed nodes
    #[arg(long)]
    pool: Option<String>,
    /// Id of the gate
    #[arg(long)]
    gate: String,
    /// Reason for the approver
    #[arg(long)]
    reason: String,
    /// Duration, such as 12h or 120h; at most 90 days
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
                    "the waiver counts after a second person approves: muster approval approve {approval}"
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
