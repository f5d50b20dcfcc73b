//! Begins, advances and ends recoveries together with the moves of the node. Checks the limits on
//! recoveries when a decision depends on the limits.

use jiff::{SignedDuration, Timestamp};
use muster_core::lifecycle::decision::{Decision, Effect, Ladder, Move};
use muster_core::lifecycle::state::State;
use muster_core::recovery::{
    BY_HAND, Cause, Ended, Hold, RecoveryPolicy, Rung, Tried, may_begin, may_go_on, rungs_for,
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::db;
use crate::db::events::NewEvent;
use crate::db::lifecycle::EngineNode;
use crate::error::Error;

/// The period of a pool's limit of erased nodes.
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Returns the reason against another rung on the node, if the decision is a rung. Beginning
/// recoveries wait for a common lock.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn find_hold(
    conn: &mut PgConnection,
    node: &EngineNode,
    decision: &Decision,
    now: Timestamp,
) -> Result<Option<Hold>, Error> {
    let under_way = node.recovery.as_ref().map(|(_, recovery)| &recovery.cause);
    let begins = find_begun_cause(decision);
    let climbs = match decision {
        Decision::Advance(to) => {
            to.to == State::Repairing || (node.state == State::Repairing && to.to == State::Imaging)
        }
        Decision::Start(_) => node.state == State::Repairing,
        Decision::Wait(_)
        | Decision::Retry(..)
        | Decision::Cancel(_)
        | Decision::Granted(_)
        | Decision::Refused(_) => false,
    };
    let Some(cause) = begins.or(under_way.filter(|_| climbs)) else {
        return Ok(None);
    };
    let policy = node.policy.clone().unwrap_or_else(RecoveryPolicy::none);
    db::recoveries::one_at_a_time(conn).await?;
    let (seen, pool) =
        db::recoveries::count_seen(conn, node.id, &cause.signature, policy.within_h, now).await?;
    let held = match begins {
        Some(cause) => may_begin(&policy, cause, seen),
        None => may_go_on(cause, seen),
    };
    let Err(held) = held else {
        return match writes_root_disk(node, decision) {
            true => find_spent_limit(conn, node, now).await,
            false => Ok(None),
        };
    };
    let breaker = match (&held, pool) {
        (Hold::Fleet(_), _) => Some(cause.signature.clone()),
        (Hold::Pool(_), Some(pool)) => {
            Some(db::recoveries::breaker_of_pool(&cause.signature, &pool))
        }
        (Hold::Pool(_), None) | (Hold::Node(_) | Hold::Later(_), _) => None,
    };
    if let Some(breaker) = breaker
        && db::breakers::open(conn, &breaker, held.why(), None, now).await?
    {
        let summary = format!(
            "the breaker of {breaker} opened on {}: {}",
            node.name,
            held.why()
        );
        let event =
            NewEvent::node(now, "muster", "breaker.opened", node.id, summary).under(node.operation);
        db::events::insert(conn, event.with(json!({ "signature": breaker }))).await?;
        metrics::counter!("muster_breakers_opened_total").increment(1);
    }
    Ok(Some(held))
}

/// Returns whether a decision is the rung that writes the root disk anew.
fn writes_root_disk(node: &EngineNode, decision: &Decision) -> bool {
    match decision {
        Decision::Advance(to) => node.state == State::Repairing && to.to == State::Imaging,
        Decision::Start(_)
        | Decision::Wait(_)
        | Decision::Retry(..)
        | Decision::Cancel(_)
        | Decision::Granted(_)
        | Decision::Refused(_) => false,
    }
}

/// Returns the reason against another root disk, when the pool's hourly limit of erased nodes is
/// reached. The node then goes to a person, because a reinstallation beyond the limit needs two.
async fn find_spent_limit(
    conn: &mut PgConnection,
    node: &EngineNode,
    now: Timestamp,
) -> Result<Option<Hold>, Error> {
    let Some(pool) = db::recoveries::find_pool_limit(conn, node.id).await? else {
        return Ok(None);
    };
    let limit = match &pool.releases_per_hour {
        None | Some(Value::Null) => return Ok(None),
        // An unreadable limit allows no node.
        Some(limit) => limit.as_i64().unwrap_or(0),
    };
    let since = now - HOUR;
    let count = db::approvals::count_erased(conn, "", "", Some(pool.id), since).await?;
    let why = format!(
        "the limit of {limit} released or reinstalled nodes per hour in pool {} is reached: a reinstallation needs a person",
        pool.name
    );
    Ok((count.of_pool >= limit).then_some(Hold::Later(why)))
}

/// Returns the cause of the recovery begun by a decision, if any.
fn find_begun_cause(decision: &Decision) -> Option<&Cause> {
    if let Decision::Advance(Move {
        ladder: Some(Ladder::Begin(cause)),
        ..
    }) = decision
    {
        Some(cause)
    } else {
        None
    }
}

/// Records a held-back recovery of a node moving to a state for an operator. Circuit breakers count
/// the failure. Without the record, any number of failing nodes could leave service in turn.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn record_held_back(
    conn: &mut PgConnection,
    node: &EngineNode,
    wanted: &Decision,
    hold: &Hold,
    decided: &Decision,
    now: Timestamp,
) -> Result<(), Error> {
    let (Some(cause), Hold::Node(_), Decision::Advance(_)) =
        (find_begun_cause(wanted), hold, decided)
    else {
        return Ok(());
    };
    let id = db::recoveries::insert(conn, node.id, cause, &[], now).await?;
    end(conn, node, id, Ended::HeldBack, &[], now).await
}

/// Applies a move to the recovery of the node.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn follow(
    conn: &mut PgConnection,
    node: &EngineNode,
    to: &Move,
    now: Timestamp,
) -> Result<(), Error> {
    let open = node.recovery.as_ref().map(|(id, _)| *id);
    match (&to.ladder, open) {
        (Some(Ladder::Begin(cause)), _) => begin(conn, node, cause, now).await,
        (Some(Ladder::Climb { tried, went }), Some(id)) => {
            db::recoveries::record_rungs(conn, id, Some(*tried), went, None, now).await?;
            if node.state == State::Repairing && to.to == State::Imaging {
                db::recoveries::set_reimaged(conn, id, now).await?;
            }
            record_rungs(conn, node, id, went, now).await
        }
        (Some(Ladder::End { how, went }), Some(id)) => {
            record_rungs(conn, node, id, went, now).await?;
            end(conn, node, id, *how, went, now).await
        }
        (None, Some(id)) => match find_ending(node, to) {
            Some(how) => end(conn, node, id, how, &[], now).await,
            None => Ok(()),
        },
        (Some(Ladder::Climb { .. } | Ladder::End { .. }) | None, None) => Ok(()),
    }
}

/// Returns how a recovery ended, for a node moved to a state without a runbook step. `None` while
/// the recovery goes on.
fn find_ending(node: &EngineNode, to: &Move) -> Option<Ended> {
    if to.to == State::InService && node.state == State::Admitting {
        Some(Ended::Recovered)
    } else if to.to == State::Failed && !to.effects.contains(&Effect::Stopped) {
        Some(Ended::Failed)
    } else if to.to.is_resting() || matches!(to.to, State::Wiping | State::Inspecting) {
        Some(Ended::Stopped)
    } else {
        None
    }
}

async fn begin(
    conn: &mut PgConnection,
    node: &EngineNode,
    cause: &Cause,
    now: Timestamp,
) -> Result<(), Error> {
    let rungs: &[Rung] = match &node.policy {
        Some(policy) if !policy.rungs.is_empty() || !cause.asked => &policy.rungs,
        _ if cause.asked => &BY_HAND,
        _ => &[],
    };
    let left = rungs_for(cause.action, rungs);
    let shortened = left.len() < rungs.len();
    let rungs = left.as_slice();
    let id = db::recoveries::insert(conn, node.id, cause, rungs, now).await?;
    let plan = match rungs {
        [] => "no rung: the node is quarantined".to_owned(),
        rungs => rungs
            .iter()
            .map(|rung| rung.title())
            .collect::<Vec<_>>()
            .join(", "),
    };
    let asked = cause
        .action
        .filter(|_| shortened)
        .map(|action| format!(" (the driver recommends: {})", action.as_str()));
    let summary = format!(
        "{}: recovery started for {} ({}): {plan}{}",
        node.name,
        cause.signature,
        cause.what,
        asked.unwrap_or_default()
    );
    let detail = json!({ "recovery": id, "signature": cause.signature, "rungs": rungs, "asked": cause.asked, "action": cause.action });
    let event =
        NewEvent::node(now, "muster", "recovery.started", node.id, summary).under(node.operation);
    metrics::counter!("muster_recoveries_total").increment(1);
    db::events::insert(conn, event.with(detail)).await
}

/// Emits an event for each tried rung.
async fn record_rungs(
    conn: &mut PgConnection,
    node: &EngineNode,
    recovery: Uuid,
    went: &[Tried],
    now: Timestamp,
) -> Result<(), Error> {
    for Tried { rung, outcome, why } in went {
        let because = why
            .as_deref()
            .map(|why| format!(": {why}"))
            .unwrap_or_default();
        let summary = format!("{}: {} {outcome}{because}", node.name, rung.title());
        let event =
            NewEvent::node(now, "muster", "recovery.rung", node.id, summary).under(node.operation);
        db::events::insert(
            conn,
            event.with(json!({ "recovery": recovery, "rung": rung, "outcome": outcome })),
        )
        .await?;
    }
    Ok(())
}

async fn end(
    conn: &mut PgConnection,
    node: &EngineNode,
    recovery: Uuid,
    how: Ended,
    went: &[Tried],
    now: Timestamp,
) -> Result<(), Error> {
    db::recoveries::record_rungs(conn, recovery, None, went, Some(how), now).await?;
    let result = match how {
        Ended::Recovered => "recovered: every gate passes",
        Ended::Spent => "recovery ended: no rung is left",
        Ended::HeldBack => "recovery held back",
        Ended::Stopped => "recovery stopped",
        Ended::Failed => "recovery failed",
    };
    let event = NewEvent::node(
        now,
        "muster",
        "recovery.ended",
        node.id,
        format!("{}: {result}", node.name),
    );
    db::events::insert(
        conn,
        event
            .under(node.operation)
            .with(json!({ "recovery": recovery, "ended": how })),
    )
    .await
}
