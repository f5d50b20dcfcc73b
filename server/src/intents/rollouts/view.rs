//! Rollouts as returned to readers: the stored row, with the plan as of now.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_api::rollouts::{
    NodeComparison, ReservationFailure, Rollout, RolloutLosses, RolloutNode, RolloutNow,
    RolloutReason, RolloutState,
};
use muster_core::ids::{NodeId, ObjectId, RolloutId};
use muster_core::rollout::{
    Because, Control, HaltReason, Losses, Mark, Placement, Plan, Rule, count_losses, number_waves,
    plan,
};
use sqlx::PgConnection;

use super::estimates::find_estimate;
use super::fits::UNFIT;
use super::fleet::{self, Loaded, find_shown_effect};
use super::regressions;
use crate::access::Place;
use crate::auth::Actor;
use crate::db;
use crate::db::rollout_facts::NodeRow;
use crate::db::rollout_places::Places;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;

/// Number of rollouts in a list.
const NEWEST: i64 = 100;

/// The parts of a rollout beside the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// Marks, and the plan of an open rollout.
    Plan,
    /// The nodes too.
    Nodes,
    /// The nodes, and the estimated end.
    Estimate,
}

/// Loads a rollout with the nodes, and with the estimated end on request. Nodes outside the actor's read
/// scope are counted, and are not named.
///
/// # Errors
/// 404 for an unknown rollout.
pub(crate) async fn load(
    conn: &mut PgConnection,
    actor: &Actor,
    key: &str,
    now: Timestamp,
    parts: Parts,
) -> Result<Rollout, Error> {
    let row = super::find(conn, key).await?;
    let former = list_former(conn, &[row.id]).await?;
    render(conn, actor, row, &former, now, parts).await
}

/// Lists the newest hundred rollouts, of all pools or of one, without nodes.
///
/// # Errors
/// When the database fails.
pub(crate) async fn list(
    conn: &mut PgConnection,
    actor: &Actor,
    pool: Option<ObjectId>,
    now: Timestamp,
) -> Result<Vec<Rollout>, Error> {
    let mut rollouts = Vec::new();
    let rows = db::rollouts::list(conn, pool, NEWEST).await?;
    let ids: Vec<RolloutId> = rows.iter().map(|row| row.id).collect();
    let former = list_former(conn, &ids).await?;
    for row in rows {
        let Some(place) = db::access::find_place(conn, "pool", &row.pool.to_string()).await? else {
            continue;
        };
        if actor.holding.there("fleet.read", &place) {
            rollouts.push(render(conn, actor, row, &former, now, Parts::Plan).await?);
        }
    }
    Ok(rollouts)
}

/// Renders a rollout. Only an open rollout is planned.
async fn render(
    conn: &mut PgConnection,
    actor: &Actor,
    row: RolloutRow,
    former: &BTreeMap<RolloutId, Vec<i32>>,
    now: Timestamp,
    parts: Parts,
) -> Result<Rollout, Error> {
    let with_nodes = parts != Parts::Plan;
    let is_open = is_open(&row);
    let loaded = match is_open || with_nodes {
        true => load_readable(conn, &row, now).await?,
        false => None,
    };
    let plan = |one: &Loaded| plan(&row.policy, &one.fleet, now);
    let planned = loaded.as_ref().map(|one| (one, plan(one)));
    let losses = loaded.as_ref().map(|one| count_losses(&one.fleet, now));
    let nodes = match planned.as_ref().zip(losses.as_ref()) {
        Some(((loaded, planned), losses)) if with_nodes => {
            let compared = regressions::list(conn, &row).await?;
            let seen = Seen {
                loaded,
                planned,
                losses,
            };
            Some(render_nodes(actor, &row, &seen, &compared, now))
        }
        Some(_) | None => None,
    };
    let estimated = match &loaded {
        Some(loaded) if is_open && parts == Parts::Estimate => {
            Some(find_estimate(conn, &row, loaded, now).await?)
        }
        Some(_) | None => None,
    };
    let seen = planned
        .filter(|_| is_open)
        .map(|(loaded, planned)| RolloutNow {
            windows: loaded.windows.describe(now),
            signals: loaded.signals.list.clone(),
            losses: losses.as_ref().and_then(render_losses),
            reservations_failed: find_failure(loaded),
            ..render_now(planned)
        });
    let marks = db::rollout_nodes::count_marks(conn, row.id).await?;
    Ok(Rollout {
        id: row.id.0,
        link: format!("/v1/rollouts/{}", row.name),
        marks: marks.into_iter().collect(),
        halt: row.halt.as_ref().map(|reason| render_halt(&reason.0)),
        now: seen,
        estimate: estimated,
        stalled_since: row.stalled_since.map(|at| at.to_jiff()),
        nodes,
        from: former.get(&row.id).cloned().unwrap_or_default(),
        name: row.name,
        pool: row.pool_name,
        revision: row.number,
        state: row.state,
        plan: row.digest,
        expires_at: row.expires_at,
        policy: row.policy.0,
        planned: u32::try_from(row.planned).unwrap_or_default(),
        promoted: row.promoted,
        actor: row.actor,
        created_at: row.created_at,
        started_at: row.started_at.map(|at| at.to_jiff()),
        ended_at: row.ended_at.map(|at| at.to_jiff()),
    })
}

/// Loads the facts of a rollout. `None` for an unreadable revision, which keeps neither a list nor a
/// halt from the answer.
async fn load_readable(
    conn: &mut PgConnection,
    row: &RolloutRow,
    now: Timestamp,
) -> Result<Option<Loaded>, Error> {
    match fleet::load(conn, row, now).await {
        Ok(loaded) => Ok(Some(loaded)),
        Err(Error::Conflict { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn render_halt(reason: &HaltReason) -> RolloutReason {
    RolloutReason {
        code: reason.code().to_owned(),
        sentence: reason.to_string(),
    }
}

/// Renders the planner's view. A rule may be of a node outside the actor's read scope.
fn render_now(planned: Plan) -> RolloutNow {
    let describe = |rule: &Rule| describe(&rule.without_holders());
    RolloutNow {
        binding: planned.binding.as_ref().map(describe),
        failure_rule: planned.failure_rule,
        changing: planned.concurrency.now,
        most_changing: planned.concurrency.max,
        bound_by: planned.concurrency.bound_by.as_ref().map(describe),
        windows: Vec::new(),
        signals: Vec::new(),
        losses: None,
        reservations_failed: None,
    }
}

/// Returns why the reservations of the waiting nodes fail. A halted rollout, and one without a waiting
/// node, needs none.
fn find_failure(loaded: &Loaded) -> Option<ReservationFailure> {
    let is_running = loaded.fleet.control == Control::Running;
    let waits = |row: &NodeRow| row.mark == Mark::Waiting;
    let needs_some = is_running && loaded.rows.iter().any(waits);
    let failure = loaded.reservations_failed.as_ref();
    failure.filter(|_| needs_some).cloned()
}

fn render_losses(losses: &Losses) -> Option<RolloutLosses> {
    // Absent without a loss.
    (losses.gpu_seconds > 0 || losses.unknown > 0).then(|| RolloutLosses {
        gpu_seconds: losses.gpu_seconds,
        unknown: losses.unknown,
        sentence: losses.to_string(),
    })
}

/// Returns the revisions assigned to the nodes before, by rollout.
async fn list_former(
    conn: &mut PgConnection,
    ids: &[RolloutId],
) -> Result<BTreeMap<RolloutId, Vec<i32>>, Error> {
    let mut former: BTreeMap<RolloutId, Vec<i32>> = BTreeMap::new();
    for row in db::rollout_nodes::list_former(conn, ids).await? {
        former.entry(row.rollout).or_default().push(row.number);
    }
    Ok(former)
}

/// A rollout as loaded and planned at one time.
struct Seen<'a> {
    loaded: &'a Loaded,
    planned: &'a Plan,
    losses: &'a Losses,
}

fn render_nodes(
    actor: &Actor,
    rollout: &RolloutRow,
    seen: &Seen<'_>,
    compared: &BTreeMap<NodeId, Vec<NodeComparison>>,
    now: Timestamp,
) -> Vec<RolloutNode> {
    let Seen {
        loaded,
        planned,
        losses,
    } = *seen;
    let lost: BTreeMap<NodeId, u64> = losses
        .nodes
        .iter()
        .filter_map(|loss| Some((loss.node, loss.gpu_seconds?)))
        .collect();
    let placements: BTreeMap<NodeId, &Placement> = planned
        .placements
        .iter()
        .map(|placement| (placement.node, placement))
        .collect();
    let waves = number_waves(&rollout.policy, &loaded.fleet, now);
    let is_begun = rollout.started_at.is_some();
    loaded
        .rows
        .iter()
        .filter(|row| is_seen(actor, rollout, row, &loaded.places))
        .map(|row| RolloutNode {
            node: row.name.clone(),
            mark: row.mark,
            wave: waves.get(&row.node).copied(),
            since: row.since,
            running: row.running,
            effect: find_shown_effect(&loaded.effects, row, rollout.number)
                .map(|effect| effect.as_str().to_owned()),
            state: row.state.to_string(),
            why: explain(rollout, row, placements.get(&row.node).copied()),
            overdue: placements
                .get(&row.node)
                .is_some_and(|placement| is_begun && placement.is_overdue),
            requeue_agreed_at: row.requeue_agreed_at,
            lost_gpu_seconds: lost.get(&row.node).copied(),
            compared: compared.get(&row.node).cloned().unwrap_or_default(),
            last: row
                .reason_code
                .clone()
                .zip(row.reason.clone())
                .map(|(code, sentence)| RolloutReason { code, sentence }),
        })
        .collect()
}

/// Whether the rollout has not ended. Only an open rollout has a plan.
fn is_open(rollout: &RolloutRow) -> bool {
    match rollout.state {
        RolloutState::Planned | RolloutState::Running | RolloutState::Halted => true,
        RolloutState::Done | RolloutState::Superseded | RolloutState::Expired => false,
    }
}

/// Returns why the node does not go on. The reasons of the node itself come first, because a plan shows
/// them long before the rollout comes to the node.
fn explain(
    rollout: &RolloutRow,
    row: &NodeRow,
    placement: Option<&Placement>,
) -> Option<RolloutReason> {
    if row.mark.is_terminal() {
        return None;
    }
    let placement = placement?;
    let is_open = is_open(rollout);
    match &placement.own {
        Some(Because::Rule(rule)) if is_open => return Some(describe_own(rule)),
        Some(because) if is_open => {
            return Some(RolloutReason {
                code: because.code().to_owned(),
                sentence: because.to_string(),
            });
        }
        Some(_) | None => {}
    }
    let unfit = row.reason_code.as_deref() == Some(UNFIT) && row.mark == Mark::NotBegun;
    match row.reason.clone().filter(|_| unfit) {
        Some(sentence) => Some(RolloutReason {
            code: UNFIT.to_owned(),
            sentence,
        }),
        None => placement.why.as_ref().map(describe_own),
    }
}

fn is_seen(actor: &Actor, rollout: &RolloutRow, row: &NodeRow, places: &Places) -> bool {
    let place = Place {
        site: Some(places.name(row.site).to_owned()),
        rack: row.rack.map(|rack| places.name(rack).to_owned()),
        pool: Some(rollout.pool_name.clone()),
        labels: row.labels.0.clone(),
    };
    actor.holding.there("fleet.read", &place)
}

/// Describes the rule of a node. The rule of a unit may be about another node's job.
fn describe_own(rule: &Rule) -> RolloutReason {
    match rule {
        Rule::Job(_) | Rule::CannotRequeue(_) => describe(rule),
        rule => describe(&rule.without_holders()),
    }
}

fn describe(rule: &Rule) -> RolloutReason {
    RolloutReason {
        code: rule.code().to_owned(),
        sentence: rule.to_string(),
    }
}
