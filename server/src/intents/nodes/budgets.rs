//! The power budget of a rack, against the watts reserved by a node that comes into the rack.

use sqlx::PgConnection;

use crate::db;
use crate::db::nodes::LockedNode;
use crate::error::Error;

/// Returns a blocker where the power budget of another rack cannot take the node's reserved power.
/// The rack stays locked until the transaction ends.
pub(crate) async fn find_blockers(
    conn: &mut PgConnection,
    node: &LockedNode,
    rack: &str,
) -> Result<Vec<String>, Error> {
    if node.power_reserved_w == 0 || node.spec["rack"] == rack {
        return Ok(Vec::new());
    }
    // A missing rack was reported before.
    let Some(row) = db::objects::find_for_reference(conn, "rack", rack).await? else {
        return Ok(Vec::new());
    };
    let (budget, committed) = db::power::hold_rack(conn, row.id).await?;
    let wanted = i64::from(node.power_reserved_w);
    Ok(match budget.map(i64::from) {
        Some(budget) if committed + wanted > budget => vec![format!(
            "{rack}'s power budget: {committed} of {budget} W are committed, {} holds {wanted} W.",
            node.name
        )],
        _ => Vec::new(),
    })
}
