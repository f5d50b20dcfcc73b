//! The beginning of a release, as whoever asks for it has it written: a person who deletes a claim, or a replacement whose new node serves.

use jiff::Timestamp;
use muster_core::ids::{ClaimId, NodeId, OperationId};
use muster_core::lifecycle::state::Wish;
use serde_json::json;
use sqlx::PgConnection;

use crate::db;
use crate::db::events::NewEvent;
use crate::db::operations::NewOperation;
use crate::error::Error;

/// A claim that is given up, and its node.
#[derive(Clone, Copy, Debug)]
pub struct Given<'text> {
    pub claim: ClaimId,
    pub claim_name: &'text str,
    pub node: NodeId,
    /// Of the node, before.
    pub epoch: i64,
    /// What the node is busy with: that is over.
    pub former: Option<OperationId>,
    /// Until then it can be undone.
    pub undo_until: Option<Timestamp>,
}

/// Gives a claim up: its node has another epoch and is asked to go, by an operation of its own. The caller holds the node's lock. `false`: the claim was
/// not bound any more, and the transaction must not be committed.
///
/// # Errors
/// When the database fails.
pub async fn begin(
    conn: &mut PgConnection,
    given: &Given<'_>,
    new: &NewOperation,
    event: NewEvent,
) -> Result<bool, Error> {
    let (operation, now, epoch) = (new.id, new.now, given.epoch + 1);
    if let Some(former) = given.former {
        let message = format!("overtaken by release (operation {operation})");
        db::operations::end(conn, former, "cancelled", &message, now).await?;
    }
    if !db::claims::set_releasing(conn, given.claim, epoch, given.undo_until, now).await? {
        return Ok(false);
    }
    db::operations::insert(conn, new).await?;
    db::nodes::set_assignment(conn, given.node, epoch, operation, now).await?;
    db::nodes::set_wish(conn, given.node, Wish::Release, None, operation, now).await?;
    db::events::insert(
        conn,
        event
            .under(Some(operation))
            .with(json!({ "claim": given.claim_name })),
    )
    .await?;
    Ok(true)
}
