//! Claims moving to another node. The replacement node goes into service like any claimed node.
//! The module does the rest: the claim takes the new node and releases the old node, or keeps the
//! old node. Each change is one transaction with locks on both nodes, so a claim has exactly one
//! node at every moment.

use jiff::{SignedDuration, Timestamp};
use muster_api::operations::OperationState;
use muster_api::pools::DEFAULT_UNDO_WINDOW_S;
use muster_core::ids::{ClaimId, OperationId};
use muster_core::lifecycle::state::State;
use serde_json::json;
use sqlx::PgConnection;
use tracing::Instrument as _;

use super::releases::{self, Given};
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::operations::NewOperation;
use crate::db::replacements::Replacement;
use crate::error::Error;

/// The actor and request behind a release.
#[derive(Clone, Copy, Debug)]
pub struct By<'text> {
    pub actor: &'text str,
    pub request_id: Option<&'text str>,
}

/// Settles one replacement with pending work. Returns `false` without such a replacement.
pub(super) async fn take(app: &App) -> Result<bool, Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let Some(coming) = db::replacements::lock_settled(&mut tx).await? else {
        return Ok(false);
    };
    let span = tracing::error_span!("replacement", claim = %coming);
    match settle(&mut tx, coming, now).instrument(span).await {
        Ok(settled) => {
            tx.commit().await?;
            Ok(settled)
        }
        Err(error @ Error::Unavailable(_)) => Err(error),
        // The replacement is still pending at the next poll, when another one may come first.
        Err(error) => {
            tx.rollback().await?;
            tracing::error!(%coming, error = ?error, "a replacement could not be settled");
            Ok(false)
        }
    }
}

async fn settle(conn: &mut PgConnection, coming: ClaimId, now: Timestamp) -> Result<bool, Error> {
    let Some(one) = db::replacements::find(conn, coming).await? else {
        db::replacements::let_go(conn, coming, now).await?;
        return Ok(true);
    };
    let open = matches!(
        one.operation_state.as_str(),
        "queued" | "running" | "unknown"
    );
    let muster = By {
        actor: "muster",
        request_id: None,
    };
    match (open, one.stop) {
        (true, false) if one.coming_state == State::InService => take_over(conn, &one, now).await?,
        (true, false) => return Ok(false),
        (true, true) => give_back(conn, &one, muster, "stopped on request", now).await?,
        (false, true) if one.operation_state == OperationState::Cancelled => {
            give_back(conn, &one, muster, "stopped on request", now).await?;
        }
        (false, _) => fail_replacement(conn, &one, now).await?,
    }
    Ok(true)
}

/// Binds the claim to the new node in service, and releases the old node. The release works as if
/// the requester had deleted a claim of the old node now. Permissions and limits of the release
/// were checked and counted when the replacement began.
async fn take_over(
    conn: &mut PgConnection,
    one: &Replacement,
    now: Timestamp,
) -> Result<(), Error> {
    db::replacements::swap(conn, one, now).await?;
    let (claim, came, went) = (&one.claim_name, &one.coming_node_name, &one.node_name);
    let message = format!("{claim} has {came}; {went} is released");
    db::operations::end(
        conn,
        one.operation,
        OperationState::Succeeded,
        &message,
        now,
    )
    .await?;
    let event = NewEvent::node(
        now,
        one.actor.clone(),
        "claim.replaced",
        one.coming_node,
        message,
    );
    let event = event
        .asked(one.request_id.clone())
        .under(Some(one.operation));
    db::events::insert(
        conn,
        event.with(json!({ "claim": claim, "node": came, "former": went })),
    )
    .await?;

    let window = one
        .undo_window_s
        .unwrap_or(i64::from(DEFAULT_UNDO_WINDOW_S));
    let given = Given {
        claim: one.coming,
        claim_name: &one.coming_name,
        node: one.node,
        epoch: one.node_epoch,
        former: one.node_operation,
        undo_until: (window > 0).then(|| now + SignedDuration::from_secs(window)),
    };
    let by = By {
        actor: &one.actor,
        request_id: one.request_id.as_deref(),
    };
    let summary = format!("{went} is released: the claim {claim} now has {came}");
    release(conn, one, &given, by, summary, now).await
}

/// Cancels a replacement: the claim keeps the old node, and the new node is released. The new node
/// was not yet in use.
///
/// # Errors
///
/// When the database fails.
pub async fn give_back(
    conn: &mut PgConnection,
    one: &Replacement,
    by: By<'_>,
    why: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let (came, kept) = (&one.coming_node_name, &one.node_name);
    let message = format!(
        "{why}; {} keeps {kept}, and {came} is released",
        one.claim_name
    );
    db::operations::end(
        conn,
        one.operation,
        OperationState::Cancelled,
        &message,
        now,
    )
    .await?;
    let given = Given {
        claim: one.coming,
        claim_name: &one.coming_name,
        node: one.coming_node,
        epoch: one.coming_epoch,
        former: one.coming_operation,
        undo_until: None,
    };
    let summary = format!("{came} is released and no longer replaces {kept} ({why})");
    release(conn, one, &given, by, summary, now).await
}

async fn release(
    conn: &mut PgConnection,
    one: &Replacement,
    given: &Given<'_>,
    by: By<'_>,
    summary: String,
    now: Timestamp,
) -> Result<(), Error> {
    let new = NewOperation {
        id: OperationId::new(),
        kind: "release",
        node: Some(given.node),
        claim: Some(given.claim),
        actor: by.actor.to_owned(),
        request_id: by.request_id.map(str::to_owned),
        message: summary.clone(),
        now,
    };
    let event = NewEvent::node(now, by.actor, "claim.releasing", given.node, summary);
    match releases::begin(conn, given, &new, event.asked(new.request_id.clone())).await? {
        true => Ok(()),
        false => Err(Error::internal(anyhow::anyhow!(
            "the claim {} was not bound",
            one.coming_name
        ))),
    }
}

/// Ends a replacement after the new node failed on the way, or another action was requested for the
/// new node. The claim keeps the old node. The new node stays held by a claim of its own, and an
/// operator must check the node.
async fn fail_replacement(
    conn: &mut PgConnection,
    one: &Replacement,
    now: Timestamp,
) -> Result<(), Error> {
    db::replacements::let_go(conn, one.coming, now).await?;
    let summary = format!(
        "{} keeps {}: {} failed to replace it, and stays bound to {} until released",
        one.claim_name, one.node_name, one.coming_node_name, one.coming_name
    );
    for node in [one.node, one.coming_node] {
        let event = NewEvent::node(
            now,
            "muster",
            "claim.replacement_failed",
            node,
            summary.clone(),
        );
        let event = event.under(Some(one.operation));
        db::events::insert(conn, event.with(json!({ "claim": one.claim_name }))).await?;
    }
    Ok(())
}
