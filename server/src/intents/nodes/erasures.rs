//! Actions erasing a node's disks: wipe and reinstall. Beyond the hourly limit such an action waits
//! for a second person, as a release does.

use muster_core::ids::OperationId;
use muster_core::lifecycle::state::Action;
use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::approvals::{ApprovalRow, NewErasure};
use crate::db::nodes::LockedNode;
use crate::error::Error;
use crate::intents::approvals::limits::{self, LimitedPool, PendingApproval};
use crate::intents::dry_run;
use crate::intents::nodes::requests::{self, ActionRequest};

/// Requests an approval where the action exceeds the hourly limit of the person or of the pool.
/// Returns the pending request. The caller holds the node's lock.
///
/// # Errors
/// When the database fails; 409 in a dry run, because a dry run requests no approval.
pub(crate) async fn request_approval(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    request: ActionRequest<'_>,
) -> Result<Option<PendingApproval>, Error> {
    let pool = match db::claims::find_bound(conn, node.id).await? {
        Some(claim) => Some((
            claim.pool_id,
            claim.pool,
            limits::load_pool(conn, claim.pool_id).await?,
        )),
        None => None,
    };
    let of = pool.as_ref().map(|(id, name, spec)| LimitedPool {
        id: *id,
        name,
        spec,
    });
    let limits = limits::list(conn, app, actor, of).await?;
    let Some(because) = limits::describe_exceeded(&limits) else {
        return Ok(None);
    };
    if dry_run::asked() {
        return Err(limits::would_need_approval(&because));
    }
    let now = app.clock.now();
    let erasure = NewErasure {
        node: node.id,
        action: request.action,
        epoch: node.epoch,
        reason: request.reason,
        because: &because,
        requested_by: &actor.name,
        person: &actor.person,
        now,
        expires_at: now + limits::WAITS,
    };
    let id = db::approvals::ask_for_erasure(conn, &erasure).await?;
    let summary = format!(
        "to {} {} waits for a second person: {because}",
        request.action, node.name
    );
    let event = actor.event(now, "approval.requested", Some(node.id), summary);
    db::events::insert(
        conn,
        event.with(json!({ "wish": request.action.as_str(), "reason": request.reason })),
    )
    .await?;
    Ok(Some(PendingApproval { id, because }))
}

/// Begins an action approved by a second person, in the name of the requesting person.
///
/// # Errors
/// 409 when the node was claimed or released since the request, or when its state no longer allows
/// the action.
pub(crate) async fn begin_approved(
    conn: &mut PgConnection,
    app: &App,
    approver: &Actor,
    node: &LockedNode,
    row: &ApprovalRow,
) -> Result<OperationId, Error> {
    if row.epoch != Some(node.epoch) {
        let detail = format!(
            "{} was claimed or released since the request; request the action again.",
            node.name
        );
        return Err(Error::conflict("decided", detail));
    }
    let requester = approver.acting_for(&row.requested_by);
    let request = ActionRequest {
        action: requested_action(row)?,
        reason: row.reason.as_deref(),
        until: None,
        suite: None,
        override_budget: None,
    };
    requests::write_action(conn, app, &requester, node, request).await
}

/// The action requested by a row.
pub(crate) fn requested_action(row: &ApprovalRow) -> Result<Action, Error> {
    row.action
        .ok_or_else(|| Error::internal(anyhow::anyhow!("approval {} names no action", row.id)))
}
