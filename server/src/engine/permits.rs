//! Decides whether a permit may be redeemed now. Job, attempt, node, epoch, operation, disks and
//! time must all match.

use ed25519_dalek::SigningKey;
use jiff::Timestamp;
use muster_api::operations::OperationState;
use muster_core::ids::{AgentId, EventId};
use muster_core::permits::{PermitKind, sign};
use muster_core::wire::calls::{RedeemPermit, Redeemed};
use muster_core::wire::node::{Answer, Challenge};
use serde_json::json;
use sqlx::PgConnection;

use super::caution::OLDER;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::permits::PermitRow;
use crate::error::Error;

/// Redeems a permit for the job holding the permit. The same operation, epoch and disks may redeem
/// again until the operation is over. A refusal gives the reason and emits an event. The caller
/// stores the id of the event.
///
/// # Errors
///
/// When the attempt is stale, while a caution holds at the node's site, or when the database fails.
pub async fn redeem(
    conn: &mut PgConnection,
    key: &SigningKey,
    agent: AgentId,
    request: &RedeemPermit,
    now: Timestamp,
) -> Result<(Redeemed, EventId), Error> {
    let stale = || Error::conflict("stale_attempt", "Another attempt of this job is current.");
    let job = db::jobs::lock_current(conn, request.job, agent, request.attempt)
        .await?
        .ok_or_else(stale)?;
    if db::cautions::find_for_node(conn, job.node).await?.is_some() {
        return Err(Error::Caution(format!("Caution mode: {OLDER}.")));
    }
    let row = db::permits::lock(conn, request.permit).await?;
    let verdict = match &row {
        None => Err("the permit does not exist".to_owned()),
        // The agent has not yet received the stop. Power permits are still granted, because a
        // started power change must be completed.
        Some(row) if (job.cancel || row.stop) && row.kind != PermitKind::Power => {
            Err("the job is being cancelled".to_owned())
        }
        Some(row) => check_permit(row, request, now),
    };
    let answer = match (verdict, &request.challenge) {
        (Ok(kind), challenge) => {
            db::permits::mark(conn, request.permit, now).await?;
            let signature = challenge
                .as_ref()
                .map(|challenge| sign(key, kind, challenge))
                .unwrap_or_default();
            Answer::Granted { signature }
        }
        (Err(reason), _) => Answer::Refused { reason },
    };
    let (kind, summary) = match &answer {
        Answer::Granted { .. } => ("permit.redeemed", "permit redeemed".to_owned()),
        Answer::Refused { reason } => ("permit.refused", format!("permit refused: {reason}")),
    };
    let event = NewEvent::node(now, "muster", kind, job.node, summary).under(job.operation);
    let detail =
        json!({ "permit": request.permit, "job": request.job, "attempt": request.attempt });
    let event = db::events::insert_noted(conn, event.with(detail)).await?;
    Ok((Redeemed { answer }, event))
}

fn check_permit(
    row: &PermitRow,
    request: &RedeemPermit,
    now: Timestamp,
) -> Result<PermitKind, String> {
    let kind = row.kind;
    if row.job != request.job || row.job_permit != Some(request.permit) {
        return Err("the permit was minted for another job or round".into());
    }
    if row.epoch != row.node_epoch {
        return Err(format!(
            "the permit has assignment epoch {}, the node has {}",
            row.epoch, row.node_epoch
        ));
    }
    if !matches!(
        row.operation_state,
        OperationState::Queued | OperationState::Running
    ) {
        return Err(format!("the operation is {}", row.operation_state));
    }
    if row.node_protected && kind != PermitKind::Power {
        return Err("the node is protected".into());
    }
    if row.void {
        return Err("the permit was issued before the database was restored".into());
    }
    if now > row.expires_at {
        return Err(format!("the permit expired at {}", row.expires_at));
    }
    match (kind, &request.challenge) {
        (PermitKind::Power, None) => Ok(kind),
        (PermitKind::Power, Some(_)) => Err("a power permit accepts no challenge".into()),
        (PermitKind::Image | PermitKind::Wipe, None) => {
            Err("the node's challenge is missing".into())
        }
        (PermitKind::Image | PermitKind::Wipe, Some(challenge)) => {
            challenge_fits(row, request, challenge).map(|()| kind)
        }
    }
}

fn challenge_fits(
    row: &PermitRow,
    request: &RedeemPermit,
    challenge: &Challenge,
) -> Result<(), String> {
    let same = challenge.permit == request.permit
        && challenge.job == request.job
        && challenge.node == row.node
        && challenge.epoch == row.epoch
        && challenge.operation == row.operation;
    if !same {
        return Err("the challenge names another permit, job, node, epoch or operation".into());
    }
    if row.chassis_serial.is_some() && challenge.chassis_serial != row.chassis_serial {
        let (asked, known) = (
            challenge.chassis_serial.as_deref().unwrap_or("none"),
            row.chassis_serial.as_deref(),
        );
        let known = known.unwrap_or_default();
        return Err(format!(
            "the requesting machine is in the chassis {asked}, the node was last seen in {known}"
        ));
    }
    let permitted = row.disk_serials.as_deref().unwrap_or_default();
    if permitted.is_empty() {
        return Err("the permit names no disk".into());
    }
    if challenge.disk_serials != permitted {
        return Err(format!(
            "the node would write {:?}, the permit is for {permitted:?}",
            challenge.disk_serials
        ));
    }
    Ok(())
}
