//! `muster node rename`, `muster node move`, `muster node match`, `muster node adopt`.

use clap::Args;
use muster_api::nodes::{AdoptNode, MatchNode, MoveNode, NodeSpec, RenameNode};
use muster_core::values::Mac;

use super::acting::{OneArgs, begun};
use super::plans::show;
use super::session::Session;

/// The new name.
#[derive(Args, Debug)]
pub(crate) struct RenameArgs {
    #[command(flatten)]
    act: OneArgs,
    name: String,
}

/// A running machine.
#[derive(Args, Debug)]
pub(crate) struct AdoptArgs {
    #[command(flatten)]
    act: OneArgs,
    #[arg(long)]
    pool: String,
    /// Credential with the purpose `adopt`: root's key or password, used once
    #[arg(long)]
    credential: String,
    /// Host key `SHA256:…` as read on the machine. Without this option, the command prints the
    /// machine's key and stops
    #[arg(long)]
    host_key: Option<String>,
    /// Name of the claim. Default: the node's name
    #[arg(long)]
    claim: Option<String>,
}

/// The discovered machine.
#[derive(Args, Debug)]
pub(crate) struct MatchArgs {
    #[command(flatten)]
    act: OneArgs,
    /// The declared node
    #[arg(long, value_name = "NODE")]
    to: String,
    /// Declared MAC without a machine, replaced by the machine's MAC. Required if the node declares
    /// several MACs. Repeatable
    #[arg(long, value_name = "MAC")]
    replaces: Vec<Mac>,
    /// Add the machine's MACs to the declared MACs
    #[arg(long, conflicts_with = "replaces")]
    add: bool,
}

/// The new place.
#[derive(Args, Debug)]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    act: OneArgs,
    #[arg(long)]
    rack: String,
    /// Lowest rack unit of the node
    #[arg(long)]
    unit: Option<u32>,
    #[arg(long)]
    site: Option<String>,
}

pub(super) async fn rename(session: &Session, args: RenameArgs) -> anyhow::Result<()> {
    let body = RenameNode {
        name: args.name,
        reason: args.act.how.reason.clone(),
    };
    if args.act.how.plan {
        return show(
            session,
            &session
                .client
                .plan_node(&args.act.node, "rename", &body)
                .await?,
        );
    }
    let operation = session.client.rename_node(&args.act.node, &body).await?;
    begun(session, &[operation], args.act.how.waiting).await
}

pub(super) async fn bind(session: &Session, args: MatchArgs) -> anyhow::Result<()> {
    let replaces = (args.add || !args.replaces.is_empty()).then_some(args.replaces);
    let body = MatchNode {
        to: args.to,
        replaces,
        reason: args.act.how.reason.clone(),
    };
    if args.act.how.plan {
        return show(
            session,
            &session
                .client
                .plan_node(&args.act.node, "match", &body)
                .await?,
        );
    }
    let node = &args.act.node;
    let machine = session.client.get_with_any_spec::<NodeSpec>(node).await?;
    let operation = session
        .client
        .match_node(&machine.id.to_string(), machine.generation, &body)
        .await?;
    begun(session, &[operation], args.act.how.waiting).await
}

pub(super) async fn shift(session: &Session, args: MoveArgs) -> anyhow::Result<()> {
    let body = MoveNode {
        site: args.site,
        rack: args.rack,
        rack_unit: args.unit,
        reason: args.act.how.reason.clone(),
    };
    if args.act.how.plan {
        return show(
            session,
            &session
                .client
                .plan_node(&args.act.node, "move", &body)
                .await?,
        );
    }
    let operation = session.client.move_node(&args.act.node, &body).await?;
    begun(session, &[operation], args.act.how.waiting).await
}

pub(super) async fn adopt(session: &Session, args: AdoptArgs) -> anyhow::Result<()> {
    let body = AdoptNode {
        pool: args.pool,
        credential: args.credential,
        host_key: args.host_key,
        claim: args.claim,
        reason: args.act.how.reason.clone(),
    };
    if args.act.how.plan {
        return show(
            session,
            &session
                .client
                .plan_node(&args.act.node, "adopt", &body)
                .await?,
        );
    }
    let operation = session.client.adopt_node(&args.act.node, &body).await?;
    begun(session, &[operation], args.act.how.waiting).await
}
