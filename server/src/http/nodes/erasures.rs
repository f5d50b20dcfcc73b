//! What erases a node's disks by a person's word: a wipe, a new installation. Beyond the hourly limit it waits for a second person, as a release does.

use muster_core::ids::OperationId;
use muster_core::lifecycle::state::Wish;
use serde_json::json;
use sqlx::PgConnection;

use super::actions::{self, Asked};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::approvals::{ApprovalRow, NewErasure};
use crate::db::nodes::LockedNode;
use crate::error::Error;
use crate::http::{approvals, dry_run};

/// Asks for a second person where it is beyond what this one, or the pool, may do in an hour: the refusal that says so. The caller holds the node's lock.
///
/// # Errors
/// When the database fails; 409 where it was only asked what it would do.
pub(super) async fn held(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    asked: Asked<'_>,
) -> Result<Option<Error>, Error> {
    let pool = match db::claims::find_bound(conn, node.id).await? {
        Some(claim) => Some((
            claim.pool_id,
            claim.pool,
            approvals::pool_of(conn, claim.pool_id).await?,
        )),
        None => None,
    };
    let of = pool
        .as_ref()
        .map(|(id, name, spec)| (*id, name.as_str(), spec));
    let limits = approvals::limits(conn, app, actor, of).await?;
    let Some(because) = approvals::beyond(&limits) else {
        return Ok(None);
    };
    if dry_run::asked() {
        return Err(approvals::alone(&because));
    }
    let now = app.clock.now();
    let request = NewErasure {
        node: node.id,
        wish: asked.wish,
        epoch: node.epoch,
        reason: asked.reason,
        because: &because,
        requested_by: &actor.name,
        person: &actor.person,
        now,
        expires_at: now + approvals::WAITS,
    };
    let id = db::approvals::ask_for_erasure(conn, &request).await?;
    let summary = format!(
        "to {} {} waits for a second person: {because}",
        asked.wish, node.name
    );
    let event = actor.event(now, "approval.asked", Some(node.id), summary);
    db::events::insert(
        conn,
        event.with(json!({ "wish": asked.wish.as_str(), "reason": asked.reason })),
    )
    .await?;
    Ok(Some(Error::SecondPerson { id, because }))
}

/// Begins what a second person agreed to, for whoever asked; of the node as it was assigned then.
///
/// # Errors
/// 409 when the node is another one's now, or its state does not allow it any more.
pub(in crate::http) async fn approved(
    conn: &mut PgConnection,
    app: &App,
    by: &Actor,
    node: &LockedNode,
    row: &ApprovalRow,
) -> Result<OperationId, Error> {
    if row.epoch != Some(node.epoch) {
        let detail = format!(
            "{} was claimed or released since this was asked for; ask again.",
            node.name
        );
        return Err(Error::conflict("decided", detail));
    }
    let asker = Actor {
        name: row.requested_by.clone(),
        ..by.clone()
    };
    let asked = Asked {
        wish: wish(row)?,
        reason: row.reason.as_deref(),
        until: None,
        suite: None,
    };
    actions::write_wish(conn, app, &asker, node, asked).await
}

/// What a request is for.
pub(in crate::http) fn wish(row: &ApprovalRow) -> Result<Wish, Error> {
    let word = row.wish.as_deref().unwrap_or_default();
    word.parse()
        .map_err(|error| Error::internal(anyhow::anyhow!("approval {}: {error}", row.id)))
}
