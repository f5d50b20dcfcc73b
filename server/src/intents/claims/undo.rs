//! Undoes a release while the disks are kept: the claim is bound again, and the node returns to
//! service. A node already removed from its scheduler passes the gates first.

use muster_api::operations::OperationState;
use muster_core::ids::OperationId;
use muster_core::lifecycle::state::State;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::claims::ClaimRow;
use crate::db::operations::NewOperation;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::claims::create::{self, ClaimEvent};
use crate::intents::claims::locked::LockedClaim;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::operations::view;
use crate::intents::writing::{self, Effect};

/// Undoes a release, for the API and the pages.
///
/// # Errors
/// The errors of the route `undo_release`.
pub async fn undo(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, &(), async |conn| {
        let LockedClaim { claim, node } = LockedClaim::lock(conn, key).await?;
        if let ("bound", Some(operation)) = (claim.state.as_str(), claim.operation)
            && view::load(conn, operation).await?.kind == "undo"
        {
            return Ok(Effect::Begun(operation));
        }
        let epoch = node.epoch + 1;
        if !db::claims::set_bound_again(conn, claim.id, epoch, app.clock.now()).await? {
            let detail = format!(
                "The claim {} is not being released, or its node is being wiped already.",
                claim.name
            );
            return Err(Error::conflict("not_undoable", detail));
        }
        // An open approval to erase the disks would begin another release: withdraw it.
        db::approvals::withdraw(conn, claim.id, &actor.name, app.clock.now()).await?;
        write_undo(conn, app, actor, &claim, epoch)
            .await
            .map(Effect::Begun)
    })
    .await
}

async fn write_undo(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    claim: &ClaimRow,
    epoch: i64,
) -> Result<OperationId, Error> {
    let now = app.clock.now();
    let message = format!("the release of {} is undone", claim.name);
    let new = NewOperation {
        claim: Some(claim.id),
        ..actor.operation(now, "undo", claim.node, message)
    };
    let operation = new.id;
    if let Some(former) = claim.operation {
        let message = format!("undone (operation {operation})");
        db::operations::end(conn, former, OperationState::Cancelled, &message, now).await?;
    }
    db::operations::insert(conn, &new).await?;
    db::nodes::set_assignment(conn, claim.node, epoch, operation, now).await?;
    db::lifecycle::drop_action(conn, claim.node).await?;
    let stays = match claim.node_state {
        State::Draining | State::Wiping => None,
        State::InService => Some("the node was still in service".to_owned()),
        state => Some(format!(
            "the node is the claim's again, and {state} as before"
        )),
    };
    if let Some(stays) = stays {
        db::operations::end(conn, operation, OperationState::Succeeded, &stays, now).await?;
    }
    let summary = format!(
        "{} is kept: the release of the claim {} was undone",
        claim.node_name, claim.name
    );
    let undone = ClaimEvent {
        kind: "claim.undone",
        summary,
        node: claim.node,
        operation,
        claim: &claim.name,
    };
    create::record(conn, app, actor, undone).await?;
    Ok(operation)
}
