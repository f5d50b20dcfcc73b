//! Applies the actions of a plan. Each action has a transaction of its own. The nodes of a unit are
//! closed in a single transaction, and their changes start in a single transaction: under the locks of the rollout and of the node, the mark is
//! compared with the planned mark, the act is requested, and the new mark is recorded with the
//! reason. The engine takes the slot of the disruption budget in the same transaction.

use jiff::Timestamp;
use muster_api::rollouts::RolloutState;
use muster_core::effects::Effect;
use muster_core::ids::{NodeId, OperationId};
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
use crate::db::rollout_facts::NodeRow;
use crate::db::rollout_nodes::{NewMark, UnitChange};
use crate::db::rollouts::RolloutRow;
use crate::engine::disruption::OpenLedger;
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

/// A planned action, with the row of its node.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) row: &'a NodeRow,
    pub(super) planned: &'a Planned,
}

/// Why an act is done: a code, and a sentence for people.
struct Reason {
    code: &'static str,
    sentence: String,
}

/// Applies the action of a node, or the actions of a unit together. Returns whether a mark has
/// changed.
///
/// # Errors
/// When the database fails.
pub(super) async fn apply(
    app: &App,
    rollout: &RolloutRow,
    loaded: &Loaded,
    steps: &[Step<'_>],
) -> Result<bool, Error> {
    let mut tx = app.pool.begin().await?;
    let mut nodes = Vec::new();
    for step in steps {
        match lock_node(&mut tx, rollout, step).await? {
            Some(node) => nodes.push(node),
            None => return Ok(false),
        }
    }
    if steps.len() > 1 && !lock_budgets(&mut tx, app, steps).await? {
        return Ok(false);
    }
    let mut scope = tx.begin().await?;
    let mut passes = Vec::new();
    for (step, node) in steps.iter().zip(&nodes) {
        match take(&mut scope, app, rollout, loaded, step, node).await {
            Ok(Some(pass)) => passes.extend(pass),
            Ok(None) | Err(Error::Busy { .. }) => return Ok(false),
            // The actions of a unit are undone together.
            Err(Error::Conflict { code, detail }) => {
                scope.rollback().await?;
                let sentence = detail;
                let reason = Reason { code, sentence };
                let moved = refuse(&mut tx, app, rollout, step, &reason).await?;
                tx.commit().await?;
                if moved {
                    wake(app);
                }
                return Ok(moved);
            }
            Err(error) => return Err(error),
        }
    }
    scope.commit().await?;
    tx.commit().await?;
    for pass in passes {
        pass.wake(app).await?;
    }
    wake(app);
    Ok(true)
}

/// Locks the budgets of all nodes of a unit before the first act, in the order of other acts on
/// several nodes. Returns whether the declaration of the budgets is at rest.
async fn lock_budgets(
    conn: &mut PgConnection,
    app: &App,
    steps: &[Step<'_>],
) -> Result<bool, Error> {
    let nodes: Vec<NodeId> = steps.iter().map(|step| step.row.node).collect();
    let open = OpenLedger::open(conn, &nodes, app.clock.now()).await?;
    Ok(open.is_some())
}

/// Requests the act of a node, and records the new mark. Returns the passes to be told to others;
/// `None` if the node cannot take the act now.
///
/// # Errors
/// 409 for a refused act; when the database fails.
async fn take(
    conn: &mut PgConnection,
    app: &App,
    rollout: &RolloutRow,
    loaded: &Loaded,
    step: &Step<'_>,
    node: &LockedNode,
) -> Result<Option<Vec<Reconciled>>, Error> {
    let Step { row, planned } = *step;
    let effect = find_effect(&loaded.effects, row, rollout.number);
    let starts_unit = matches!(planned.act, Act::Change { .. }) && row.waits_for_unit;
    // Another request would replace the change.
    if starts_unit && (node.operation_id != row.operation || node.action.is_some()) {
        return Ok(None);
    }
    let done = request(conn, app, rollout, step, effect, node).await?;
    let Done::Applied { operation, pass } = done else {
        return Ok(None);
    };
    let now = app.clock.now();
    let reason = Reason {
        code: planned.because.code(),
        sentence: planned.because.to_string(),
    };
    record(conn, now, rollout, step, &planned.act, &reason, operation).await?;
    let mut passes: Vec<Reconciled> = pass.into_iter().collect();
    if starts_unit {
        passes.push(engine::reconcile_now(conn, row.node, now).await?);
    }
    if planned.act.mark() == Mark::Done {
        regressions::compare_changed(conn, rollout, Some(row.node)).await?;
    }
    Ok(Some(passes))
}

/// Records a refused act. The rollout leaves out a node that the rules exclude, and a node without a
/// planned reinstall. Any other refusal ends by itself: the mark stays, and readers see the reason.
/// Returns whether the mark has changed.
async fn refuse(
    conn: &mut PgConnection,
    app: &App,
    rollout: &RolloutRow,
    step: &Step<'_>,
    reason: &Reason,
) -> Result<bool, Error> {
    let Reason { code, sentence } = reason;
    if !matches!(*code, UNFIT | NOT_LISTED) {
        db::rollout_nodes::note(conn, rollout.id, step.row.node, code, sentence).await?;
        return Ok(false);
    }
    let now = app.clock.now();
    record(conn, now, rollout, step, &Act::Skip, reason, None).await?;
    Ok(true)
}

/// Locks the rollout and the node, and compares the node's mark with the plan. A halt wins over every
/// action that starts work, and a hold of the claim as well.
async fn lock_node(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
    step: &Step<'_>,
) -> Result<Option<LockedNode>, Error> {
    let Step { row, planned } = *step;
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
    step: &Step<'_>,
    effect: Option<Effect>,
    node: &LockedNode,
) -> Result<Done, Error> {
    let Step { row, planned } = *step;
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
    if !db::rollout_nodes::assign_target(conn, rollout.id, row.node, now).await? {
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
    step: &Step<'_>,
    act: &Act,
    reason: &Reason,
    operation: Option<OperationId>,
) -> Result<(), Error> {
    let row = step.row;
    let Reason { code, sentence } = reason;
    let mark = act.mark();
    let wrong = row.state_reason.as_deref();
    let new = NewMark {
        rollout: rollout.id,
        node: row.node,
        mark,
        reason_code: code,
        reason: sentence,
        changed: matches!(act, Act::Finish { changed: true }),
        deferred_until: match act {
            Act::GiveBack { not_before } => Some(*not_before),
            _ => None,
        },
        wrong: wrong.filter(|_| ends_attempt(row, act)),
        operation,
        unit_change: find_unit_change(step, act),
    };
    db::rollout_nodes::set_mark(conn, &new, now).await?;
    if mark == row.mark && !matches!(act, Act::Change { .. }) {
        return Ok(());
    }
    let summary = format!(
        "rollout {}: {} is {mark}: {sentence}",
        rollout.name, row.name
    );
    let event = db::events::NewEvent::node(now, "muster", "rollout.node", row.node, summary);
    let detail = json!({ "rollout": rollout.name, "pool": rollout.pool_name, "revision": rollout.number, "mark": mark, "act": act.code(), "code": code });
    db::events::insert(conn, event.under(operation).with(detail)).await?;
    metrics::counter!("muster_rollout_marks_total", "mark" => mark.as_str()).increment(1);
    Ok(())
}

/// Returns how an act leaves the change of a unit; `None` for an act on a node alone.
pub(super) fn find_unit_change(step: &Step<'_>, act: &Act) -> Option<UnitChange> {
    let Step { row, planned } = *step;
    match act {
        Act::Close { .. } => planned.unit.as_ref().map(|_| UnitChange::Waits),
        Act::Change { .. } => row.waits_for_unit.then_some(UnitChange::Started),
        Act::Wait
        | Act::Validate
        | Act::Readmit
        | Act::GiveBack { .. }
        | Act::Finish { .. }
        | Act::Skip
        | Act::Fail { .. } => None,
    }
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
