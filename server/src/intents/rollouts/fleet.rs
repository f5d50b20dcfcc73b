//! The facts of a rollout, read from the rows for a call of the planner.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_api::operations::OperationState;
use muster_api::rollouts::{ReservationFailure, RolloutState};
use muster_core::effects::Effect;
use muster_core::ids::ObjectId;
use muster_core::lifecycle::state::{Action, State};
use muster_core::revisions::Revision;
use muster_core::rollout::{
    Change, Condition, Control, Fleet, HaltReason, Jobs, Mark, Member, Node, RevisionNumber, Stage,
    Validation,
};
use sqlx::PgConnection;

use super::jobs;
use super::members::{self, Members};
use super::signals::Signals;
use super::transfers::{Transfers, load_links};
use super::windows::Windows;
use crate::db;
use crate::db::rollout_facts::NodeRow;
use crate::db::rollout_places::Places;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;
use crate::intents::revisions;

/// The rows of a rollout's nodes, with the planner's view.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub rows: Vec<NodeRow>,
    pub fleet: Fleet,
    /// The effect of the target by running revision. Unknown for all other revisions.
    pub effects: BTreeMap<Option<i32>, Effect>,
    pub windows: Windows,
    pub signals: Signals,
    pub places: Places,
    /// Why the reservations of waiting nodes fail.
    pub reservations_failed: Option<ReservationFailure>,
}

/// Loads the facts of a rollout.
///
/// # Errors
/// 409 for an unreadable target; when the database fails.
pub(crate) async fn load(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
    now: Timestamp,
) -> Result<Loaded, Error> {
    let rows = db::rollout_facts::list_nodes(conn, rollout.id).await?;
    build(conn, rollout, rows, false, now).await
}

/// Loads the facts of a rollout, after the rows of the nodes have followed the claims of the pool.
///
/// # Errors
/// As [`load`].
pub(super) async fn load_followed(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
    now: Timestamp,
) -> Result<Loaded, Error> {
    let mut rows = db::rollout_facts::list_nodes(conn, rollout.id).await?;
    let members = db::disruption::count_members(conn, rollout.pool).await?;
    let is_stale = |row: &NodeRow| !row.is_member || row.is_broken;
    let covers_pool = rows.len() == members && !rows.iter().any(is_stale);
    if !covers_pool {
        db::rollout_nodes::follow_members(conn, rollout.id, now).await?;
        rows = db::rollout_facts::list_nodes(conn, rollout.id).await?;
    }
    build(conn, rollout, rows, covers_pool, now).await
}

/// Builds the planner's view. `covers_pool`: every member of the pool is known to have a row.
async fn build(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
    mut rows: Vec<NodeRow>,
    covers_pool: bool,
    now: Timestamp,
) -> Result<Loaded, Error> {
    rows.retain(|row| row.is_member);
    let (effects, transfers) = find_effects(conn, rollout, &rows).await?;
    let places = db::rollout_places::load(conn).await?;
    let unlisted = match covers_pool {
        true => Vec::new(),
        false => members::list_unlisted(conn, rollout.pool, &rows).await?,
    };
    let members = Members::load(conn, rollout.pool, &rows, &unlisted, &places).await?;
    let (mut jobs, reservations_failed) = jobs::load(conn, rollout.pool, now).await?;
    let windows = Windows::load(conn, rollout.id).await?;
    let signals = Signals::load(conn, rollout, now).await?;
    let nodes: Vec<Node> = rows
        .iter()
        .zip(members.own)
        .map(|(row, member)| {
            let effect = find_effect(&effects, row, rollout.number);
            let node = build_node(row, member, effect, rollout.number);
            Node {
                transfer_bytes: transfers
                    .count(row, find_shown_effect(&effects, row, rollout.number)),
                jobs: jobs.take(row),
                rack: row.rack.map(|rack| places.name(rack).to_owned()),
                gpus: row.profile.and_then(|profile| places.gpus(profile)),
                ..node
            }
        })
        .collect();
    let links = load_links(conn, rollout.id, &nodes, &places, &transfers).await?;
    let since = rollout.since.map_or(rollout.created_at, |at| at.to_jiff());
    let oldest = nodes
        .iter()
        .map(|node| node.since)
        .fold(since, Timestamp::min);
    let fleet = Fleet {
        target: to_number(rollout.number),
        supersedes: rollout.supersedes.map(to_number),
        control: find_control(rollout),
        promoted: rollout.promoted,
        planned: u32::try_from(rollout.planned).unwrap_or_default(),
        since,
        window: windows.calendar.open_at(now),
        closed: windows.calendar.list_closed(oldest, now),
        frozen_until: windows.calendar.frozen_at(now),
        signals: signals.list_halts(),
        silent: signals.find_unknown(),
        failed_and_left: u32::try_from(rollout.failed_and_left).unwrap_or_default(),
        budget: members.budget,
        links,
        durations_s: rows.iter().filter_map(find_duration).collect(),
        neighbours: members.others,
        nodes,
    };
    Ok(Loaded {
        rows,
        fleet,
        effects,
        windows,
        signals,
        places,
        reservations_failed,
    })
}

/// Returns effect and bytes of the target by the revision that a node runs. A revision that cannot be
/// read has no effect in the result.
async fn find_effects(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
    rows: &[NodeRow],
) -> Result<(BTreeMap<Option<i32>, Effect>, Transfers), Error> {
    let target = find_revision(conn, rollout.pool, rollout.number).await?;
    let target = target.ok_or_else(|| {
        let detail = format!(
            "Revision {} of {} cannot be read.",
            rollout.number, rollout.pool_name
        );
        Error::conflict("unreadable", detail)
    })?;
    let numbers: BTreeSet<i32> = rows
        .iter()
        .flat_map(|row| [find_former(row, rollout.number), row.former])
        .flatten()
        .collect();
    let mut former = BTreeMap::new();
    for number in numbers {
        if let Some(own) = find_revision(conn, rollout.pool, number).await? {
            former.insert(number, own);
        }
    }
    let effect = |(number, own): (&i32, &Revision)| (Some(*number), own.effect_to(&target));
    let effects = former.iter().map(effect).collect();
    Ok((effects, Transfers::new(rollout.number, &target, &former)))
}

async fn find_revision(
    conn: &mut PgConnection,
    pool: ObjectId,
    number: i32,
) -> Result<Option<Revision>, Error> {
    let stored = db::revisions::find(conn, pool, number).await?;
    Ok(stored.and_then(|stored| revisions::parse(&stored).ok()))
}

/// Returns the effect of the target on a node; `None` if the node's present revision is unknown. A
/// failed node is converged and validated in any case.
pub(super) fn find_effect(
    effects: &BTreeMap<Option<i32>, Effect>,
    row: &NodeRow,
    target: i32,
) -> Option<Effect> {
    let effect = effects.get(&find_former(row, target)).copied();
    // A failed image write leaves no system that could be converged.
    let least = match row.has_no_system {
        true => Effect::Reinstall,
        false => Effect::InPlace,
    };
    match is_retaken(row, target) {
        true => Some(effect.map_or(least, |effect| effect.max(least))),
        false => effect,
    }
}

/// Returns the effect to show for a node. A node taken by the rollout keeps the effect of its change,
/// and is at least converged.
pub(super) fn find_shown_effect(
    effects: &BTreeMap<Option<i32>, Effect>,
    row: &NodeRow,
    target: i32,
) -> Option<Effect> {
    let is_taken = match row.mark {
        Mark::Changing | Mark::Validating | Mark::Failed => true,
        Mark::Done => row.changed,
        Mark::NotBegun | Mark::Waiting | Mark::Skipped => false,
    };
    if !is_taken {
        return find_effect(effects, row, target);
    }
    let mut left = row.running.into_iter().chain(row.former);
    let effect = left
        .find(|number| *number != target)
        .and_then(|number| effects.get(&Some(number)).copied());
    let least = match row.has_no_system {
        true => Effect::Reinstall,
        false => Effect::InPlace,
    };
    Some(effect.map_or(least, |effect| effect.max(least)))
}

/// Returns the revision that the node leaves: the running one. A node whose change failed may run
/// parts of the assigned one.
fn find_former(row: &NodeRow, target: i32) -> Option<i32> {
    let failed_on = row.assigned.filter(|_| is_retaken(row, target));
    row.running.or(failed_on)
}

/// Returns whether the rollout takes a failed or quarantined node: retried by a person, or failed on
/// the revision that the rollout leaves.
fn is_retaken(row: &NodeRow, target: i32) -> bool {
    let rests = matches!(row.state, State::Failed | State::Quarantined);
    // A later request, such as a quarantine, ends the retry.
    let is_retried = matches!(row.mark, Mark::NotBegun | Mark::Waiting)
        && row.retried_at.is_some_and(|at| row.entered_at <= at);
    let is_left = row.failed_on_assigned && row.assigned != Some(target);
    rests && (is_retried || is_left)
}

fn to_number(number: i32) -> RevisionNumber {
    RevisionNumber(u32::try_from(number).unwrap_or_default())
}

fn find_control(rollout: &RolloutRow) -> Control {
    match rollout.state {
        RolloutState::Planned | RolloutState::Running => Control::Running,
        RolloutState::Halted => match &rollout.halt {
            Some(reason) => Control::Halted(reason.0.clone()),
            None => Control::Halted(HaltReason::Person("no reason recorded".to_owned())),
        },
        RolloutState::Superseded | RolloutState::Done | RolloutState::Expired => {
            Control::Superseded
        }
    }
}

/// Builds a node without its transfer, jobs, rack and GPUs, which the caller adds.
fn build_node(row: &NodeRow, member: Member, effect: Option<Effect>, target: i32) -> Node {
    let stage = find_stage(row, target);
    let begun = matches!(stage.mark(), Mark::Changing | Mark::Validating);
    let unreadable = match (effect, begun) {
        (None, false) => Some(match row.running {
            Some(number) => format!("revision {number}, which the node runs, cannot be read"),
            None => {
                "the running revision is unknown until the next comparison (the action check-drift)"
                    .to_owned()
            }
        }),
        (Some(_), _) | (None, true) => None,
    };
    Node {
        member,
        name: row.name.clone(),
        site: row.site,
        rack: None,
        labels: row.labels.0.clone(),
        stage,
        since: row.since,
        runs: row.running.map(to_number),
        going_to: row.assigned.map(to_number),
        // The running revision is unknown while the node changes. The change was permitted.
        effect: effect.unwrap_or(Effect::InPlace),
        transfer_bytes: 0,
        jobs: Jobs::Unknown,
        wrong: row.wrong.clone(),
        failed_before: row.failed_before,
        requeue_agreed: row.requeue_agreed_at.is_some(),
        gpus: None,
        idle_since: row.idle_since,
        announced_for: None,
        notified: BTreeSet::new(),
        condition: Condition {
            held: row.hold,
            protected: row.protected,
            adopted: row.adopted,
            busy: find_other_work(row, target),
            deferred_until: row.deferred_until,
            unreadable,
        },
    }
}

/// Returns the work of others that keeps the rollout from the node.
fn find_other_work(row: &NodeRow, target: i32) -> Option<String> {
    let own = row.operation.is_some() && row.is_attempt;
    let other = row.open_operation.clone().filter(|_| !own);
    other.or_else(|| {
        // A failed change of the rollout itself is tried again.
        let is_retried = own && row.mark == Mark::Changing;
        let is_free = row.state == State::InService || is_retried || is_retaken(row, target);
        let rests = row.state.is_resting() && !is_free;
        rests.then(|| format!("the node is {}", row.state))
    })
}

/// Returns the seconds from the close to the end of a changed node.
fn find_duration(row: &NodeRow) -> Option<u32> {
    let begun = row
        .attempted_at
        .filter(|_| row.mark == Mark::Done && row.changed)?;
    let took = row.since.duration_since(begun.to_jiff());
    u32::try_from(took.as_secs()).ok()
}

/// Returns the node's stage from the mark and from the lifecycle.
fn find_stage(row: &NodeRow, target: i32) -> Stage {
    match row.mark {
        // Given back after a failed drain, and refused by the scheduler.
        Mark::NotBegun
            if failed_to_drain(row)
                && row.action.is_none()
                && row.attempt == Some(OperationState::Failed)
                && row.wrong.contains(&find_reason(row)) =>
        {
            let why = find_reason(row);
            Stage::Changing(Change::DrainFailed { why })
        }
        Mark::NotBegun => Stage::NotBegun,
        Mark::Waiting => Stage::Waiting,
        Mark::Done => Stage::Done {
            changed: row.changed,
        },
        Mark::Skipped => Stage::Skipped,
        Mark::Failed => Stage::Failed,
        // A person or another act has stopped or replaced the attempt.
        Mark::Changing | Mark::Validating
            if row.attempt == Some(OperationState::Cancelled) && row.state != State::InService =>
        {
            Stage::Changing(Change::DrainCancelled)
        }
        Mark::Changing | Mark::Validating => find_begun_stage(row, target),
    }
}

/// Returns the stage of a begun node, whose attempt goes on.
fn find_begun_stage(row: &NodeRow, target: i32) -> Stage {
    match row.state {
        State::Draining if row.is_attempt => {
            Stage::Changing(match row.waits_for_unit {
                true => Change::Drained,
                // The other nodes of the unit change already.
                false if row.unit_started => Change::Working,
                false => Change::Draining,
            })
        }
        State::Imaging | State::Installing => Stage::Changing(Change::Working),
        State::Validating if row.mark == Mark::Changing => Stage::Changing(Change::Arrived),
        State::Validating => Stage::Validating(Validation::Gating),
        State::Admitting if row.mark == Mark::Changing => Stage::Changing(Change::Arrived),
        State::Admitting => Stage::Validating(Validation::Readmitting),
        State::InService => find_stage_in_service(row, target),
        // Taken out of quarantine, and not yet on the way.
        State::Failed | State::Quarantined
            if matches!(row.action, Some(Action::Converge | Action::Reinstall)) =>
        {
            Stage::Changing(Change::Working)
        }
        // Nothing was changed: the node did not get past the drain.
        State::Failed if row.mark == Mark::Changing && failed_to_drain(row) => {
            Stage::Changing(match row.is_attempt {
                true => Change::DrainFailed {
                    why: find_reason(row),
                },
                // A person has taken over.
                false => Change::DrainCancelled,
            })
        }
        State::Failed if row.mark == Mark::Changing => Stage::Changing(Change::Wrong {
            result: find_reason(row),
        }),
        State::Failed | State::Quarantined | State::Repairing => {
            Stage::Validating(Validation::GateFailed {
                finding: find_reason(row),
            })
        }
        State::Draining
        | State::Maintenance
        | State::Discovered
        | State::Inspecting
        | State::Available
        | State::Wiping
        | State::Retired => Stage::Changing(Change::DrainCancelled),
    }
}

/// Returns the reason of the state, or the state.
fn find_reason(row: &NodeRow) -> String {
    let reason = row.state_reason.clone();
    reason.unwrap_or_else(|| row.state.to_string())
}

/// Returns the stage of a begun node that serves: the node runs the target, or the attempt has ended
/// without the target.
fn find_stage_in_service(row: &NodeRow, target: i32) -> Stage {
    match (row.running, row.attempt) {
        (Some(running), _) if running == target => Stage::Validating(Validation::Readmitting),
        // The comparison after the change has not been recorded.
        (None, Some(OperationState::Succeeded)) => Stage::Changing(Change::Working),
        (Some(_) | None, _) => match row.action {
            Some(Action::Converge | Action::Reinstall) => Stage::Changing(Change::Draining),
            Some(_) | None => Stage::Changing(Change::DrainCancelled),
        },
    }
}

/// Whether the node failed in a drain.
fn failed_to_drain(row: &NodeRow) -> bool {
    row.state == State::Failed && row.failed_phase == Some(State::Draining)
}
