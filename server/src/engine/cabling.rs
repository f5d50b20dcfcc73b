//! A cable that is not where its rack's plan has it is an event, when a look at its node finds it so for the first time.

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

/// Tells what is wrong with a node's cables after its facts were stored, unless it hears the same as before.
///
/// # Errors
/// When the database fails.
pub(super) async fn tell(
    conn: &mut PgConnection,
    node: NodeId,
    (before, facts): (Option<&Facts>, &Facts),
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
    // An installed system hears nothing, and its facts are not what cables are held against.
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
