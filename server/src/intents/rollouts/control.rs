//! The acts of people on a rollout.

use muster_api::rollouts::{RolloutState, StartRollout, SteerNode, SteerRollout};
use muster_core::rollout::{HaltReason, Mark};
use serde_json::json;
use sqlx::PgConnection;

use super::plan::find_digest;
use super::view::{self, Parts};
use super::{check_reason, fleet, promotion, reinstalls};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::rollout_facts::NodeRow;
use crate::db::rollout_nodes::NewMark;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::writing::{self, Effect};

/// A request to steer a rollout.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub app: &'a App,
    pub actor: &'a Actor,
    /// Name or id of the rollout.
    pub key: &'a str,
}

impl<'a> Request<'a> {
    pub(crate) fn new(app: &'a App, actor: &'a Actor, key: &'a str) -> Self {
        Self { app, actor, key }
    }
}

/// Starts a plan by the digest.
///
/// # Errors
/// 404; 409 `plan_changed` where nodes or effects have changed since the plan, `expired` after the
/// plan's end, `not_promoted` before the end of the rollout named by `after`, `rollout_open` beside
/// another rollout of the pool.
pub(crate) async fn start(
    request: Request<'_>,
    idempotency: IdempotencyKey,
    body: &StartRollout,
) -> Result<Answer, Error> {
    let Request { app, actor, key } = request;
    writing::once(app, actor, idempotency, body, async |conn| {
        let now = app.clock.now();
        let row = lock(conn, key).await?;
        // A rollout that starts by itself may be about to start.
        db::revisions::lock(conn, row.pool).await?;
        allow_state(&row, &[RolloutState::Planned], "started")?;
        if row.expires_at <= now {
            let detail = format!("The plan of {} has ended; plan again.", row.name);
            return Err(Error::conflict("expired", detail));
        }
        db::rollout_nodes::follow_members(conn, row.id, now).await?;
        let loaded = fleet::load(conn, &row, now).await?;
        if body.plan != row.digest || find_digest(&row, &loaded) != row.digest {
            let detail = format!(
                "Nodes or effects have changed since the plan of {}; plan again.",
                row.name
            );
            return Err(Error::conflict("plan_changed", detail));
        }
        reinstalls::allow_start(conn, app, actor, &row, &loaded).await?;
        begin(conn, app, actor, &row, body.supersede).await?;
        answer(conn, request).await
    })
    .await
}

/// Starts a checked plan. The start takes the place of a rollout of the pool that was to start by
/// itself.
///
/// # Errors
/// 409 `rollout_open` beside another rollout of the pool, unless superseded; `not_promoted` before the
/// end of the rollout named by `after`.
pub(super) async fn begin(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    row: &RolloutRow,
    supersede: bool,
) -> Result<(), Error> {
    let now = app.clock.now();
    if let Some(open) = db::rollouts::find_open(conn, row.pool).await? {
        let other = super::find(conn, &open.to_string()).await?;
        if !supersede {
            let detail = format!(
                "{} is {}; halt it and start with supersede, or wait for its end.",
                other.name, other.state
            );
            return Err(Error::conflict("rollout_open", detail));
        }
        db::rollouts::end(conn, open, RolloutState::Superseded, now).await?;
        let what = format!("superseded by {}", row.name);
        record(conn, actor, app, &other, "rollout.superseded", &what).await?;
    }
    promotion::allow_start(conn, actor, row).await?;
    db::due_rollouts::remove(conn, row.pool).await?;
    db::rollouts::start(conn, row.id, &actor.person, now).await?;
    record(conn, actor, app, row, "rollout.started", "started").await
}

/// Halts a rollout. Work under way ends; no further work starts.
///
/// # Errors
/// 404; 409 for a rollout not running; 422 without a reason.
pub(crate) async fn halt(
    request: Request<'_>,
    idempotency: IdempotencyKey,
    body: &SteerRollout,
) -> Result<Answer, Error> {
    // The reason of a halt in force stays: a second halt has no effect.
    let from = [RolloutState::Running, RolloutState::Halted];
    steer(
        request,
        idempotency,
        body,
        "halted",
        &from,
        async |conn, row, reason| {
            if row.state == RolloutState::Halted {
                return Ok(None);
            }
            let why = HaltReason::Person(format!("{reason} ({})", request.actor.name));
            db::rollouts::halt(conn, row.id, &why).await?;
            Ok(Some("rollout.halted"))
        },
    )
    .await
}

/// Resumes a halted rollout. A standing reason halts the rollout again.
///
/// # Errors
/// 404; 409 for a rollout not halted; 422 without a reason.
pub(crate) async fn resume(
    request: Request<'_>,
    idempotency: IdempotencyKey,
    body: &SteerRollout,
) -> Result<Answer, Error> {
    let from = [RolloutState::Halted];
    steer(
        request,
        idempotency,
        body,
        "resumed",
        &from,
        async |conn, row, _| {
            db::rollouts::resume(conn, row.id, request.app.clock.now()).await?;
            Ok(Some("rollout.resumed"))
        },
    )
    .await
}

/// Ends the canary and the soak.
///
/// # Errors
/// 404; 409 for a rollout that has ended; 422 without a reason.
pub(crate) async fn promote(
    request: Request<'_>,
    idempotency: IdempotencyKey,
    body: &SteerRollout,
) -> Result<Answer, Error> {
    let from = [RolloutState::Running, RolloutState::Halted];
    steer(
        request,
        idempotency,
        body,
        "promoted",
        &from,
        async |conn, row, _| {
            db::rollouts::promote(conn, row.id).await?;
            Ok(Some("rollout.promoted"))
        },
    )
    .await
}

/// Changes a rollout in one of the states `from`, once per idempotency key. `change` returns the kind
/// of the event, or `None` without an effect.
async fn steer(
    request: Request<'_>,
    idempotency: IdempotencyKey,
    body: &SteerRollout,
    verb: &str,
    from: &[RolloutState],
    change: impl AsyncFnOnce(
        &mut PgConnection,
        &RolloutRow,
        &str,
    ) -> Result<Option<&'static str>, Error>,
) -> Result<Answer, Error> {
    let reason = check_reason(&body.reason)?;
    let Request { app, actor, key } = request;
    writing::once(app, actor, idempotency, body, async |conn| {
        let row = lock(conn, key).await?;
        allow_state(&row, from, verb)?;
        if let Some(kind) = change(conn, &row, reason).await? {
            record(conn, actor, app, &row, kind, &format!("{verb}: {reason}")).await?;
        }
        answer(conn, request).await
    })
    .await
}

/// Leaves out a node not begun yet.
///
/// # Errors
/// 404; 409 for a node that has begun or ended; 422 without a reason.
pub(crate) async fn skip(
    request: Request<'_>,
    idempotency: IdempotencyKey,
    body: &SteerNode,
) -> Result<Answer, Error> {
    steer_node(
        request,
        idempotency,
        body,
        &[Mark::NotBegun, Mark::Waiting],
        Mark::Skipped,
    )
    .await
}

/// Lets the rollout take a failed or skipped node again. The node's failure stays counted.
///
/// # Errors
/// 404; 409 for another mark; 422 without a reason.
pub(crate) async fn retry(
    request: Request<'_>,
    idempotency: IdempotencyKey,
    body: &SteerNode,
) -> Result<Answer, Error> {
    steer_node(
        request,
        idempotency,
        body,
        &[Mark::Failed, Mark::Skipped],
        Mark::NotBegun,
    )
    .await
}

/// Closes a waiting node in its turn without waiting for its jobs, which the scheduler requeues. The
/// agreement ends with the wait.
///
/// # Errors
/// 404; 409 for a node that does not wait; 422 without a reason.
pub(crate) async fn requeue(
    request: Request<'_>,
    idempotency: IdempotencyKey,
    body: &SteerNode,
) -> Result<Answer, Error> {
    let reason = check_reason(&body.reason)?;
    let Request { app, actor, key } = request;
    writing::once(app, actor, idempotency, body, async |conn| {
        let (row, node) = find_node(conn, key, &body.node, &[Mark::Waiting]).await?;
        let now = app.clock.now();
        db::rollout_nodes::set_requeue_agreed(conn, row.id, node.node, now).await?;
        let what = "its jobs may be requeued";
        let summary = format!("rollout {}: {} waits, and {what}: {reason}", row.name, node.name);
        let event = actor.event(now, "rollout.node", Some(node.node), summary);
        let detail = json!({ "rollout": row.name, "pool": row.pool_name, "mark": node.mark, "code": "requeue_agreed" });
        db::events::insert(conn, event.with(detail)).await?;
        answer(conn, request).await
    })
    .await
}

/// Locks an open rollout, and finds a node with one of the marks.
///
/// # Errors
/// 404; 409 for another state or another mark; 422 for an unknown node.
async fn find_node(
    conn: &mut PgConnection,
    key: &str,
    name: &str,
    from: &[Mark],
) -> Result<(RolloutRow, NodeRow), Error> {
    let row = lock(conn, key).await?;
    let open = [RolloutState::Running, RolloutState::Halted];
    allow_state(&row, &open, "changed")?;
    let nodes = db::rollout_facts::list_nodes(conn, row.id).await?;
    let found = nodes.into_iter().find(|node| node.name == name);
    let node = found.ok_or_else(|| {
        let detail = format!("{} has no node {name:?}.", row.name);
        Error::unprocessable("/node", "not_found", detail)
    })?;
    match from.contains(&node.mark) {
        true => Ok((row, node)),
        false => {
            let detail = format!("{} is {} in {}.", node.name, node.mark, row.name);
            Err(Error::conflict("mark", detail))
        }
    }
}

async fn steer_node(
    request: Request<'_>,
    idempotency: IdempotencyKey,
    body: &SteerNode,
    from: &[Mark],
    to: Mark,
) -> Result<Answer, Error> {
    let reason = check_reason(&body.reason)?;
    let Request { app, actor, key } = request;
    writing::once(app, actor, idempotency, body, async |conn| {
        let (row, node) = find_node(conn, key, &body.node, from).await?;
        let sentence = format!("{reason} ({})", actor.name);
        let new = NewMark {
            rollout: row.id,
            node: node.node,
            mark: to,
            reason_code: "person",
            reason: &sentence,
            changed: false,
            deferred_until: None,
            wrong: None,
            operation: None,
            unit_change: None,
        };
        let now = app.clock.now();
        db::rollout_nodes::set_mark(conn, &new, now).await?;
        if to == Mark::NotBegun {
            db::rollout_nodes::set_retried(conn, row.id, node.node, now).await?;
            db::rollout_comparisons::forget(conn, node.node, None).await?;
        }
        let summary = format!("rollout {}: {} is {to}: {reason}", row.name, node.name);
        let event = actor.event(now, "rollout.node", Some(node.node), summary);
        let detail =
            json!({ "rollout": row.name, "pool": row.pool_name, "mark": to, "code": "person" });
        db::events::insert(conn, event.with(detail)).await?;
        answer(conn, request).await
    })
    .await
}

/// Locks a rollout and reads the rollout again under the lock.
pub(super) async fn lock(conn: &mut PgConnection, key: &str) -> Result<RolloutRow, Error> {
    let row = super::find(conn, key).await?;
    db::rollouts::lock(conn, row.id).await?;
    super::find(conn, &row.id.to_string()).await
}

pub(super) fn allow_state(
    row: &RolloutRow,
    states: &[RolloutState],
    verb: &str,
) -> Result<(), Error> {
    if states.contains(&row.state) {
        return Ok(());
    }
    let detail = format!("{} is {} and cannot be {verb}.", row.name, row.state);
    Err(Error::conflict("state", detail))
}

async fn record(
    conn: &mut PgConnection,
    actor: &Actor,
    app: &App,
    row: &RolloutRow,
    kind: &'static str,
    what: &str,
) -> Result<(), Error> {
    let summary = format!("rollout {} is {what}", row.name);
    let event = actor
        .event(app.clock.now(), kind, None, summary)
        .about(row.pool);
    let detail = json!({ "rollout": row.name, "pool": row.pool_name, "revision": row.number });
    db::events::insert(conn, event.with(detail)).await
}

pub(super) async fn answer(conn: &mut PgConnection, request: Request<'_>) -> Result<Effect, Error> {
    let Request { app, actor, key } = request;
    let rollout = view::load(conn, actor, key, app.clock.now(), Parts::Nodes).await?;
    Ok(Effect::Done(Answer::ok(&rollout)?))
}
