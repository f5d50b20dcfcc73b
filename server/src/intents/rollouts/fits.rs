//! Nodes unfit for the target, by the rules and the observed facts of each node. The plan names these
//! nodes before the start.

use std::collections::BTreeMap;

use muster_core::effects::Effect;
use muster_core::ids::NodeId;
use muster_core::revisions::Revision;
use sqlx::PgConnection;

use super::fleet::Loaded;
use crate::db;
use crate::db::rollout_facts::NodeRow;
use crate::db::rollouts::RolloutRow;
use crate::engine::compatibility::{self, Onto};
use crate::error::Error;

/// The code of an unfit node.
pub(super) const UNFIT: &str = "incompatible";

/// Number of nodes with facts in memory at the same time.
const CHUNK: usize = 100;

/// Records why the target does not fit nodes of a plan.
///
/// # Errors
/// 409 `incompatible` if the target fits none of the rollout's nodes. A node on the target, or on an
/// unknown revision, counts as fit.
pub(super) async fn keep_unfit(
    conn: &mut PgConnection,
    row: &RolloutRow,
    loaded: &Loaded,
    target: &Revision,
) -> Result<(), Error> {
    let nodes = loaded.fleet.nodes.iter();
    let changing: BTreeMap<NodeId, Effect> = nodes
        .filter(|node| node.effect != Effect::None && node.condition.unreadable.is_none())
        .map(|node| (node.member.node, node.effect))
        .collect();
    let unfit = find_unfit(conn, target, &changing).await?;
    match unfit.values().next() {
        Some(first) if unfit.len() == loaded.fleet.nodes.len() => {
            let detail = format!(
                "Revision {} fits none of the {} nodes of {}: {first}.",
                row.number,
                unfit.len(),
                row.pool_name
            );
            return Err(Error::conflict(UNFIT, detail));
        }
        Some(_) | None => {}
    }
    let of = |node: &NodeRow| {
        let (name, why) = (&node.name, unfit.get(&node.node)?);
        let reason = format!("when planned, the stack could not go onto {name}: {why}");
        Some((node.node, reason))
    };
    let reasons: Vec<(NodeId, String)> = loaded.rows.iter().filter_map(of).collect();
    db::rollout_nodes::note_all(conn, row.id, UNFIT, &reasons).await
}

/// Returns the sentences of the refusing rules by node, without the names of nodes.
async fn find_unfit(
    conn: &mut PgConnection,
    target: &Revision,
    changing: &BTreeMap<NodeId, Effect>,
) -> Result<BTreeMap<NodeId, String>, Error> {
    let ids: Vec<NodeId> = changing.keys().copied().collect();
    let mut unfit = BTreeMap::new();
    for chunk in ids.chunks(CHUNK) {
        for of in db::facts::list_latest(conn, chunk).await? {
            let node = of.node;
            let onto = match changing.get(&node) {
                Some(effect) if *effect >= Effect::Reinstall => Onto::Image,
                Some(_) | None => Onto::System,
            };
            let found = compatibility::judge(&target.stack, Some(&target.image), onto, of);
            if let Some(why) = compatibility::join_refusals(&found) {
                unfit.insert(node, why);
            }
        }
    }
    Ok(unfit)
}
