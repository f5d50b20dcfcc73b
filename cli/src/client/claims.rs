//! `muster claim`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use muster_api::claims::{Claim, ClaimSpec, CreateClaim, ReplaceClaim};
use muster_api::client::ClientError;
use muster_api::plans::Desired;
use muster_api::revisions::ChooseRevision;
use muster_core::claims::WaitFor;
use muster_core::values::Name;

use super::acting::{Waiting, tell};
use super::kinds::columns;
use super::session::Session;
use super::{asking, budgets, plans, progress};

/// Subcommands of claims.
#[derive(Debug, Subcommand)]
pub(crate) enum ClaimVerb {
    /// Bind nodes to a pool
    Create(CreateArgs),
    /// Release a node: drain, removal from the scheduler, wipe, inspection
    #[command(visible_alias = "delete")]
    Release(ReleaseArgs),
    /// Undo a release before the node's disks are erased
    Undo(UndoArgs),
    /// Move a claim to another node. The new node enters service before the old node leaves
    Replace(ReplaceArgs),
    /// Hold a claim: rollouts and recoveries no longer change the software of the node
    Hold(HoldArgs),
    /// End the hold of a claim
    Unhold(HoldArgs),
    /// Assign a revision of the pool to claims. The nodes change with the next converge or
    /// reinstall
    Assign(AssignArgs),
    /// Write a node off: out of service, without counting against disruption budgets
    WriteOff(budgets::WriteOffArgs),
}

/// The nodes and the pool.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// Pool of the claim
    #[arg(long)]
    pool: String,
    /// Node to claim. Default: available nodes chosen by the server
    #[arg(long, conflicts_with_all = ["label", "count"])]
    node: Option<String>,
    /// Label required of the nodes. Repeatable
    #[arg(long, value_parser = label, value_name = "NAME=VALUE")]
    label: Vec<(String, String)>,
    /// Name of the claim. Default: a generated name
    #[arg(long, conflicts_with = "count")]
    name: Option<Name>,
    /// Create the claim on hold: automation does not change the node's software
    #[arg(long)]
    hold: bool,
    /// State to wait for: `in_service` or `bound`. Default: `in_service`
    #[arg(long, value_parser = wait_for, value_name = "WHAT")]
    wait_for: Option<WaitFor>,
    /// Number of nodes, with a claim each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=200))]
    count: u32,
    /// Show the chosen node and the effects without claiming
    #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["count", "wait"])]
    plan: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// The claim to release.
#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    claim: String,
    /// Show the effects without releasing
    #[arg(long, visible_alias = "dry-run", conflicts_with = "wait")]
    plan: bool,
    /// Erase the disks at once, without the undo window
    #[arg(long)]
    erase_now: bool,
    /// Skip the confirmation. Scripts without a terminal are never asked
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// The claim of the release.
#[derive(Args, Debug)]
pub(crate) struct UndoArgs {
    claim: String,
    /// Show the effects without undoing
    #[arg(long, visible_alias = "dry-run", conflicts_with = "wait")]
    plan: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// The claim to move.
#[derive(Args, Debug)]
pub(crate) struct ReplaceArgs {
    claim: String,
    /// The new node. Default: an available node chosen by the server
    #[arg(long)]
    node: Option<String>,
    /// Show the new node and the effects on both nodes without acting
    #[arg(long, visible_alias = "dry-run", conflicts_with = "wait")]
    plan: bool,
    /// Reason, recorded in the history
    #[arg(long)]
    reason: Option<String>,
    /// Skip the confirmation. Scripts without a terminal are never asked
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// The claims to hold or resume.
#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    #[arg(required = true, value_name = "CLAIM")]
    claims: Vec<String>,
}

/// The claims and the revision.
#[derive(Args, Debug)]
pub(crate) struct AssignArgs {
    #[arg(required = true, value_name = "CLAIM")]
    claims: Vec<String>,
    /// Number of the revision; `muster pool revisions` lists them
    #[arg(long)]
    revision: i32,
    /// Reason, recorded in the history
    #[arg(long)]
    reason: Option<String>,
}

fn wait_for(text: &str) -> Result<WaitFor, String> {
    text.parse::<WaitFor>().map_err(|error| error.to_string())
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
        ClaimVerb::Assign(args) => assign(session, args).await,
        ClaimVerb::WriteOff(args) => budgets::write_off(session, args).await,
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
    // Claims created before a refusal are printed as well.
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
    // The state may already be reached, and the rest needs no client.
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

/// Prints the plan of a claim. A claim without a name is planned under the name `planned`.
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

/// Creates up to `count` claims. Returns the created claims, and the refusal of the last attempt.
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
                "{name} keeps {node} until then; to keep the node for good: muster operation cancel {id}"
            ),
        ]
    };
    tell(session, &[operation], args.waiting, told).await
}

/// Assigns a revision to each claim. Claims before a refusal keep the revision and are printed.
async fn assign(session: &Session, args: AssignArgs) -> anyhow::Result<()> {
    let body = ChooseRevision {
        revision: args.revision,
        reason: args.reason,
    };
    let (mut assigned, mut refused) = (Vec::new(), None);
    for claim in &args.claims {
        match session.client.assign_revision(claim, &body).await {
            Ok(claim) => assigned.push(claim),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    session.output.print_lines(&assigned, || {
        let told = |claim: &Claim| {
            let (name, node) = (&claim.name, &claim.status.node);
            format!(
                "{name} is assigned revision {}: install it on {node} by muster node converge, or reinstall for another image or network",
                body.revision
            )
        };
        assigned.iter().map(told).collect()
    })?;
    refused.map_or(Ok(()), |error| Err(error.into()))
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
