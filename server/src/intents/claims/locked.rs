//! A claim and its node under lock: every change of a claim begins here.

use muster_core::ids::NodeId;
use sqlx::PgConnection;

use crate::db;
use crate::db::claims::ClaimRow;
use crate::db::nodes::LockedNode;
use crate::error::Error;

/// How often the lock is tried while the claim changes nodes. Beyond this number the caller must
/// retry.
const ROUNDS: usize = 5;

/// A claim, read while its node's row is locked.
#[derive(Clone, Debug)]
pub(crate) struct LockedClaim {
    pub claim: ClaimRow,
    pub node: LockedNode,
}

impl LockedClaim {
    /// Locks the claim's node, and so orders releases, and the node of an arriving replacement. A
    /// replacement can change both nodes before the locks are held, so the claim is read again
    /// under the locks.
    ///
    /// # Errors
    /// 404 where no claim has this name or id; 409 where the claim keeps changing nodes.
    pub(crate) async fn lock(conn: &mut PgConnection, key: &str) -> Result<Self, Error> {
        let missing = || Error::NotFound(format!("claim {key:?}"));
        let mut found = db::claims::find(conn, key).await?.ok_or_else(missing)?;
        for _ in 0..ROUNDS {
            let coming = db::replacements::find_coming(conn, found.id).await?;
            let mut nodes: Vec<NodeId> = [found.node]
                .into_iter()
                .chain(coming.map(|(_, node)| node))
                .collect();
            // Every caller locks two nodes in the order of their ids, so that no deadlock is
            // possible.
            nodes.sort_by_key(|node| node.0);
            let mut own = None;
            for id in nodes {
                let node = db::nodes::find_for_update(conn, &id.to_string())
                    .await?
                    .ok_or_else(missing)?;
                own = own.or(Some(node).filter(|node| node.id == found.node));
            }
            let again = db::claims::find(conn, &found.id.to_string())
                .await?
                .ok_or_else(missing)?;
            let stays = again.node == found.node
                && db::replacements::find_coming(conn, again.id).await? == coming;
            match own.filter(|_| stays) {
                Some(node) => return Ok(Self { claim: again, node }),
                None => found = again,
            }
        }
        Err(Error::conflict(
            "contended",
            format!("The claim {} is changing nodes; try again.", found.name),
        ))
    }
}

/// The refusal for a claim with a protected node.
pub(crate) fn refuse_protected(node: &LockedNode) -> Error {
    Error::conflict(
        "protected",
        format!("{} is protected; clear that first.", node.name),
    )
}

/// The refusal for a claim without a node.
pub(crate) fn refuse_released(claim: &ClaimRow) -> Error {
    Error::conflict("released", format!("The claim {} is over.", claim.name))
}
