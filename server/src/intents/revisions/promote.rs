//! The choice of the present revision, assigned to new claims of a pool.

use muster_api::revisions::ChooseRevision;
use serde_json::json;

use super::{check_reason, find_named, parse_installable, view};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::pairs::find_pool;
use crate::intents::writing::{self, Effect};

/// Makes a revision the present one. Nodes of existing claims do not change. The rollout of another
/// revision does not start by itself any more.
///
/// # Errors
/// 404 for an unknown pool; 409 for an unreadable or unfit revision; 422 for an unknown number.
pub(crate) async fn promote(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    body: &ChooseRevision,
) -> Result<Answer, Error> {
    let because = check_reason(body.reason.as_deref())?;
    writing::once(app, actor, idempotency, body, async |conn| {
        let pool = find_pool(conn, key).await?;
        db::revisions::lock(conn, pool.id).await?;
        let wanted = find_named(conn, pool.id, body.revision).await?;
        parse_installable(&wanted)?;
        let (present, _) = db::revisions::find_numbers(conn, pool.id).await?;
        let due = db::due_rollouts::find(conn, pool.id).await?;
        if due.is_some_and(|due| due.revision != wanted.id) {
            db::due_rollouts::remove(conn, pool.id).await?;
        }
        if present != Some(wanted.number) {
            db::revisions::set_present(conn, pool.id, wanted.id).await?;
            let (name, number) = (&pool.name, body.revision);
            let summary =
                format!("new claims of pool {name} are assigned revision {number}{because}");
            let event = actor.event(app.clock.now(), "pool.revision_promoted", None, summary);
            let detail = json!({ "pool": name, "revision": number, "reason": body.reason });
            db::events::insert(conn, event.with(detail).about(pool.id)).await?;
        }
        let revision = view::load(conn, pool.id, body.revision).await?;
        Answer::ok(&revision).map(Effect::Done)
    })
    .await
}
