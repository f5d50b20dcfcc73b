//! The decision of a second person on a request. An approval begins the requested work, a denial
//! ends the request.

use crate::db::waivers::Consent;
use jiff::Timestamp;
use muster_api::approvals::ApprovalState;
use muster_api::claims::ReplaceClaim;
use muster_core::ids::{ClaimId, NodeId, OperationId};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::app::App;
use crate::auth::access::Named;
use crate::auth::{Actor, askers};
use crate::db;
use crate::db::approvals::ApprovalRow;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::approvals::limits::{approval_event, describe_request};
use crate::intents::approvals::view::object;
use crate::intents::claims::disks::Disks;
use crate::intents::claims::locked::LockedClaim;
use crate::intents::claims::release;
use crate::intents::claims::replace;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::erasures;
use crate::intents::waivers;
use crate::intents::writing::{self, Effect};

/// The decision of a second person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Approve,
    Deny,
}

/// Decides a request, for the API and the pages. The requesting person may deny, but not approve.
///
/// # Errors
/// 403 for an approval by the requesting person, 404, 409 when the request is decided or expired,
/// or when the requesting account has lost the right; the errors of the requested work.
pub async fn decide(
    app: &App,
    actor: &Actor,
    id: Uuid,
    decision: Decision,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    let missing = || Error::NotFound(format!("approval {id}"));
    writing::once(app, actor, idempotency, &(), async |conn| {
        let subject = db::approvals::find_subject(conn, id)
            .await?
            .ok_or_else(missing)?;
        match (subject.claim, subject.waiver, subject.node) {
            (Some(claim), ..) => decide_release(conn, app, actor, id, claim, decision).await?,
            (None, Some(waiver), _) => {
                decide_waiver(conn, app, actor, id, waiver, decision).await?
            }
            (None, None, Some(node)) => {
                decide_erasure(conn, app, actor, id, node, decision).await?
            }
            (None, None, None) => return Err(missing()),
        }
        let decided = db::approvals::lock(conn, id).await?.ok_or_else(missing)?;
        Answer::ok(&object(decided)).map(Effect::Done)
    })
    .await
}

/// Locks an open request, and checks whether the actor may make this decision.
async fn lock_open(
    conn: &mut PgConnection,
    actor: &Actor,
    id: Uuid,
    decision: Decision,
    now: Timestamp,
) -> Result<ApprovalRow, Error> {
    let row = db::approvals::lock(conn, id)
        .await?
        .ok_or_else(|| Error::NotFound(format!("approval {id}")))?;
    if row.state != ApprovalState::Open || row.expires_at <= now {
        return Err(Error::conflict(
            "decided",
            "The request is already decided or has expired. Read the approval again.",
        ));
    }
    if decision == Decision::Approve && actor.person == row.person {
        return Err(Error::Forbidden(format!(
            "{} requested this; another person must approve.",
            row.requested_by
        )));
    }
    Ok(row)
}

/// Rejects an approval when the requesting account may not do the requested work today.
async fn check_asker(
    conn: &mut PgConnection,
    app: &App,
    row: &ApprovalRow,
    verb: &str,
    object: Named<'_>,
) -> Result<(), Error> {
    let asker = askers::find(app, conn, &row.requested_by).await?;
    askers::need(&asker, conn, verb, object).await
}

async fn decide_release(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    id: Uuid,
    claim: ClaimId,
    decision: Decision,
) -> Result<(), Error> {
    let now = app.clock.now();
    let locked = LockedClaim::lock(conn, &claim.to_string()).await?;
    let row = lock_open(conn, actor, id, decision, now).await?;
    let disks = if row.erase_now {
        Disks::ErasedNow
    } else {
        Disks::Kept
    };
    let (state, begun, kind, word) = match decision {
        Decision::Approve => {
            let begun = begin_approved(conn, app, actor, &row, &locked, disks).await?;
            ("approved", Some(begun), "approval.approved", "approved")
        }
        Decision::Deny => ("denied", None, "approval.denied", "denied"),
    };
    db::approvals::decide(conn, id, &actor.name, state, begun, now).await?;
    let summary = format!(
        "{} {word} the {} of {}, requested by {}",
        actor.name,
        describe_request(row.replaces, disks),
        locked.claim.node_name,
        row.requested_by
    );
    let event = approval_event(app, actor, kind, summary, &locked.claim, disks);
    db::events::insert(conn, event).await
}

/// Begins the approved release or replacement.
async fn begin_approved(
    conn: &mut PgConnection,
    app: &App,
    approver: &Actor,
    row: &ApprovalRow,
    locked: &LockedClaim,
    disks: Disks,
) -> Result<OperationId, Error> {
    let requested_by = row.requested_by.as_str();
    let asker = askers::find(app, conn, requested_by).await?;
    let key = locked.claim.id.to_string();
    let object = Named {
        kind: "claim",
        key: &key,
    };
    askers::need(&asker, conn, "claim.release", object).await?;
    if !row.replaces {
        return release::begin_approved(conn, app, approver, requested_by, locked, disks).await;
    }
    let body = ReplaceClaim {
        node: row.spare.clone(),
        reason: row.reason.clone(),
    };
    replace::begin_approved(conn, app, approver, &asker, locked, &body).await
}

async fn decide_erasure(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    id: Uuid,
    node: NodeId,
    decision: Decision,
) -> Result<(), Error> {
    let now = app.clock.now();
    let missing = || Error::NotFound(format!("approval {id}"));
    let node = db::nodes::find_for_update(conn, &node.to_string())
        .await?
        .ok_or_else(missing)?;
    let row = lock_open(conn, actor, id, decision, now).await?;
    let action = erasures::requested_action(&row)?;
    let (state, begun, kind, word) = match decision {
        Decision::Approve => {
            let object = Named {
                kind: "node",
                key: &node.name,
            };
            check_asker(conn, app, &row, &format!("node.{action}"), object).await?;
            let begun = erasures::begin_approved(conn, app, actor, &node, &row).await?;
            ("approved", Some(begun), "approval.approved", "approved")
        }
        Decision::Deny => ("denied", None, "approval.denied", "denied"),
    };
    db::approvals::decide(conn, id, &actor.name, state, begun, now).await?;
    let summary = format!(
        "{} {word} {action} of {}, requested by {}",
        actor.name, node.name, row.requested_by
    );
    let event = actor.event(now, kind, Some(node.id), summary);
    db::events::insert(conn, event.with(json!({ "wish": action.as_str() }))).await
}

async fn decide_waiver(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    id: Uuid,
    waiver: Uuid,
    decision: Decision,
) -> Result<(), Error> {
    let now = app.clock.now();
    let missing = || Error::NotFound(format!("waiver {waiver}"));
    let waived = db::waivers::lock(conn, waiver).await?.ok_or_else(missing)?;
    let row = lock_open(conn, actor, id, decision, now).await?;
    if waived.state != Consent::Asked {
        return Err(Error::conflict(
            "decided",
            "The waiver has ended meanwhile. Read the waiver again.",
        ));
    }
    let (state, by, kind, word) = match decision {
        Decision::Approve => {
            let (kind, name) = waivers::covered_place(&waived);
            let object = Named { kind, key: name };
            check_asker(conn, app, &row, "waiver.create", object).await?;
            let by = Some(&*actor.name);
            ("approved", by, "waiver.approved", "approved")
        }
        Decision::Deny => ("denied", None, "waiver.denied", "denied"),
    };
    db::approvals::decide(conn, id, &actor.name, state, None, now).await?;
    db::waivers::decide(conn, waiver, by, now).await?;
    let summary = format!(
        "{} {word} {}, requested by {}",
        actor.name,
        waivers::describe(&waived),
        waived.requested_by
    );
    db::events::insert(
        conn,
        waivers::waiver_event(app, actor, kind, &waived, summary),
    )
    .await
}
