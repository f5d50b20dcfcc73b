//! Operations: their cancellation.

pub mod view; // An operation as readers get it

use http::StatusCode;
use jiff::Timestamp;
use muster_core::ids::OperationId;
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

/// Requests the stop of an operation. A step that runs may finish first; nothing is undone.
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
        // The node first, as everybody locks: what was read before is read again under its lock.
        let node = match find(conn, id).await?.node {
            Some(node) => db::nodes::find_for_update(conn, &node.to_string()).await?,
            None => None,
        };
        let row = find(conn, id).await?;
        if row.finished_at.is_some() {
            return Err(Error::conflict(
                "done",
                format!("It {} already.", row.state),
            ));
        }
        stop(conn, actor, &row, node, app.clock.now()).await?;
        Ok(Effect::Done(
            Answer::ok(&load(conn, id).await?)?.status(StatusCode::ACCEPTED),
        ))
    })
    .await
}

/// Nothing more of it is begun, and what runs is told to stop, but for a rung of a ladder: cut short it may leave a machine off. What was only asked for and
/// not begun is taken back; a release is the claim's to remember.
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
        .is_some_and(|node| node.state == NodeState::Repairing.as_str());
    let jobs = if climbs {
        0
    } else {
        db::operations::cancel_jobs(conn, row.id, now).await?
    };
    let Some(node) = node else { return Ok(()) };
    let what = if climbs {
        "once its rung is done".to_owned()
    } else {
        format!("({jobs} open steps)")
    };
    let summary = format!("{} was asked to stop {what}", row.kind);
    let event = actor.event(now, "operation.cancel_requested", Some(node.id), summary);
    db::events::insert(conn, event.under(Some(row.id))).await?;
    // Between two steps of a run of gates no job is open, and the machine is on: the engine ends that one.
    let kept = |wish: &str| wish == "release" || (wish == "run-gates" && row.state != "queued");
    let only_asked =
        node.operation_id == Some(row.id) && node.wish.as_deref().is_some_and(|wish| !kept(wish));
    if jobs == 0 && only_asked {
        db::lifecycle::drop_wish(conn, node.id).await?;
        db::operations::end(conn, row.id, "cancelled", "stopped before it began", now).await?;
    }
    db::lifecycle::make_due(conn, node.id, now).await
}
