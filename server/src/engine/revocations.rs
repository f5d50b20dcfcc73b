//! Reports of agents about nodes refusing the SSH certificates of removed agents.

use jiff::Timestamp;
use muster_core::ids::{JobId, NodeId};
use muster_core::wire::calls::ReportOutcome;
use serde_json::json;
use sqlx::PgConnection;

use super::outcomes::Reporter;
use crate::db;
use crate::db::events::NewEvent;
use crate::error::Error;

/// A job with a list of revoked certificates in the order.
#[derive(Clone, Copy, Debug)]
pub struct ListedJob<'a> {
    pub node: NodeId,
    pub job: JobId,
    pub report: &'a ReportOutcome,
}

/// Records a node's refusal of the certificates in the list of a job, and emits an event with the
/// number of nodes still accepting certificates of the agent.
///
/// # Errors
/// When the database fails.
pub async fn record(
    conn: &mut PgConnection,
    reporter: Reporter<'_>,
    listed: ListedJob<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    let attempt = listed.report.attempt;
    let count = db::ssh_certificates::note_held(conn, listed.job, attempt).await?;
    if count == 0 {
        return Ok(());
    }
    let accepting = db::ssh_certificates::count_accepting(conn, now).await?;
    let summary = format!(
        "the node refuses {count} SSH certificates of removed agents; nodes that still accept some: {accepting}"
    );
    let actor = format!("agent:{}", reporter.name);
    let event = NewEvent::node(now, actor, "node.keys_revoked", listed.node, summary);
    let detail = json!({ "certificates": count, "nodes_accepting": accepting, "job": listed.job });
    db::events::insert(conn, event.with(detail)).await
}
