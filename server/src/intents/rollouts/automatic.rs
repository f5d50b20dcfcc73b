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
/// Time between two attempts while another rollout of the pool is open.
const SOON: SignedDuration = SignedDuration::from_mins(1);
/// Time between two attempts after any other refusal. An attempt plans the whole pool.
const LATER: SignedDuration = SignedDuration::from_mins(10);
/// The code of an attempt beside an open rollout.
const OPEN: &str = "rollout_open";

/// Starts the due rollouts. Returns their number. A refused start is tried again later, and does not
/// stop the others.
///
/// # Errors
/// When the database is unavailable.
pub async fn start_due(app: &App) -> Result<usize, Error> {
    let now = app.clock.now();
    let mut conn = app.pool.acquire().await?;
    let due = db::due_rollouts::list(&mut conn).await?;
    drop(conn);
    let mut started = 0;
    for row in due.iter().filter(|row| is_due(row, now)) {
        match try_start(app, row.pool, now).await {
            Ok(begun) => started += usize::from(begun),
            Err(error @ Error::Unavailable(_)) => return Err(error),
            Err(error) => {
                tracing::warn!(pool = row.pool_name, error = ?error, "a due rollout could not be started; tried again in a few seconds");
            }
        }
    }
    if started > 0 {
        wake(app);
    }
    Ok(started)
}

/// Whether a start is to be tried now.
fn is_due(row: &DueRow, now: Timestamp) -> bool {
    let pause = match row.reason_code.as_deref() {
        Some(OPEN) => SOON,
        Some(_) | None => LATER,
    };
    let is_tried = |at: jiff_sqlx::Timestamp| at.to_jiff() > now - pause;
    row.created_at <= now - SETTLES && !row.tried_at.is_some_and(is_tried)
}

/// Starts the due rollout of a pool, or records the refusal. Returns whether the rollout has started.
async fn try_start(app: &App, pool: ObjectId, now: Timestamp) -> Result<bool, Error> {
    let mut tx = app.pool.begin().await?;
    // Waits for a change of the pool, and for a replica at the same rollout.
    db::revisions::lock(&mut tx, pool).await?;
    let found = db::due_rollouts::find(&mut tx, pool).await?;
    let Some(due) = found.filter(|due| is_due(due, now)) else {
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
        }) if has_no_joiner(&mut scope, pool).await? => {
            scope.rollback().await?;
            promote(&mut tx, &actor, &due, now).await?;
            false
        }
        Err(Error::Conflict { code, detail }) => {
            scope.rollback().await?;
            refuse(&mut tx, &actor, &due, code, &detail, now).await?;
            false
        }
        Err(error @ (Error::Unavailable(_) | Error::Contended(_))) => return Err(error),
        Err(error) => {
            scope.rollback().await?;
            tracing::error!(pool = due.pool_name, error = ?error, "a due rollout could not be started");
            let detail = "The server failed; see its log.";
            refuse(&mut tx, &actor, &due, "internal", detail, now).await?;
            false
        }
    };
    tx.commit().await?;
    Ok(begun)
}

/// Whether the pool has nodes, or no machine is on its way into the pool. Otherwise the machine would be
/// assigned a revision that no node has run.
async fn has_no_joiner(conn: &mut PgConnection, pool: ObjectId) -> Result<bool, Error> {
    let members = db::disruption::count_members(conn, pool).await?;
    Ok(members > 0 || !db::revisions::has_claims(conn, pool).await?)
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
    // The lock on the open rollout comes before every lock on its nodes, as in a tick.
    if let Some(open) = db::rollouts::find_open(conn, pool).await? {
        let open = super::find(conn, &open.to_string()).await?;
        let detail = format!(
            "{} is {}; the next one starts after its end.",
            open.name, open.state
        );
        return Err(Error::conflict(OPEN, detail));
    }
    let stored = revisions::find_named(conn, pool, due.number).await?;
    let policy = RolloutPolicy::default();
    let name = &due.pool_name;
    let (row, loaded) = plan::store(conn, app, actor, &stored, &policy, pool, name).await?;
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
    due: &DueRow,
    now: Timestamp,
) -> Result<(), Error> {
    db::due_rollouts::remove(conn, due.pool).await?;
    db::revisions::set_present(conn, due.pool, due.revision).await?;
    let (name, number) = (&due.pool_name, due.number);
    let summary =
        format!("new claims of pool {name} are assigned revision {number}: no node needs a change");
    let event = actor.event(now, "pool.revision_promoted", None, summary);
    let detail = json!({ "pool": name, "revision": number });
    db::events::insert(conn, event.with(detail).about(due.pool)).await
}

/// Records a refusal, with an event for each new code.
async fn refuse(
    conn: &mut PgConnection,
    actor: &Actor,
    due: &DueRow,
    code: &str,
    detail: &str,
    now: Timestamp,
) -> Result<(), Error> {
    db::due_rollouts::set_refused(conn, due.pool, code, detail, now).await?;
    if due.reason_code.as_deref() == Some(code) {
        return Ok(());
    }
    let (name, number) = (&due.pool_name, due.number);
    let summary = format!("revision {number} of pool {name} cannot be rolled out now: {detail}");
    let event = actor.event(now, "pool.rollout_refused", None, summary);
    let detail = json!({ "pool": name, "revision": number, "code": code });
    db::events::insert(conn, event.with(detail).about(due.pool)).await
}
