//! Events about cables with a difference from the rack's plan. Emitted when an inspection finds the
//! difference for the first time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::cabling::findings;
use muster_core::facts::Facts;
use muster_core::ids::NodeId;
use serde_json::json;
use sqlx::PgConnection;

use crate::db;
use crate::db::events::NewEvent;
use crate::error::Error;

/// Emits an event for each wrong cable of a node after the facts were stored. When the neighbours
/// are the same as before, events are skipped.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn record_faults(
    conn: &mut PgConnection,
    node: NodeId,
    before: Option<&Facts>,
    facts: &Facts,
    now: Timestamp,
) -> Result<(), Error> {
    if before.is_some_and(|before| before.neighbours == facts.neighbours) {
        return Ok(());
    }
    let Some((name, plan)) = db::cabling::find_plan_of(conn, node).await? else {
        return Ok(());
    };
    if plan.cables.is_empty() {
        return Ok(());
    }
    let rows = db::cabling::list_heard(conn, None, &[plan.rack]).await?;
    let heard: BTreeMap<_, _> = rows
        .into_iter()
        .map(|row| (row.node, row.neighbours))
        .collect();
    // An installed system observes no neighbours, so the facts are not compared with cables.
    if heard.get(&name) != Some(&facts.neighbours) {
        return Ok(());
    }
    let found = findings(&plan.cables, &heard);
    for finding in found
        .iter()
        .filter(|finding| finding.cable.node == name && finding.state.wrong())
    {
        let event = NewEvent::node(now, "muster", "node.cabling", node, finding.told.clone());
        let detail = json!({ "rack": plan.name, "cable": finding.cable, "state": finding.state });
        db::events::insert(conn, event.with(detail)).await?;
    }
    Ok(())
}
