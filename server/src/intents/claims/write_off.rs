//! Writes a claim's node off until a time: the node is out of service, and does not count against the
//! disruption budgets of its pool and failure domains. The node and its state do not change.

use jiff::{SignedDuration, Timestamp};
use muster_api::disruption::WriteOff;
use muster_core::claims::ClaimState;
use muster_core::lifecycle::state::State;
use serde_json::json;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::claims::locked::{LockedClaim, refuse_released};
use crate::intents::claims::view;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::writing::{self, Effect};

/// The longest write-off.
const LONGEST: SignedDuration = SignedDuration::from_hours(365 * 24);
/// The longest reason, in bytes.
const REASON: usize = 1000;

/// Writes a claim's node off, or ends the write-off. A node that enters or leaves service later
/// counts again (the trigger `nodes_service`).
///
/// # Errors
/// 404 for an unknown claim; 409 for a claim that has ended, and for a node in service or at work;
/// 422 for a missing reason and a time out of range.
pub(crate) async fn write_off(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    body: &WriteOff,
) -> Result<Answer, Error> {
    let now = app.clock.now();
    check(body, now)?;
    writing::once(app, actor, idempotency, body, async |conn| {
        let LockedClaim { claim, node } = LockedClaim::lock(conn, key).await?;
        if claim.state != ClaimState::Bound {
            return Err(refuse_released(&claim));
        }
        let is_out = node.state.is_resting() && node.state != State::InService
            || db::disruption::is_out_of_jobs(conn, node.id).await?;
        if body.until.is_some() && !is_out {
            let detail = format!(
                "{} is {}; only a node that is out of service and at rest is written off.",
                node.name, node.state
            );
            return Err(Error::conflict("state", detail));
        }
        let reason = body.reason.trim();
        db::disruption::set_write_off(conn, claim.id, body.until, reason, &actor.name, now).await?;
        db::disruption::wake_waiting(conn, node.id, now).await?;
        let (kind, summary) = match body.until {
            Some(until) => (
                "claim.written_off",
                format!(
                    "{} of the claim {} is written off until {until}: {reason}",
                    node.name, claim.name
                ),
            ),
            None => (
                "claim.write_off_ended",
                format!(
                    "the write-off of {} of the claim {} is ended: {reason}",
                    node.name, claim.name
                ),
            ),
        };
        let event = actor.event(now, kind, Some(node.id), summary);
        let detail = json!({ "claim": claim.name, "pool": claim.pool, "until": body.until, "reason": reason });
        db::events::insert(conn, event.with(detail)).await?;
        let object = view::load(conn, &claim.id.to_string()).await?;
        Ok(Effect::Done(
            Answer::ok(&object)?.etag(object.generation),
        ))
    })
    .await
}

fn check(body: &WriteOff, now: Timestamp) -> Result<(), Error> {
    let wrong =
        |pointer: &str, code, detail: String| Err(Error::unprocessable(pointer, code, detail));
    if body
        .until
        .is_some_and(|until| until <= now || until > now + LONGEST)
    {
        let detail = "A time in the future, at most 365 days from now.".to_owned();
        return wrong("/until", "out_of_range", detail);
    }
    match body.reason.trim().len() {
        0 => wrong(
            "/reason",
            "required",
            "A write-off needs a reason for the next reader.".to_owned(),
        ),
        1..=REASON => Ok(()),
        _ => wrong(
            "/reason",
            "out_of_range",
            format!("At most {REASON} bytes."),
        ),
    }
}
