//! The beginning of a release, used by both callers: the deletion of a claim by a person, and a
//! replacement with the new node in service.

use jiff::Timestamp;
use muster_api::operations::OperationState;
use muster_core::ids::{ClaimId, NodeId, OperationId};
use muster_core::lifecycle::state::Action;
use serde_json::json;
use sqlx::PgConnection;

use crate::db;
use crate::db::events::NewEvent;
use crate::db::operations::NewOperation;
use crate::error::Error;

/// A claim to release, with the claim's node.
#[derive(Clone, Copy, Debug)]
pub struct Given<'text> {
    pub claim: ClaimId,
    pub claim_name: &'text str,
    pub node: NodeId,
    /// The node's epoch before the release.
    pub epoch: i64,
    /// The node's present operation, to be cancelled by the release.
    pub former: Option<OperationId>,
    /// End of the time for an undo.
    pub undo_until: Option<Timestamp>,
}

/// Releases a claim. The node gets a new epoch and a release request, with an operation of its own.
/// The caller holds the lock on the node. Returns `false` when the claim is no longer bound. The
/// caller must then roll back the transaction.
///
/// # Errors
///
/// When the database fails.
pub async fn begin(
    conn: &mut PgConnection,
    given: &Given<'_>,
    new: &NewOperation,
    event: NewEvent,
) -> Result<bool, Error> {
    let (operation, now, epoch) = (new.id, new.now, given.epoch + 1);
    if let Some(former) = given.former {
        let message = format!("replaced by a release (operation {operation})");
        db::operations::end(conn, former, OperationState::Cancelled, &message, now).await?;
    }
    if !db::claims::set_releasing(conn, given.claim, epoch, given.undo_until, now).await? {
        return Ok(false);
    }
    db::operations::insert(conn, new).await?;
    db::nodes::set_assignment(conn, given.node, epoch, operation, now).await?;
    db::nodes::set_action(conn, given.node, Action::Release, None, operation, now).await?;
    db::events::insert(
        conn,
        event
            .under(Some(operation))
            .with(json!({ "claim": given.claim_name })),
    )
    .await?;
    Ok(true)
}
