//! Operations: their cancellation.

pub mod view; // An operation as returned to readers

use http::StatusCode;
use jiff::Timestamp;
use muster_api::operations::OperationState;
use muster_core::ids::OperationId;
use muster_core::lifecycle::state::Action;
use muster_core::lifecycle::state::State as NodeState;
use sqlx::PgConnection;

use self::view::{find, load};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::nodes::LockedNode;
use crate::db::operations::OperationRow;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::writing::{self, Effect};

/// Requests the stop of an operation. A running step may finish first. Completed steps are not
/// undone.
///
/// # Errors
/// 404, 409 when the operation is done.
pub async fn cancel(
    app: &App,
    actor: &Actor,
    id: OperationId,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, &(), async |conn| {
        // Lock the node first, as every transaction does, then read the operation again under the
        // lock.
        let node = match find(conn, id).await?.node {
            Some(node) => db::nodes::find_for_update(conn, &node.to_string()).await?,
            None => None,
        };
        let row = find(conn, id).await?;
        if row.finished_at.is_some() {
            return Err(Error::conflict(
                "done",
                format!("The operation is already over: {}.", row.state),
            ));
        }
        stop(conn, actor, &row, node, app.clock.now()).await?;
        Ok(Effect::Done(
            Answer::ok(&load(conn, id).await?)?.status(StatusCode::ACCEPTED),
        ))
    })
    .await
}

/// Stops an operation: no further step begins, and running jobs are asked to stop. A step of the
/// repair runbook continues, because a node could stay powered off when the step is cut short. A
/// request not yet begun is withdrawn. A release stays requested, because the claim records the
/// release.
async fn stop(
    conn: &mut PgConnection,
    actor: &Actor,
    row: &OperationRow,
    node: Option<LockedNode>,
    now: Timestamp,
) -> Result<(), Error> {
    db::operations::ask_to_stop(conn, row.id, now).await?;
    let climbs = node
        .as_ref()
        .is_some_and(|node| node.state == NodeState::Repairing);
    let jobs = if climbs {
        0
    } else {
        db::jobs::cancel_of(conn, row.id, now).await?
    };
    let Some(node) = node else { return Ok(()) };
    let what = if climbs {
        "after the current step".to_owned()
    } else {
        format!("({jobs} open steps)")
    };
    let summary = format!("{}: stop requested {what}", row.kind);
    let event = actor.event(now, "operation.cancel_requested", Some(node.id), summary);
    db::events::insert(conn, event.under(Some(row.id))).await?;
    // Between two steps of a gate run no job is open and the machine is on; the engine ends such a
    // run.
    let kept = |action| {
        action == Action::Release
            || (action == Action::RunGates && row.state != OperationState::Queued)
    };
    let only_asked =
        node.operation_id == Some(row.id) && node.action.is_some_and(|action| !kept(action));
    if jobs == 0 && only_asked {
        db::lifecycle::drop_action(conn, node.id).await?;
        db::operations::end(
            conn,
            row.id,
            OperationState::Cancelled,
            "stopped before it began",
            now,
        )
        .await?;
    }
    db::lifecycle::make_due(conn, node.id, now).await
}
