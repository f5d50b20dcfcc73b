//! `muster node hold-records`, `muster node release-records`: the legal hold of a node.

use clap::Args;
use muster_api::holds::HoldRecords;

use super::output::clean;
use super::session::Session;

/// The node and the reason.
#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    /// Name or id of the node
    node: String,
    /// Reason, recorded in the history
    #[arg(long)]
    reason: String,
}

pub(super) async fn hold(session: &Session, args: HoldArgs) -> anyhow::Result<()> {
    let HoldArgs { node, reason } = args;
    let held = session
        .client
        .hold_records(&node, &HoldRecords { reason })
        .await?;
    session.output.print_lines(&held, || {
        vec![format!(
            "the records of {} are kept since {:.0}: {}",
            clean(&held.node),
            held.held_at,
            clean(&held.reason)
        )]
    })
}

pub(super) async fn release(session: &Session, args: &HoldArgs) -> anyhow::Result<()> {
    let HoldArgs { node, reason } = args;
    session.client.release_records(node, reason).await?;
    let told = serde_json::json!({ "node": node });
    session.output.print_lines(&told, || {
        vec![format!("old records of {node} are removed again")]
    })
}
