//! `muster claim`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use muster_api::claims::{Claim, ClaimSpec, CreateClaim, ReplaceClaim};
use muster_api::client::ClientError;
use muster_api::plans::Desired;
use muster_core::claims::WaitFor;
use muster_core::values::Name;

use super::acting::{Waiting, tell};
use super::kinds::columns;
use super::session::Session;
use super::{asking, plans, progress};

/// What can be done with claims.
#[derive(Debug, Subcommand)]
pub(crate) enum ClaimVerb {
    /// Bind nodes to a pool.
    Create(CreateArgs),
    /// Release a node: drain, out of the scheduler, wipe, inspection.
    #[command(visible_alias = "delete")]
    Release(ReleaseArgs),
    /// Take a release back while the node's disks are kept.
    Undo(UndoArgs),
    /// Give a claim another node: it comes first, and the one that is there goes once it serves.
    Replace(ReplaceArgs),
    /// Keep what a claim's node runs as it is: no rollout takes it along, and no recovery installs anything on it.
    Hold(HoldArgs),
    /// Let a claim go again that was held.
    Unhold(HoldArgs),
}

/// Which nodes, for which pool.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The pool that they join.
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
    /// Keep what the nodes run as it is, whatever Muster does by itself.
    #[arg(long)]
    hold: bool,
    /// What waiting for the claims means, here and for everybody: in_service, or bound. in_service when left out.
    #[arg(long, value_parser = wait_for, value_name = "WHAT")]
    wait_for: Option<WaitFor>,
    /// How many nodes, one claim each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=200))]
    count: u32,
    /// Show which node it would be and what would be done to it, and do nothing.
    #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["count", "wait"])]
    plan: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// Which claim to give up.
#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    claim: String,
    /// Show which node would be wiped, and do nothing.
    #[arg(long, visible_alias = "dry-run", conflicts_with = "wait")]
    plan: bool,
    /// Erase the disks at once, without the time in which the release can be undone.
    #[arg(long)]
    erase_now: bool,
    /// Do not ask. Nobody is asked where nobody can answer.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// Which claim to take back.
#[derive(Args, Debug)]
pub(crate) struct UndoArgs {
    claim: String,
    /// Show what it would do, and do nothing.
    #[arg(long, visible_alias = "dry-run", conflicts_with = "wait")]
    plan: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// Which claim gets another node.
#[derive(Args, Debug)]
pub(crate) struct ReplaceArgs {
    claim: String,
    /// The node that comes; without it the server picks an available one that fits the claim.
    #[arg(long)]
    node: Option<String>,
    /// Show which node would come and what would be done to both, and do nothing.
    #[arg(long, visible_alias = "dry-run", conflicts_with = "wait")]
    plan: bool,
    /// Why, for the history.
    #[arg(long)]
    reason: Option<String>,
    /// Do not ask. Nobody is asked where nobody can answer.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// Which claims to hold, or to let go.
#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    #[arg(required = true, value_name = "CLAIM")]
    claims: Vec<String>,
}

fn wait_for(text: &str) -> Result<WaitFor, String> {
    text.parse()
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) async fn run(session: &Session, verb: ClaimVerb) -> anyhow::Result<()> {
    match verb {
        ClaimVerb::Create(args) => create(session, args).await,
        ClaimVerb::Release(args) => release(session, &args).await,
        ClaimVerb::Undo(args) => undo(session, &args).await,
        ClaimVerb::Replace(args) => replace(session, &args).await,
        ClaimVerb::Hold(args) => hold(session, &args, Some(true)).await,
        ClaimVerb::Unhold(args) => hold(session, &args, None).await,
    }
}

async fn create(session: &Session, args: CreateArgs) -> anyhow::Result<()> {
    let selector = args
        .node
        .is_none()
        .then(|| args.label.into_iter().collect::<BTreeMap<_, _>>());
    let spec = ClaimSpec {
        wait_for: args.wait_for,
        hold: args.hold.then_some(true),
        ..ClaimSpec::new(args.pool, args.node, selector)
    };
    let request = CreateClaim {
        name: args.name,
        spec,
    };
    if args.plan {
        return plan_create(session, &request).await;
    }
    let (claims, refused) = create_each(session, &request, args.count).await;
    // The claims that were made are shown even when the server refused the next one.
    let show = |claims: &[Claim]| {
        session
            .output
            .list_of(claims, columns("claim"), session.clock.now())
    };
    if !args.waiting.is_wanted() || refused.is_some() {
        if !claims.is_empty() {
            show(&claims)?;
        }
        return refused.map_or(Ok(()), |error| Err(error.into()));
    }
    if session.output.is_table() {
        show(&claims)?;
    }
    // What was asked for may be so already: the rest goes on without us.
    let unready = claims.iter().filter(|claim| !claim.status.ready);
    let operations: Vec<_> = unready.filter_map(|claim| claim.status.operation).collect();
    progress::follow(session, &operations, args.waiting.timeout()).await?;
    if !session.output.is_table() {
        let mut ended = Vec::with_capacity(claims.len());
        for claim in &claims {
            ended.push(
                session
                    .client
                    .get::<ClaimSpec>(&claim.id.to_string())
                    .await?,
            );
        }
        show(&ended)?;
    }
    Ok(())
}

/// Shows the plan of a claim. The plan of a claim without a name is made for `planned`.
async fn plan_create(session: &Session, request: &CreateClaim) -> anyhow::Result<()> {
    let name = request
        .name
        .as_ref()
        .map_or_else(|| "planned".to_owned(), ToString::to_string);
    let desired = Desired {
        kind: "claim".into(),
        name,
        spec: serde_json::to_value(&request.spec)?,
        ..Desired::default()
    };
    plans::tell(session, desired).await
}

/// Makes up to `count` claims; returns those that were made, and the refusal that ended the row.
async fn create_each(
    session: &Session,
    request: &CreateClaim,
    count: u32,
) -> (Vec<Claim>, Option<ClientError>) {
    let mut claims = Vec::new();
    for _ in 0..count {
        match session.client.create_claim(request).await {
            Ok(claim) => claims.push(claim),
            Err(error) => return (claims, Some(error)),
        }
    }
    (claims, None)
}

async fn release(session: &Session, args: &ReleaseArgs) -> anyhow::Result<()> {
    let claim = &args.claim;
    let claim = session.client.get_with_any_spec::<ClaimSpec>(claim).await?;
    if args.plan {
        let (name, erase_now) = (claim.id.to_string(), args.erase_now);
        return plans::tell(
            session,
            Desired {
                kind: "claim".into(),
                name,
                absent: true,
                erase_now,
                ..Desired::default()
            },
        )
        .await;
    }
    let erased = if args.erase_now {
        " Its disks are erased at once."
    } else {
        ""
    };
    if !asking::agreed(
        &format!(
            "Release {} from {}?{erased}",
            claim.status.node,
            claim.spec["pool"].as_str().unwrap_or("its pool")
        ),
        args.yes,
    )? {
        return Ok(());
    }
    let operation = match args.erase_now {
        true => {
            session
                .client
                .erase_claim(&args.claim, claim.generation)
                .await?
        }
        false => {
            session
                .client
                .delete_claim(&args.claim, claim.generation)
                .await?
        }
    };
    let kept = session
        .client
        .get_with_any_spec::<ClaimSpec>(&claim.id.to_string())
        .await?
        .status
        .undo_until;
    let id = operation.id;
    let told = || {
        let mut lines = vec![format!(
            "{} is released by operation {id}",
            claim.status.node
        )];
        lines.extend(kept.map(|until| {
            format!(
                "its disks are kept until {until:.0}: muster claim undo {}",
                claim.name
            )
        }));
        lines
    };
    tell(session, &[operation], args.waiting, told).await
}

async fn undo(session: &Session, args: &UndoArgs) -> anyhow::Result<()> {
    if args.plan {
        return plans::show(session, &session.client.plan_undo(&args.claim).await?);
    }
    let operation = session.client.undo_release(&args.claim).await?;
    let id = operation.id;
    let told = || {
        vec![format!(
            "{} is kept; its way back is operation {id}",
            args.claim
        )]
    };
    tell(session, &[operation], args.waiting, told).await
}

async fn replace(session: &Session, args: &ReplaceArgs) -> anyhow::Result<()> {
    let body = ReplaceClaim {
        node: args.node.clone(),
        reason: args.reason.clone(),
    };
    let plan = async || session.client.plan_replacement(&args.claim, &body).await;
    if args.plan {
        return plans::show(session, &plan().await?);
    }
    let claim = &args.claim;
    let claim = session.client.get_with_any_spec::<ClaimSpec>(claim).await?;
    if asking::would_ask(args.yes) {
        for change in plan().await?.changes {
            eprintln!("{change}");
        }
    }
    if !asking::agreed(
        &format!("Replace {} for {}?", claim.status.node, claim.name),
        args.yes,
    )? {
        return Ok(());
    }
    let operation = session
        .client
        .replace_claim(&args.claim, claim.generation, &body)
        .await?;
    let (id, node) = (operation.id, claim.status.node);
    let comes = operation
        .target
        .as_ref()
        .map_or("a node", |target| target.name.as_str())
        .to_owned();
    let name = claim.name;
    let told = || {
        vec![
            format!("{comes} comes for {name} by operation {id}"),
            format!(
                "{name} keeps {node} until then, and if it is cancelled: muster operation cancel {id}"
            ),
        ]
    };
    tell(session, &[operation], args.waiting, told).await
}

async fn hold(session: &Session, args: &HoldArgs, hold: Option<bool>) -> anyhow::Result<()> {
    let mut claims = Vec::with_capacity(args.claims.len());
    for name in &args.claims {
        claims.push(session.client.hold_claim(name, hold).await?);
    }
    session
        .output
        .list_of(&claims, columns("claim"), session.clock.now())
}
