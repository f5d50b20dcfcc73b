//! Assigns a revision of the pool to a claim. The node does not change: the next converge or
//! reinstall installs the revision.

use muster_api::revisions::ChooseRevision;
use muster_core::claims::ClaimState;
use muster_core::effects::Effect as Impact;
use muster_core::lifecycle::state::State;
use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::nodes::LockedNode;
use crate::engine::compatibility::{self, Onto};
use crate::engine::signatures;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::claims::locked::{LockedClaim, refuse_released};
use crate::intents::claims::view;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::revisions;
use crate::intents::writing::{self, Effect};

/// Assigns a revision to a claim.
///
/// # Errors
/// 404 for an unknown claim; 409 for a claim that has ended, a node at work, and a stack refused by
/// the rules; 422 for an unknown revision.
pub(crate) async fn assign(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    body: &ChooseRevision,
) -> Result<Answer, Error> {
    let because = revisions::check_reason(body.reason.as_deref())?;
    writing::once(app, actor, idempotency, body, async |conn| {
        let LockedClaim { claim, node } = LockedClaim::lock(conn, key).await?;
        if claim.state != ClaimState::Bound {
            return Err(refuse_released(&claim));
        }
        let stored = revisions::find_named(conn, claim.pool_id, body.revision).await?;
        let wanted = revisions::parse_installable(&stored)?;
        if claim.revision != Some(body.revision) {
            allow_now(conn, &node).await?;
            let seen = db::specs::find_node(conn, node.id).await?;
            let own = match claim.running.or(claim.revision) {
                Some(number) => db::revisions::find(conn, claim.pool_id, number).await?,
                None => None,
            };
            // A node whose own revision cannot be read is compared with the running system.
            let own = own.and_then(|own| revisions::parse(&own).ok());
            let erases = own.is_some_and(|own| own.effect_to(&wanted) >= Impact::Reinstall);
            let onto = if erases { Onto::Image } else { Onto::System };
            let image = Some(&wanted.image);
            let found = compatibility::findings(conn, &seen, &wanted.stack, image, onto).await?;
            if let Some(why) = compatibility::told(&node.name, &found) {
                return Err(Error::conflict("incompatible", why));
            }
            let now = app.clock.now();
            if erases {
                signatures::need_proof(conn, claim.pool_id, &wanted.image, now).await?;
            }
            db::claims::set_assigned(conn, claim.id, stored.id, now).await?;
            let (name, number) = (&claim.name, body.revision);
            let summary = format!("the claim {name} is assigned revision {number}{because}");
            let event = actor.event(now, "claim.revision_assigned", Some(node.id), summary);
            let detail = json!({ "claim": name, "pool": claim.pool, "revision": number, "before": claim.revision, "reason": body.reason });
            db::events::insert(conn, event.with(detail)).await?;
        }
        let object = view::load(conn, &claim.id.to_string()).await?;
        Ok(Effect::Done(
            Answer::ok(&object)?.etag(object.generation),
        ))
    })
    .await
}

/// Rejects a node at work: its steps would mix two revisions.
async fn allow_now(conn: &mut PgConnection, node: &LockedNode) -> Result<(), Error> {
    let rests = match node.state {
        State::InService | State::Failed | State::Maintenance | State::Quarantined => true,
        State::Discovered
        | State::Inspecting
        | State::Available
        | State::Imaging
        | State::Installing
        | State::Validating
        | State::Admitting
        | State::Repairing
        | State::Draining
        | State::Wiping
        | State::Retired => false,
    };
    if rests && node.action.is_none() && !db::jobs::has_open(conn, node.id).await? {
        return Ok(());
    }
    let detail = format!(
        "{} is {} or at work; assign the revision when the node is in service, in maintenance, quarantined or failed, without a running step.",
        node.name, node.state
    );
    Err(Error::conflict("busy", detail))
}
