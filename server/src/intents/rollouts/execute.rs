//! Applies the actions of a plan. Each action has a transaction of its own: under the locks of the
//! rollout and of the node, the mark is compared with the planned mark, the act is requested, and the
//! new mark is recorded with the reason. The engine takes the slot of the disruption budget in the
//! same transaction.

use jiff::Timestamp;
use muster_api::rollouts::RolloutState;
use muster_core::effects::Effect;
use muster_core::ids::OperationId;
use muster_core::lifecycle::state::{Action, State};
use muster_core::rollout::{Act, Action as Planned, Mark};
use serde_json::json;
use sqlx::{Acquire as _, PgConnection};

use super::fits::UNFIT;
use super::fleet::{Loaded, find_effect};
use super::regressions;
use super::signals::Signals;
use super::windows::Windows;
use crate::app::{App, wake};
use crate::auth::Actor;
use crate::db;
use crate::db::nodes::LockedNode;
use crate::db::rollout_nodes::{NewMark, NodeRow};
use crate::db::rollouts::RolloutRow;
use crate::engine::{self, Reconciled};
use crate::error::Error;
use crate::intents::nodes::requests::{self, ActionRequest};

/// The code of a reinstall that the plan does not list.
const NOT_LISTED: &str = "reinstall_not_planned";

/// The result of a requested act.
enum Done {
    Applied {
        operation: Option<OperationId>,
        pass: Option<Reconciled>,
    },
    /// The node cannot take the act now. The next tick plans again.
    NotNow,
}

/// Applies one action. Returns whether the mark has changed.
///
/// # Errors
/// When the database fails.
pub(super) async fn apply(
    app: &App,
    rollout: &RolloutRow,
    loaded: &Loaded,
    row: &NodeRow,
    planned: &Planned,
) -> Result<bool, Error> {
    let effect = find_effect(&loaded.effects, row, rollout.number);
    let mut tx = app.pool.begin().await?;
    let Some(node) = lock_node(&mut tx, rollout, row, planned).await? else {
        return Ok(false);
    };
    let mut scope = tx.begin().await?;
    let code = planned.because.code();
    let (act, reason, operation, pass) =
        match request(&mut scope, app, rollout, (row, effect), &node, planned).await {
            Ok(Done::Applied { operation, pass }) => {
                scope.commit().await?;
                let reason = planned.because.to_string();
                (planned.act.clone(), (code, reason), operation, pass)
            }
            // The rules refuse the revision on the node, or the plan does not list its reinstall: the
            // rollout leaves the node out.
            Err(Error::Conflict {
                code: code @ (UNFIT | NOT_LISTED),
                detail,
            }) => {
                scope.rollback().await?;
                (Act::Skip, (code, detail), None, None)
            }
            Ok(Done::NotNow) | Err(Error::Busy { .. }) => return Ok(false),
            // The node has moved since the plan, or refuses the act for a while. The mark stays, and
            // readers see the refusal.
            Err(Error::Conflict { code, detail }) => {
                scope.rollback().await?;
                db::rollout_nodes::note(&mut tx, rollout.id, row.node, code, &detail).await?;
                tx.commit().await?;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
    record(
        &mut tx,
        app.clock.now(),
        rollout,
        row,
        &act,
        &reason,
        operation,
    )
    .await?;
    if act.mark() == Mark::Done {
        regressions::compare_changed(&mut tx, rollout, Some(row.node)).await?;
    }
    tx.commit().await?;
    if let Some(pass) = pass {
        pass.wake(app).await?;
    }
    wake(app);
    Ok(true)
}

/// Locks the rollout and the node, and compares the node's mark with the plan. A halt wins over every
/// action that starts work, and a hold of the claim as well.
async fn lock_node(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
    row: &NodeRow,
    planned: &Planned,
) -> Result<Option<LockedNode>, Error> {
    let starts = planned.act.starts();
    let goes_on = match db::rollouts::lock(conn, rollout.id).await? {
        Some(RolloutState::Running) => true,
        Some(RolloutState::Halted | RolloutState::Superseded) => !starts,
        Some(RolloutState::Planned | RolloutState::Done | RolloutState::Expired) | None => false,
    };
    // The policy may be adjusted while a tick applies its plan.
    let follows_policy = starts || planned.act == Act::Skip;
    if follows_policy
        && super::find(conn, &rollout.id.to_string()).await?.policy.0 != rollout.policy.0
    {
        return Ok(None);
    }
    let node = db::nodes::find_for_update(conn, &row.node.to_string()).await?;
    let seen = db::rollout_nodes::find_mark(conn, rollout.id, row.node).await?;
    let is_planned = seen.is_some_and(|seen| seen.mark == row.mark && (seen.is_free || !starts));
    // A node on a way of its own since the plan is planned again.
    let is_unmoved = |node: &LockedNode| !starts || node.state == row.state;
    Ok(node.filter(|node| goes_on && is_planned && is_unmoved(node)))
}

/// Requests the act of the node.
async fn request(
    conn: &mut PgConnection,
    app: &App,
    rollout: &RolloutRow,
    (row, effect): (&NodeRow, Option<Effect>),
    node: &LockedNode,
    planned: &Planned,
) -> Result<Done, Error> {
    match &planned.act {
        Act::Close { requeue, .. } => {
            let action = choose_action(rollout, row, effect)?;
            let done = close(conn, app, rollout, row, node, action).await?;
            if let Done::Applied {
                operation: Some(operation),
                ..
            } = &done
                && *requeue
            {
                db::operations::set_requeue(conn, *operation).await?;
            }
            Ok(done)
        }
        Act::Change { .. } if node.state == State::Failed => {
            // A retry of this phase writes the image.
            if row.failed_phase == Some(State::Imaging) {
                need_listed(rollout, row)?;
            }
            act(conn, app, rollout, node, Action::Retry).await
        }
        Act::GiveBack { .. } | Act::Fail { give_back: true } | Act::Skip
            if row.mark == Mark::Changing =>
        {
            give_back(conn, app, rollout, row, node, &planned.act).await
        }
        // The lifecycle goes on by itself from a drain to the gates and back into service.
        Act::Wait
        | Act::Change { .. }
        | Act::Validate
        | Act::Readmit
        | Act::GiveBack { .. }
        | Act::Finish { .. }
        | Act::Skip
        | Act::Fail { .. } => Ok(Done::Applied {
            operation: None,
            pass: None,
        }),
    }
}

/// Ends our drain of an unchanged node, and assigns the revision from before. A node that has moved on
/// since the plan is planned again; a node skipped outside of our drain is left where the node is.
async fn give_back(
    conn: &mut PgConnection,
    app: &App,
    rollout: &RolloutRow,
    row: &NodeRow,
    node: &LockedNode,
    planned: &Act,
) -> Result<Done, Error> {
    let is_unchanged = node.state == State::Draining || failed_to_drain(node);
    let drains = is_unchanged && row.operation == node.operation_id;
    if !drains && *planned != Act::Skip {
        return Ok(Done::NotNow);
    }
    db::rollout_nodes::restore_assigned(conn, rollout.id, row.node, app.clock.now()).await?;
    match drains {
        true => act(conn, app, rollout, node, Action::Undrain).await,
        false => Ok(Done::Applied {
            operation: None,
            pass: None,
        }),
    }
}

/// Whether the node failed in a drain.
fn failed_to_drain(node: &LockedNode) -> bool {
    node.state == State::Failed && node.failed_phase == Some(State::Draining)
}

/// Returns the action that brings the node to the target.
///
/// # Errors
/// 409 for a reinstall that the confirmed plan does not list.
fn choose_action(
    rollout: &RolloutRow,
    row: &NodeRow,
    effect: Option<Effect>,
) -> Result<Action, Error> {
    match effect {
        Some(Effect::Reinstall | Effect::Wipe) => {
            need_listed(rollout, row).map(|()| Action::Reinstall)
        }
        Some(Effect::None | Effect::InPlace | Effect::Reboot) | None => Ok(Action::Converge),
    }
}

/// Allows a reinstall that the confirmed plan lists. A start by a version before confirms none.
///
/// # Errors
/// 409 for every other node.
fn need_listed(rollout: &RolloutRow, row: &NodeRow) -> Result<(), Error> {
    match row.reinstall_planned && rollout.started_by.is_some() {
        true => Ok(()),
        false => Err(Error::conflict(
            NOT_LISTED,
            format!("the plan does not list the reinstall of {}", row.name),
        )),
    }
}

/// Assigns the target and requests a converge or a reinstall. The node leaves service in the same
/// transaction, or not at all: without a slot of the disruption budget the act is undone.
async fn close(
    conn: &mut PgConnection,
    app: &App,
    rollout: &RolloutRow,
    row: &NodeRow,
    node: &LockedNode,
    action: Action,
) -> Result<Done, Error> {
    let now = app.clock.now();
    // A freeze may have been declared since the plan.
    if !Windows::load(conn, rollout.id).await?.is_open_at(now) {
        return Ok(Done::NotNow);
    }
    // A monitor may have fired since the plan.
    if !Signals::load(conn, rollout, now).await?.allow_start() {
        return Ok(Done::NotNow);
    }
    db::rollout_nodes::keep_assigned(conn, rollout.id, row.node).await?;
    if !db::claims::set_assigned(conn, row.claim, rollout.target, now).await? {
        return Ok(Done::NotNow);
    }
    let done = act(conn, app, rollout, node, action).await?;
    let pass = engine::reconcile_now(conn, node.id, now).await?;
    let left = db::nodes::find_for_update(conn, &node.id.to_string()).await?;
    match (done, left) {
        (Done::Applied { operation, .. }, Some(left)) if left.state != State::InService => {
            Ok(Done::Applied {
                operation,
                pass: Some(pass),
            })
        }
        (Done::Applied { .. } | Done::NotNow, _) => Ok(Done::NotNow),
    }
}

async fn act(
    conn: &mut PgConnection,
    app: &App,
    rollout: &RolloutRow,
    node: &LockedNode,
    action: Action,
) -> Result<Done, Error> {
    let reason = format!("rollout {}", rollout.name);
    let request = ActionRequest {
        action,
        reason: Some(&reason),
        until: None,
        suite: None,
        override_budget: None,
    };
    let actor = Actor::muster().acting_for(&rollout.actor);
    let operation = requests::write_action(conn, app, &actor, node, request).await?;
    db::operations::set_rollout(conn, operation, rollout.id).await?;
    Ok(Done::Applied {
        operation: Some(operation),
        pass: None,
    })
}

/// Records the mark with an event.
async fn record(
    conn: &mut PgConnection,
    now: Timestamp,
    rollout: &RolloutRow,
    row: &NodeRow,
    act: &Act,
    (code, reason): &(&str, String),
    operation: Option<OperationId>,
) -> Result<(), Error> {
    let mark = act.mark();
    let wrong = row.state_reason.as_deref();
    let new = NewMark {
        rollout: rollout.id,
        node: row.node,
        mark,
        reason_code: code,
        reason,
        changed: matches!(act, Act::Finish { changed: true }),
        deferred_until: match act {
            Act::GiveBack { not_before } => Some(*not_before),
            _ => None,
        },
        wrong: wrong.filter(|_| ends_attempt(row, act)),
        operation,
    };
    db::rollout_nodes::set_mark(conn, &new, now).await?;
    if mark == row.mark && !matches!(act, Act::Change { .. }) {
        return Ok(());
    }
    let summary = format!("rollout {}: {} is {mark}: {reason}", rollout.name, row.name);
    let event = db::events::NewEvent::node(now, "muster", "rollout.node", row.node, summary);
    let detail = json!({ "rollout": rollout.name, "pool": rollout.pool_name, "revision": rollout.number, "mark": mark, "act": act.code(), "code": code });
    db::events::insert(conn, event.under(operation).with(detail)).await?;
    metrics::counter!("muster_rollout_marks_total", "mark" => mark.as_str()).increment(1);
    Ok(())
}

/// Whether the act ends an attempt that failed, for another attempt.
fn ends_attempt(row: &NodeRow, act: &Act) -> bool {
    let is_tried_again = match act {
        Act::Change { .. } => true,
        Act::GiveBack { .. } => row.mark == Mark::Changing,
        Act::Wait
        | Act::Close { .. }
        | Act::Validate
        | Act::Readmit
        | Act::Finish { .. }
        | Act::Skip
        | Act::Fail { .. } => false,
    };
    is_tried_again && row.state == State::Failed
}
