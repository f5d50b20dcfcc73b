//! Rollouts that start by themselves: of pools with `on_change: start`.

use jiff::{SignedDuration, Timestamp};
use muster_core::effects::Effect;
use muster_core::ids::ObjectId;
use muster_core::rollout::RolloutPolicy;
use serde_json::json;
use sqlx::{Acquire as _, PgConnection};

use super::fleet::Loaded;
use super::{control, plan};
use crate::app::{App, wake};
use crate::auth::Actor;
use crate::db;
use crate::db::due_rollouts::DueRow;
use crate::error::Error;
use crate::intents::revisions;

/// Time from the last change to the start, so that several changes become one rollout.
const SETTLES: SignedDuration = SignedDuration::from_mins(1);
/// Time between two attempts.
const EVERY: SignedDuration = SignedDuration::from_mins(1);

/// Starts the due rollouts. Returns their number. A refused start is tried again later, and does not
/// stop the others.
///
/// # Errors
/// When the database is unavailable.
pub async fn start_due(app: &App) -> Result<usize, Error> {
    let now = app.clock.now();
    let mut conn = app.pool.acquire().await?;
    let due = db::due_rollouts::list(&mut conn, now - SETTLES, now - EVERY).await?;
    drop(conn);
    let mut started = 0;
    for pool in due {
        match try_start(app, pool, now).await {
            Ok(begun) => started += usize::from(begun),
            Err(error @ Error::Unavailable(_)) => return Err(error),
            Err(error) => {
                tracing::error!(pool = %pool, error = ?error, "a due rollout could not be started");
            }
        }
    }
    if started > 0 {
        wake(app);
    }
    Ok(started)
}

/// Starts the due rollout of a pool, or records the refusal. Returns whether the rollout has started.
async fn try_start(app: &App, pool: ObjectId, now: Timestamp) -> Result<bool, Error> {
    let mut tx = app.pool.begin().await?;
    // Waits for a change of the pool, and for a replica at the same rollout.
    db::revisions::lock(&mut tx, pool).await?;
    let found = db::due_rollouts::find(&mut tx, pool).await?;
    let Some(due) = found.filter(|due| due.created_at <= now - SETTLES) else {
        return Ok(false);
    };
    let actor = Actor::muster().acting_for(&due.actor);
    let mut scope = tx.begin().await?;
    let begun = match start(&mut scope, app, &actor, pool, &due).await {
        Ok(()) => {
            scope.commit().await?;
            true
        }
        Err(Error::Conflict {
            code: "nothing_to_change",
            ..
        }) => {
            scope.rollback().await?;
            promote(&mut tx, &actor, pool, &due, now).await?;
            false
        }
        Err(Error::Conflict { code, detail }) => {
            scope.rollback().await?;
            refuse(&mut tx, &actor, pool, &due, (code, &detail), now).await?;
            false
        }
        Err(error) => return Err(error),
    };
    tx.commit().await?;
    Ok(begun)
}

/// Plans and starts the rollout.
///
/// # Errors
/// 409 as for the plan and the start of a person; `not_allowed` if every node needs a reinstall.
async fn start(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    pool: ObjectId,
    due: &DueRow,
) -> Result<(), Error> {
    let stored = revisions::find_named(conn, pool, due.number).await?;
    let policy = RolloutPolicy::default();
    let of = (pool, due.pool_name.as_str());
    let (row, loaded) = plan::store(conn, app, actor, &stored, &policy, of).await?;
    need_permitted(&policy, &loaded)?;
    control::begin(conn, app, actor, &row, false).await
}

/// Requires a node that the policy permits to change.
///
/// # Errors
/// 409 `not_allowed`.
fn need_permitted(policy: &RolloutPolicy, loaded: &Loaded) -> Result<(), Error> {
    let mut nodes = loaded.fleet.nodes.iter();
    match nodes.any(|node| node.effect != Effect::None && policy.allow.permits(node.effect)) {
        true => Ok(()),
        false => {
            let detail = "Every node needs a reinstall, which never starts by itself: plan the rollout with \"allow\": \"reinstall\".";
            Err(Error::conflict("not_allowed", detail))
        }
    }
}

/// Assigns the revision to new claims: no node of the pool needs a change.
async fn promote(
    conn: &mut PgConnection,
    actor: &Actor,
    pool: ObjectId,
    due: &DueRow,
    now: Timestamp,
) -> Result<(), Error> {
    db::due_rollouts::remove(conn, pool).await?;
    db::revisions::set_present(conn, pool, due.revision).await?;
    let (name, number) = (&due.pool_name, due.number);
    let summary =
        format!("new claims of pool {name} are assigned revision {number}: no node needs a change");
    let event = actor.event(now, "pool.revision_promoted", None, summary);
    let detail = json!({ "pool": name, "revision": number });
    db::events::insert(conn, event.with(detail).about(pool)).await
}

/// Records a refusal, with an event for each new code.
async fn refuse(
    conn: &mut PgConnection,
    actor: &Actor,
    pool: ObjectId,
    due: &DueRow,
    (code, detail): (&str, &str),
    now: Timestamp,
) -> Result<(), Error> {
    db::due_rollouts::set_refused(conn, pool, code, detail, now).await?;
    if due.reason_code.as_deref() == Some(code) {
        return Ok(());
    }
    let (name, number) = (&due.pool_name, due.number);
    let summary = format!("revision {number} of pool {name} cannot be rolled out now: {detail}");
    let event = actor.event(now, "pool.rollout_refused", None, summary);
    let detail = json!({ "pool": name, "revision": number, "code": code });
    db::events::insert(conn, event.with(detail).about(pool)).await
}
