//! `muster claim`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use muster_api::claims::{Claim, ClaimSpec, CreateClaim};
use muster_core::claims::ClaimState;
use muster_core::values::Name;

use super::Session;
use super::output::{Rows, age};
use super::progress::{self, parse_duration};

/// What can be done with claims.
#[derive(Debug, Subcommand)]
pub(crate) enum ClaimVerb {
    /// List the claims that hold a node.
    List,
    /// Show one claim.
    Get { claim: String },
    /// Bind nodes to a pool.
    Create(CreateArgs),
    /// Release a node: drain, out of the scheduler, wipe, inspection.
    Delete(DeleteArgs),
    /// Take a release back while the node's disks are kept.
    Undo(UndoArgs),
}

/// Which nodes, for which pool.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    #[arg(long)]
    pool: String,
    /// The node; without it the server picks available ones.
    #[arg(long, conflicts_with_all = ["label", "count"])]
    node: Option<String>,
    /// A label that the nodes must have; may be given several times.
    #[arg(long, value_parser = label, value_name = "NAME=VALUE")]
    label: Vec<(String, String)>,
    /// The claim's name; without it the server makes one.
    #[arg(long, conflicts_with = "count")]
    name: Option<Name>,
    /// How many nodes, one claim each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=200))]
    count: u32,
    /// Wait until the nodes are in service.
    #[arg(long)]
    wait: bool,
    #[arg(long, default_value = "2h", value_parser = parse_duration)]
    timeout: Duration,
}

/// Which claim to give up.
#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    claim: String,
    /// Erase the disks at once, without the time in which the release can be undone.
    #[arg(long)]
    erase_now: bool,
    /// Wait until the node is clean and available again.
    #[arg(long)]
    wait: bool,
    #[arg(long, default_value = "2h", value_parser = parse_duration)]
    timeout: Duration,
}

/// Which claim to take back.
#[derive(Args, Debug)]
pub(crate) struct UndoArgs {
    claim: String,
    /// Wait until the node is in service again.
    #[arg(long)]
    wait: bool,
    #[arg(long, default_value = "2h", value_parser = parse_duration)]
    timeout: Duration,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) async fn run(session: &Session, verb: ClaimVerb) -> anyhow::Result<()> {
    match verb {
        ClaimVerb::List => {
            let claims = session.client.list_all::<ClaimSpec>(None).await?;
            session.output.print(&claims, || table(session, &claims))
        }
        ClaimVerb::Get { claim } => {
            let claim = session.client.get::<ClaimSpec>(&claim).await?;
            session.output.print(&claim, || table(session, std::slice::from_ref(&claim)))
        }
        ClaimVerb::Create(args) => create(session, args).await,
        ClaimVerb::Delete(args) => delete(session, &args).await,
        ClaimVerb::Undo(args) => undo(session, &args).await,
    }
}

fn table(session: &Session, claims: &[Claim]) -> Rows<6> {
    let now = session.clock.now();
    let row = |claim: &Claim| {
        let state = match claim.status.state {
            ClaimState::Bound => "bound",
            ClaimState::Releasing => "releasing",
            ClaimState::Released => "released",
        };
        [
            claim.name.to_string(),
            claim.spec.pool.clone(),
            claim.status.node.clone(),
            state.into(),
            claim.status.node_state.clone(),
            age(now, Some(claim.created_at)),
        ]
    };
    let headings = ["NAME", "POOL", "NODE", "CLAIM", "NODE STATE", "AGE"];
    Rows { headings, rows: claims.iter().map(row).collect(), wide_from: 6 }
}

async fn create(session: &Session, args: CreateArgs) -> anyhow::Result<()> {
    let selector = args.node.is_none().then(|| args.label.into_iter().collect::<BTreeMap<_, _>>());
    let request = CreateClaim { name: args.name, spec: ClaimSpec { pool: args.pool, node: args.node, selector } };
    let mut claims = Vec::new();
    let mut refused = None;
    for _ in 0..args.count {
        match session.client.create_claim(&request).await {
            Ok(claim) => claims.push(claim),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    // What was bound is told even when the next one was refused: it is real.
    session.output.print(&claims, || table(session, &claims))?;
    if let Some(error) = refused {
        return Err(error.into());
    }
    let operations: Vec<_> = claims.iter().filter_map(|claim| claim.status.operation).collect();
    match args.wait {
        true => progress::follow(&session.client, &operations, args.timeout).await,
        false => Ok(()),
    }
}

async fn delete(session: &Session, args: &DeleteArgs) -> anyhow::Result<()> {
    let claim = session.client.get::<ClaimSpec>(&args.claim).await?;
    let operation = match args.erase_now {
        true => session.client.erase_claim(&args.claim, claim.generation).await?,
        false => session.client.delete_claim(&args.claim, claim.generation).await?,
    };
    let kept = session.client.get::<ClaimSpec>(&claim.id.to_string()).await?.status.undo_until;
    let told = || {
        let mut lines = vec![format!("{} is released by operation {}", claim.status.node, operation.id)];
        lines
            .extend(kept.map(|until| format!("its disks are kept until {until:.0}: muster claim undo {}", claim.name)));
        lines
    };
    session.output.print_lines(&operation, told)?;
    match args.wait {
        true => progress::follow(&session.client, &[operation.id], args.timeout).await,
        false => Ok(()),
    }
}

async fn undo(session: &Session, args: &UndoArgs) -> anyhow::Result<()> {
    let operation = session.client.undo_release(&args.claim).await?;
    let told = || vec![format!("{} is kept; its way back is operation {}", args.claim, operation.id)];
    session.output.print_lines(&operation, told)?;
    match args.wait {
        true => progress::follow(&session.client, &[operation.id], args.timeout).await,
        false => Ok(()),
    }
}
