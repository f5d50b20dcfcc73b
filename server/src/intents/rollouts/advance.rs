//! A tick: plans every open rollout from the facts, and applies the planned actions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_api::rollouts::RolloutState;
use muster_core::ids::{NodeId, RolloutId};
use muster_core::rollout::{Fleet, Node, Opening, Plan, Rule, Stage, Verdict, plan};
use serde_json::json;
use tracing::Instrument as _;

use super::execute::Step;
use super::fleet::{self, Loaded};
use super::signals::Signals;
use super::{execute, find, regressions};
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::rollout_facts::NodeRow;
use crate::db::rollout_nodes::UnitChange;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;

/// Most applied actions of a rollout in one tick. The next tick plans the rest again.
const ACTIONS: usize = 200;
/// Most attempts of a rollout in one tick. Refused actions are attempts too.
const ATTEMPTS: usize = 1000;

/// Runs one tick of every open rollout. Returns whether a rollout has changed. An unreadable
/// rollout does not stop the others.
///
/// # Errors
/// When the database is unavailable.
pub async fn advance(app: &App) -> Result<bool, Error> {
    let mut conn = app.pool.acquire().await?;
    db::rollouts::expire(&mut conn, app.clock.now()).await?;
    let open = db::rollouts::list_open(&mut conn).await?;
    drop(conn);
    let mut changed = false;
    for id in open {
        let span = tracing::error_span!("rollout", rollout = %id);
        match tick(app, id).instrument(span).await {
            Ok(moved) => changed |= moved,
            Err(error @ Error::Unavailable(_)) => return Err(error),
            Err(error) => {
                tracing::error!(rollout = %id, error = ?error, "a rollout could not go on");
            }
        }
    }
    Ok(changed)
}

/// Plans one rollout and applies the plan.
async fn tick(app: &App, id: RolloutId) -> Result<bool, Error> {
    let now = app.clock.now();
    compare_changed(app, id).await?;
    let mut tx = app.pool.begin().await?;
    // Waits for a replica ticking the same rollout.
    db::rollouts::lock(&mut tx, id).await?;
    let rollout = find(&mut tx, &id.to_string()).await?;
    let loaded = match rollout.state {
        RolloutState::Running | RolloutState::Halted => {
            fleet::load_followed(&mut tx, &rollout, now).await?
        }
        // The nodes begun before are followed to their end.
        RolloutState::Superseded => fleet::load(&mut tx, &rollout, now).await?,
        RolloutState::Planned | RolloutState::Done | RolloutState::Expired => return Ok(false),
    };
    let plan = plan(&rollout.policy, &loaded.fleet, now);
    let mut changed = false;
    if rollout.state != RolloutState::Superseded {
        changed |= judge(&mut tx, &rollout, &loaded, &plan, now).await?;
        ask_people(&mut tx, &rollout, &loaded, &plan, now).await?;
    }
    tx.commit().await?;
    let mut applied = 0;
    for steps in group_steps(&plan, &loaded).iter().take(ATTEMPTS) {
        if applied >= ACTIONS {
            break;
        }
        match execute::apply(app, &rollout, &loaded, steps).await {
            Ok(moved) => applied += if moved { steps.len() } else { 0 },
            Err(error @ Error::Unavailable(_)) => return Err(error),
            // A failing node does not stop the others.
            Err(error) => {
                let nodes: Vec<&str> = steps.iter().map(|step| step.row.name.as_str()).collect();
                tracing::error!(?nodes, error = ?error, "an action of a rollout failed");
            }
        }
    }
    Ok(changed || applied > 0)
}

/// Groups the actions of a plan by transaction: the closes of a unit together, and the starts of its
/// changes; every other action alone.
fn group_steps<'a>(plan: &'a Plan, loaded: &'a Loaded) -> Vec<Vec<Step<'a>>> {
    let rows: BTreeMap<NodeId, &NodeRow> = loaded.rows.iter().map(|row| (row.node, row)).collect();
    let mut groups: Vec<Vec<Step<'a>>> = Vec::new();
    let mut of_unit: BTreeMap<(&str, UnitChange), usize> = BTreeMap::new();
    for planned in &plan.actions {
        let Some(row) = rows.get(&planned.node) else {
            continue;
        };
        let unit = planned.unit.as_deref();
        let step = Step { row, planned };
        let change = execute::find_unit_change(&step, &planned.act);
        let place = match unit.zip(change) {
            Some(together) => *of_unit.entry(together).or_insert(groups.len()),
            None => groups.len(),
        };
        match groups.get_mut(place) {
            Some(group) => group.push(step),
            None => groups.push(vec![step]),
        }
    }
    // Acts on several nodes lock the rows by id.
    for group in &mut groups {
        group.sort_by_key(|step| step.row.node);
    }
    groups
}

/// Compares changed nodes in a transaction of its own, because the comparison locks the nodes.
async fn compare_changed(app: &App, id: RolloutId) -> Result<(), Error> {
    let mut tx = app.pool.begin().await?;
    db::rollouts::lock(&mut tx, id).await?;
    let rollout = find(&mut tx, &id.to_string()).await?;
    if matches!(rollout.state, RolloutState::Running | RolloutState::Halted) {
        regressions::compare_changed(&mut tx, &rollout, None).await?;
    }
    tx.commit().await.map_err(Error::from)
}

/// Records the verdict of a plan: a halt, a stall, or the end. Returns whether the rollout has
/// changed.
async fn judge(
    conn: &mut sqlx::PgConnection,
    rollout: &RolloutRow,
    loaded: &Loaded,
    plan: &Plan,
    now: Timestamp,
) -> Result<bool, Error> {
    let stalled = rollout.stalled_since.map(|since| since.to_jiff());
    match &plan.verdict {
        Verdict::Halt(reason) if rollout.state == RolloutState::Running => {
            db::rollouts::halt(conn, rollout.id, reason).await?;
            record(
                conn,
                rollout,
                "rollout.halted",
                &format!("halted: {reason}"),
                reason.code(),
                now,
            )
            .await?;
            Ok(true)
        }
        Verdict::Done => {
            db::rollouts::end(conn, rollout.id, RolloutState::Done, now).await?;
            // New claims take a revision only after a node has passed every gate with the revision.
            let has_passed = |node: &Node| matches!(node.stage, Stage::Done { .. });
            if loaded.fleet.nodes.iter().any(has_passed) {
                db::revisions::set_present(conn, rollout.pool, rollout.target).await?;
            }
            let what = describe_end(&loaded.signals);
            record(conn, rollout, "rollout.done", &what, "done", now).await?;
            Ok(true)
        }
        Verdict::Stalled { cause, since } if stalled.is_none_or(|before| *since > before) => {
            db::rollouts::set_stalled(conn, rollout.id, Some(*since)).await?;
            // Readers of the event may be no readers of the node with the job.
            let cause = cause.without_holders();
            let what = format!("stalled since {since}: {cause}");
            record(conn, rollout, "rollout.stalled", &what, cause.code(), now).await?;
            Ok(false)
        }
        // A closed window ends no stall: the next opening would report the same stall again.
        Verdict::Running if stalled.is_some_and(|since| has_gone_on(&loaded.fleet, since)) => {
            db::rollouts::set_stalled(conn, rollout.id, None).await?;
            Ok(false)
        }
        Verdict::Halt(_) | Verdict::Stalled { .. } | Verdict::Running => Ok(false),
    }
}

/// Describes the end, with the signals without a present answer.
fn describe_end(signals: &Signals) -> String {
    let mut parts = vec!["done: every node has ended".to_owned()];
    parts.extend(signals.list_unknown());
    parts.join("; ")
}

/// Records an event for each node whose drain deadline has passed, once for each wait: a person ends
/// the jobs or skips the node. A closed window, or a time without a list of jobs, ends no question.
async fn ask_people(
    conn: &mut sqlx::PgConnection,
    rollout: &RolloutRow,
    loaded: &Loaded,
    plan: &Plan,
    now: Timestamp,
) -> Result<(), Error> {
    let rows: BTreeMap<NodeId, &NodeRow> = loaded.rows.iter().map(|row| (row.node, row)).collect();
    for place in &plan.placements {
        let (Some(row), Some(rule)) = (rows.get(&place.node), &place.why) else {
            continue;
        };
        let asked = row
            .reason_code
            .as_deref()
            .filter(|code| Rule::is_question(code));
        let is_over = matches!(rule, Rule::Job(_));
        if !(rule.asks_about_jobs() && asked != Some(rule.code()) || asked.is_some() && is_over) {
            continue;
        }
        let reason = rule.without_holders().to_string();
        db::rollout_nodes::note(conn, rollout.id, row.node, rule.code(), &reason).await?;
        // After an agreement to a requeue, no person is asked.
        if asked.is_some() || row.requeue_agreed_at.is_some() {
            continue;
        }
        let summary = format!("rollout {}: {} waits: {reason}", rollout.name, row.name);
        let event = NewEvent::node(now, "muster", "rollout.deadline_passed", row.node, summary);
        let detail = json!({ "rollout": rollout.name, "pool": rollout.pool_name, "revision": rollout.number, "code": rule.code() });
        db::events::insert(conn, event.with(detail)).await?;
    }
    Ok(())
}

/// Whether a stall is over: a node changed its mark since, or the windows are open.
fn has_gone_on(fleet: &Fleet, stalled: Timestamp) -> bool {
    let is_open = match fleet.window {
        Opening::Open { .. } => true,
        Opening::Closed { .. } => false,
    };
    is_open || fleet.nodes.iter().any(|node| node.since > stalled)
}

async fn record(
    conn: &mut sqlx::PgConnection,
    rollout: &RolloutRow,
    kind: &'static str,
    what: &str,
    code: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let summary = format!("rollout {} is {what}", rollout.name);
    let event = NewEvent::new(now, "muster", kind, summary).about(rollout.pool);
    let detail = json!({ "rollout": rollout.name, "pool": rollout.pool_name, "revision": rollout.number, "code": code });
    db::events::insert(conn, event.with(detail)).await
}
